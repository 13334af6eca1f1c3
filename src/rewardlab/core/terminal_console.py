"""A rich console whose own styling reaches the terminal, and no escape sequence of the text it shows."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from rewardlab.core.terminal_text import TerminalStream, one_line, printable, stream_behind


class _TerminalConsole(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with the text of every segment made printable; its control codes are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def terminal_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr that is safe to show strangers' text on."""
    stream = TerminalStream(stream_behind(sys.stderr if stderr else sys.stdout), styled=True)
    return _TerminalConsole(file=stream, emoji=False)  # type: ignore[arg-type]  # a TextIOBase is an IO[str]


def safe_markup(text: str) -> str:
    """Return text for inside rich's markup: what looks like markup in it is shown, and it stays in one line."""
    return escape(one_line(text))
