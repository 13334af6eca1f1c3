"""What reaches a terminal: safe text, console, loading line, the one progress display."""

import codecs
import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


# C0 and C1 controls but tab and newline, line separators, marks that reorder what is shown, halves of surrogate pairs
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_ASCII = dict(
    zip(
        "±≠≤≥×→τ…–—‘’“”━▁▂▃▄▅▆▇█",  # the last eight are those of a sparkline
        ("+/-", "!=", "<=", ">=", "x", "->", "tau", "...", "-", "-", "'", "'", '"', '"', "-", *"_.-:=+*#"),
        strict=True,
    )
)


def printable(text: str) -> str:
    """Return the text with every character that could steer a terminal, or reorder what it shows, spelled out."""

    def spelled(found: re.Match[str]) -> str:
        code = ord(found.group())
        if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is no UTF-8
            code -= 0xDC00
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _STEERING.sub(spelled, text)


def one_line(text: object) -> str:
    """Return what is to be said as one printable line: a newline from outside cannot begin a line of its own."""
    return printable(str(text)).replace("\n", r"\n").replace("\t", " ")


def in_encoding(text: str, encoding: str | None) -> str:
    """Return the text in characters that the encoding has: others in ASCII, or spelled out."""
    if encoding is None or encoding.lower().startswith("utf"):
        return text
    return text.encode(encoding, "rewardlab.ascii").decode(encoding)


