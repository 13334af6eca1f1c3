"""The rollout table: labels, positions and instructions of every rollout, in the order of its frames on the device."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.training.pocket.rendered_clips import PerturbedClip

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)

MIN_CLIP_FRAMES = 4


@dataclass(frozen=True, eq=False)
class RolloutTable:
    """What is known about each rollout; every column has one entry per rollout."""

    tasks: tuple[str, ...]
    progress: Floats  # (rollouts, kept)
    gripper_pos: Floats  # (rollouts, kept, 3)
    object_pos: Floats  # (rollouts, kept, 3)
    texts: tuple[tuple[str, ...], ...]  # phrasings of the task
    counterfactuals: tuple[tuple[tuple[int, str, int], ...], ...]  # (frame, text, level at that frame)
    perturbed_clips: tuple[PerturbedClip | None, ...]
    training: Ints  # the rollouts to train on; the rest are for validation

    @cached_property
    def levels(self) -> Ints:
        """Return the level of every kept frame."""
        return levels_of(self.progress)

    @cached_property
    def by_level(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task in which some later frame has a level."""
        present = ((row, np.unique(self.levels[row, MIN_CLIP_FRAMES - 1 :])) for row in self.training.tolist())
        return _grouped(((self.tasks[row], int(level)), row) for row, levels in present for level in levels)

    @cached_property
    def by_end(self) -> dict[tuple[str, int], list[int]]:
        """Return the training rollouts of each task that end at a level."""
        return _grouped(((self.tasks[row], int(self.levels[row, -1])), row) for row in self.training.tolist())

    @cached_property
    def by_task(self) -> dict[str, list[int]]:
        """Return the training rollouts of each task."""
        return _grouped((self.tasks[row], row) for row in self.training.tolist())

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Return the training tasks."""
        return tuple(self.by_task)


def without_texts(table: RolloutTable, held_out: set[str]) -> RolloutTable:
    """Return the table without the counterfactuals and perturbed clips that have a held-out text."""
    counterfactuals = tuple(tuple(row for row in rows if row[1] not in held_out) for rows in table.counterfactuals)
    clips = tuple(None if clip is None or clip.text in held_out else clip for clip in table.perturbed_clips)
    return replace(table, counterfactuals=counterfactuals, perturbed_clips=clips)


def levels_of(progress: Floats) -> Ints:
    """Return the level of every progress, 0 where it is nan."""
    level = 1 + sum((progress >= start).astype(np.int64) for start in LEVEL_STARTS)
    return np.where(np.isnan(progress), 0, level)


def _grouped(pairs: Iterable[tuple[Key, int]]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for key, row in pairs:
        found.setdefault(key, []).append(row)
    return found
