"""The rollout table: labels, positions, instructions and scenes of every rollout, in the order of the frames."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.training.pocket.rendered_clips import RenderedScene
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.objects import OTHER_OBJECTS
from rewardlab.worlds.metaworld.things import THINGS

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
    held_out_texts: tuple[tuple[str, ...], ...]
    counterfactuals: tuple[tuple[tuple[int, str, int], ...], ...]  # (frame, text, level at that frame)
    scenes: Mapping[str, tuple[RenderedScene | None, ...]]  # by kind of rendering; None may not be shown
    training: Ints  # the rollouts to train on
    checks: Ints  # the rollouts for validation

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


def of_fold(table: RolloutTable, unseen: tuple[str, ...]) -> RolloutTable:
    """Return the table as a training may use it that never sees some tasks: no rollout, word or thing of them."""
    unsaid = {text for task in unseen for lists in phrasings()[task].values() for text in lists}
    unsaid |= {OTHER_OBJECTS["coffee-button"][0]} if "coffee-pull" in unseen else set()
    rows = table.training
    return replace(
        table,
        counterfactuals=tuple(tuple(other for other in row if other[1] not in unsaid) for row in table.counterfactuals),
        scenes={
            kind: tuple(s and _known_part(s, unseen, unsaid) for s in found) for kind, found in table.scenes.items()
        },
        training=rows[[table.tasks[row] not in unseen for row in rows]],
    )


def _known_part(scene: RenderedScene, unseen: tuple[str, ...], unsaid: set[str]) -> RenderedScene | None:
    """Return what a training may know of a scene; None where a thing stands in it that only unseen tasks have."""
    if any(set(THINGS[name].tasks) <= set(unseen) for name, _ in scene.things):
        return None
    things = tuple((name, tuple(task for task in asked if task not in unseen)) for name, asked in scene.things)
    clip = None if scene.perturbed is None or scene.perturbed.text in unsaid else scene.perturbed
    return replace(scene, things=things, perturbed=clip)


def levels_of(progress: Floats) -> Ints:
    """Return the level of every progress, 0 where it is nan."""
    level = 1 + sum((progress >= start).astype(np.int64) for start in LEVEL_STARTS)
    return np.where(np.isnan(progress), 0, level)


def _grouped(pairs: Iterable[tuple[Key, int]]) -> dict[Key, list[int]]:
    found: dict[Key, list[int]] = {}
    for key, row in pairs:
        found.setdefault(key, []).append(row)
    return found
