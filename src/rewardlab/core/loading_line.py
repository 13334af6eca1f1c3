"""What a person sees before there is anything to count: one line that says what is waited for, and for how long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PER_SECOND = 2  # the seconds go on counting while the work keeps this process busy


@contextmanager
def loading(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on a terminal what is under way; the line renews itself and is gone at the end, elsewhere there is none."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, TextColumn, TimeElapsedColumn  # here: it is slow to load, and rarely needed
    from rich.table import Column

    from rewardlab.core.terminal_console import safe_markup, terminal_console

    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    console = terminal_console(stderr=True)
    with Progress(text, TimeElapsedColumn(), console=console, transient=True, refresh_per_second=_PER_SECOND) as line:
        line.add_task(safe_markup(what), total=None)
        line.refresh()
        yield
