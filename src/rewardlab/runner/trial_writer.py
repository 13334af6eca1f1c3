"""Trials on their way to disk: written as a part every second, and few files however long a run takes."""

import time
from collections.abc import Sequence
from types import TracebackType

from rewardlab.core.run import Run
from rewardlab.core.trial import Trial

_FLUSH_SECONDS = 1.0  # finished cells are on disk after this long at the latest
_PUBLISH_SECONDS = 30.0  # what a run in an object store has paid for is there after this long at the latest


class TrialWriter:
    """Keeps trials for up to a second, then writes them; at the end of the block everything is written."""

    def __init__(self, run: Run) -> None:
        self._run, self._waiting = run, list[Trial]()
        self._flushed = self._published = time.monotonic()

    def __enter__(self) -> "TrialWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._run.publish()

    def add(self, trials: Sequence[Trial]) -> None:
        """Take finished trials."""
        self._waiting += trials
        now = time.monotonic()
        if now - self._flushed > _FLUSH_SECONDS:
            self._flush()
            self._run.join_small_parts()
            self._flushed = time.monotonic()
        if now - self._published > _PUBLISH_SECONDS:
            self._run.publish()
            self._published = time.monotonic()

    def _flush(self) -> None:
        self._run.append(self._waiting)
        self._waiting = []
