"""What a person sees while a run goes on: cells done, rate, time left and failures so far."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from rewardlab.core.loading_line import loading
from rewardlab.core.terminal_console import terminal_console
from rewardlab.core.trial import Trial
from rewardlab.models.backends.ledger import Spent

_REFRESH_SECONDS = 0.2
_LINE_SECONDS = 15.0  # how often a line is printed where there is no terminal
_FIRST_LINE_SECONDS = 2.0  # after which the first one says how long it will take


class ProgressBar:
    """A live bar on a terminal, an occasional line elsewhere; written to stderr, with no thread of its own.

    Until the first trial is there, a terminal shows that the models are loaded.
    """

    def __init__(self, total: int, done: int, spent: Callable[[], Spent], *, quiet: bool = False) -> None:
        self.total, self.done, self.failed = total, done, 0
        self._before, self._started = done, time.monotonic()
        self._shown = self._started - _LINE_SECONDS + _FIRST_LINE_SECONDS
        self._spent, self._quiet = spent, quiet
        self._bar: RichProgress | None = None
        self._loading = ExitStack()
        if sys.stderr.isatty() and not quiet:
            columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
            self._bar = RichProgress(
                *columns, TimeRemainingColumn(), console=terminal_console(stderr=True), auto_refresh=False
            )
            self._task = self._bar.add_task("", total=total, completed=done, note="")

    def __enter__(self) -> "ProgressBar":
        if self.done < self.total:
            self._loading.enter_context(loading("loading the models", quiet=self._quiet))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loading.close()
        if not self._quiet:
            self._show()
        if self._bar:
            self._bar.stop()

    def add(self, trials: Sequence[Trial]) -> None:
        """Count finished trials and show them now and then."""
        self._loading.close()
        self.done += len(trials)
        self.total = max(self.total, self.done)  # an attack cannot tell beforehand what will not apply
        self.failed += sum(trial.status == "failed" for trial in trials)
        pause = _REFRESH_SECONDS if self._bar else _LINE_SECONDS
        if not self._quiet and time.monotonic() - self._shown > pause:
            self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        fresh = self.done - self._before
        rate = fresh / max(self._shown - self._started, 1e-9)
        note = f"{rate:,.0f} cells/s, {self.failed} failed{self._price()}"
        if self._bar:
            self._bar.start()
            self._bar.update(self._task, completed=self.done, total=self.total, note=note)
            self._bar.refresh()
        elif fresh:
            left = (self.total - self.done) / rate
            print(f"scored {self.done:,} of {self.total:,} cells, {note}, {left:.0f} s left", file=sys.stderr)

    def _price(self) -> str:
        """Return what paid models have cost, and will cost in all if it goes on so."""
        spent = self._spent()
        if not spent.replies or not self.done:
            return ""
        share = self.total / self.done
        if not spent.priced:
            return f", about {(spent.input_tokens + spent.output_tokens) * share:,.0f} tokens in all"
        return f", cost {spent.cost:.4g}, about {spent.cost * share:.4g} in all"
