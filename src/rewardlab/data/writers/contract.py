"""The contract of a dataset writer: how rollouts share files, what a file holds, and what describes the whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.episode import Episode

Row = dict[str, Any]  # what is written down of a rollout, as JSON holds it


@dataclass(frozen=True, eq=False)
class Rollout:
    """One rollout as each of its cameras saw it, and the names under which it and they are written."""

    name: str
    views: tuple[Episode, ...]
    cameras: tuple[str, ...]

    @property
    def first(self) -> Episode:
        """Return what the first camera saw: instruction, truth and times are the same for all."""
        return self.views[0]


@dataclass(frozen=True)
class Batch:
    """Rollouts that are written together; `first_rollout` and `first_frame` say how many come before them."""

    number: int
    first_rollout: int
    first_frame: int
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True)
class Writer:
    """A dataset format that can be written.

    `write` writes the files of a batch below a folder and returns one row per rollout; writing a batch again gives the
    same files. `finish` writes what describes the whole from the rows of all batches, and comes last. A batch holds up
    to `batch_frames` frames, or one rollout where that is 0. `joins_cameras` says that all cameras of a rollout belong
    together; else each is a rollout of its own. `one_rate` says that all frames come at one rate.
    """

    name: str
    summary: str
    write: Callable[[Path, Batch], list[Row]]
    finish: Callable[[Path, Sequence[Row]], None]
    batch_frames: int = 0
    joins_cameras: bool = False
    one_rate: bool = False