class TerminalStream(io.TextIOBase):
    """Writes to a stream what may be shown on it; `styled` text has been made printable, and styled, before."""

    def __init__(self, stream: TextIO, *, styled: bool = False) -> None:
        self.stream = stream
        self._styled = styled

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        """Write the text with nothing in it that steers the terminal."""
        self.stream.write(in_encoding(text if self._styled else printable(text), self.stream.encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        """Leave the stream behind alone, which others may have closed by the time this one is cleared away."""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let nothing that steers a terminal reach stdout or stderr, whoever prints it."""
    with redirect_stdout(TerminalStream(sys.stdout)), redirect_stderr(TerminalStream(sys.stderr)):
        yield


def stream_behind(stream: TextIO) -> TextIO:
    """Return the stream itself, for what steers a terminal on purpose, such as a line that renews itself."""
    return stream.stream if isinstance(stream, TerminalStream) else stream


def _ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(letter) or ascii(letter)[1:-1] for letter in missing), error.end


codecs.register_error("rewardlab.ascii", _ascii)


# A rich console whose own styling reaches the terminal, and no escape sequence of the text it shows.


@cache
def _console_class() -> "type[Console]":
    """Return the class of such a console; rich is slow to load, so it is loaded when something is shown."""
    from rich.console import Console
    from rich.segment import Segment

    class TerminalConsole(Console):
        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> "Iterable[Segment]":
            """Render as rich does, with the text of every segment made printable; its control codes are rich's own."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return TerminalConsole


def terminal_console(*, stderr: bool = False) -> "Console":
    """Return a console on stdout or stderr that is safe to show strangers' text on."""
    stream = TerminalStream(stream_behind(sys.stderr if stderr else sys.stdout), styled=True)
    return _console_class()(file=stream, emoji=False)  # type: ignore[arg-type]  # a TextIOBase is an IO[str]


def safe_markup(text: str) -> str:
    """Return text for inside rich's markup: what looks like markup in it is shown, and it stays in one line."""
    from rich.markup import escape

    return escape(one_line(text))


# What a person sees before there is anything to count: one line that says what is waited for, and for how long.

_PER_SECOND = 2  # the seconds go on counting while the work keeps this process busy
_LINE = Lock()  # held by the one line that is shown


@contextmanager
def loading(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on a terminal what is under way, in a line that renews itself and is gone at the end; one at a time."""
    if quiet or not sys.stderr.isatty() or not _LINE.acquire(blocking=False):
        yield
        return
    from rich.progress import Progress, TextColumn, TimeElapsedColumn  # here: it is slow to load, and rarely needed
    from rich.table import Column

    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    console = terminal_console(stderr=True)
    line = Progress(text, TimeElapsedColumn(), console=console, transient=True, refresh_per_second=_PER_SECOND)
    try:
        with line:
            line.add_task(safe_markup(what), total=None)
            line.refresh()
            yield
    finally:
        _LINE.release()


# What a person sees while work goes on: how much is done, its rate, a note and the time left.

_REFRESH_SECONDS = 0.2
_LINE_SECONDS = 15.0  # how often a line is printed where there is no terminal
_FIRST_LINE_SECONDS = 2.0  # after which the first one is printed
_LEAST_STEPS, _LEAST_SECONDS = 5, 2.0  # since the first step, before the time left is told


def time_text(seconds: float) -> str:
    """Return a time in the unit in which people say it, such as `3 min`."""
    unit, size = next(((unit, size) for unit, size in (("h", 3600), ("min", 60)) if seconds >= 2 * size), ("s", 1))
    return f"{seconds / size:.0f} {unit}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 problem` or `1,204 problems`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class ProgressBar:
    """A live bar on a terminal, an occasional line elsewhere; written to stderr, with no thread of its own.

    Where `before` is given, a terminal shows those words until the first step.
    """

    def __init__(self, what: str, total: int, done: int = 0, *, before: str = "", quiet: bool = False) -> None:
        self.total, self.done = total, done
        self._what, self._quiet, self._at_start = what, quiet, done
        self._printed = done
        self._note: str | Callable[[], str] = ""
        self._started = time.monotonic()
        self._first: tuple[float, int] | None = None  # when the first step came, and how many were done then
        self._shown = self._started - _LINE_SECONDS + _FIRST_LINE_SECONDS
        self._bar: rich.progress.Progress | None = None
        self._loading = ExitStack()
        if before and done < total:
            self._loading.enter_context(loading(before, quiet=quiet))
        if sys.stderr.isatty() and not quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn(what), BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
            self._bar = Progress(*columns, console=terminal_console(stderr=True), auto_refresh=False)
            self._task = self._bar.add_task("", total=total, completed=done, note="")

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._loading.close()
        if not self._quiet:
            self._show()
        if self._bar:
            self._bar.stop()

    @property
    def rate(self) -> float:
        """How many were done per second since the start."""
        return (self.done - self._at_start) / max(time.monotonic() - self._started, 1e-9)

    @property
    def time_left(self) -> str:
        """Return the time left in words, by what came after the first step; empty before enough came to tell."""
        if self._first is None:
            return ""
        seconds, steps = time.monotonic() - self._first[0], self.done - self._first[1]
        if steps < _LEAST_STEPS or seconds < _LEAST_SECONDS or self.done >= self.total:
            return ""
        return f"{time_text((self.total - self.done) * seconds / steps)} left"

    def step(self, done: int, note: str | Callable[[], str] = "") -> None:
        """Show now and then how many are done; a note, or what makes it when it is shown, stays until the next one."""
        self._loading.close()
        self.done, self._note = done, note or self._note
        self._first = self._first or (time.monotonic(), done)
        self.total = max(self.total, done)  # an attack cannot tell beforehand what will not apply
        pause = _REFRESH_SECONDS if self._bar else _LINE_SECONDS
        if not self._quiet and time.monotonic() - self._shown > pause:
            self._show()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._bar:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        elif not self._quiet:
            print(one_line(text), file=sys.stderr, flush=True)

    def _show(self) -> None:
        self._shown = time.monotonic()
        note = ", ".join(filter(None, (self._note if isinstance(self._note, str) else self._note(), self.time_left)))
        if self._bar:
            self._bar.start()
            self._bar.update(self._task, completed=self.done, total=self.total, note=note)
            self._bar.refresh()
        elif self.done > self._printed:
            self._printed = self.done
            print(", ".join(filter(None, (f"{self._what} {self.done:,} of {self.total:,}", note))), file=sys.stderr)
