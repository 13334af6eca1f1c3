"""What a collection is, whatever the simulator: its settings, its episodes, and what recording one gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import DONE, LEVEL_STARTS, LEVELS, NOT_BEGUN, UNDER_WAY, FailureEvent, Indices, Stage
from rewardlab.core.errors import PlanError
from rewardlab.worlds.edits import WORLD_EDITS

CRF = 21  # of the videos
PHRASINGS = ("train", "held_out")
Row = dict[str, Any]  # of metadata.jsonl


@dataclass(frozen=True)
class Collection:
    """The settings of one collection, checked; the signature of `rewardlab.collect` explains them."""

    simulator: str
    tasks: tuple[str, ...]
    episodes: int
    quality: tuple[str, ...]
    world: tuple[str, ...]
    camera: tuple[str, ...]
    balance: bool
    distractors: int
    counterfactuals: int
    captions: bool
    phrasings: str
    marker: bool
    size: int
    fps: float
    frames: tuple[int, ...]
    seed: int
    out: Path

    def __post_init__(self) -> None:
        for text in self.world:
            parse_world(text)
        if self.phrasings not in PHRASINGS:
            raise PlanError(f"phrasings must be one of {', '.join(PHRASINGS)}, got {self.phrasings!r}")
        if len(self.frames) != 2 or not 2 <= self.frames[0] <= self.frames[1]:
            raise PlanError(f"frames must be least,most with at least 2, got {self.frames}")
        if self.episodes < 1 or self.distractors < 0 or self.fps <= 0 or not 16 <= self.size <= 512:
            raise PlanError("episodes must be at least 1, distractors not negative, fps above 0, size 16 to 512")


def parse_world(text: str) -> tuple[str, int]:
    """Return name and severity of a world such as `world_camera:3`; `plain` has severity 0."""
    if text == "plain":
        return text, 0
    name, _, severity = text.partition(":")
    find(WORLD_EDITS, name, "changed world")
    if severity not in ("1", "2", "3", "4"):
        raise PlanError(f"a changed world needs a severity from 1 to 4, such as {name}:3, got {text!r}")
    return name, int(severity)


@dataclass(frozen=True)
class PlannedEpisode:
    """One episode to record: its simulator, a task and its number."""

    simulator: str
    task: str
    index: int

    @property
    def stem(self) -> str:
        """Return the path of its files below the dataset folder, without the ending."""
        return f"{self.simulator}/{self.task}-{self.index:04d}"


def wanted_level(planned: PlannedEpisode, episodes: Sequence[PlannedEpisode], of_each_task: int) -> int:
    """Return the level at which an episode should end where levels are balanced.

    Each level comes in turn within a task; where a task has fewer episodes than there are levels, over the tasks.
    """
    place = planned.index if of_each_task >= len(LEVELS) else episodes.index(planned)
    return LEVELS[place % len(LEVELS)]


@dataclass(frozen=True)
class RecordedEpisode:
    """The rows of metadata of one recorded episode and the seconds that each stage took."""

    rows: tuple[Row, ...]
    seconds: dict[str, float]


def stage_of(instruction: str, progress: NDArray[np.float64], steps: Indices) -> Stage:
    """Return a stage at these steps, from its own progress at every step; it is under way from level 2 on."""
    begun = np.maximum.accumulate(progress >= LEVEL_STARTS[0])
    reached = np.where(progress == 1, DONE, np.where(begun, UNDER_WAY, NOT_BEGUN))
    return Stage(instruction, tuple(reached[steps].tolist()))


def failure_row(failure: FailureEvent | None, steps: Indices) -> Row:
    """Return what a row says of a failure in a rollout: its cause, and the first of these steps that shows it."""
    if failure is None:
        return {}
    shown = {} if failure.frame is None else {"failure_frame": int(np.searchsorted(steps[:-1], failure.frame))}
    return {"failure_cause": failure.cause, **shown}


@dataclass(frozen=True)
class Simulator:
    """What a simulator does for a collection: check its settings, plan its episodes, and record one of them."""

    check: Callable[[Collection], None]
    plan: Callable[[Collection], list[PlannedEpisode]]
    record: Callable[[Collection, PlannedEpisode], RecordedEpisode]
    camera: str  # where none is asked for
