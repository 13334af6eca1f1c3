"""Clips from datasets of any format: some frames of each episode, and which tasks and episodes are kept for judging."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, level_of_progress
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.core.terminal_text import one_line
from rewardlab.runner.dispatch import map_items
from rewardlab.training.objective_training.clips import TEST, TRAIN, VALIDATION, ClipFact, ClipTable, write_shard
from rewardlab.training.objective_training.plan import ObjectivePlan

_SHARD = 64  # clips
_JUDGED = (0.2, 0.4)  # of the clips of a seen task, below the first are for validation, below the second for the test


def dataset_shards(plan: ObjectivePlan) -> list[Path]:
    """Decode the clips of every dataset that are not there yet, and return the shards."""
    from rewardlab.data import open_dataset

    contents = {name: open_dataset(name) for name in plan.data}
    for name, found in contents.items():
        if found.problems:
            note = f"{name}: {len(found.problems)} problems, left out; `rewardlab check {name}` lists them"
            print(one_line(note), file=sys.stderr)
    episodes = [episode for found in contents.values() for episode in found.episodes]
    tasks = sorted({task_of(episode) for episode in episodes})
    if len(tasks) < 2:
        raise DataError(
            f"objectives contrast tasks, and {', '.join(plan.data)} holds {len(tasks)}; name data with two or more"
        )
    drawn = sorted(tasks, key=lambda task: float(rng_for(plan.seed, "unseen", task).random()))
    unseen = frozenset(drawn[: max(1, round(plan.holdout * len(tasks)))])
    folder = plan.out / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    some = [episodes[start : start + _SHARD] for start in range(0, len(episodes), _SHARD)]
    items = [(part, folder / f"{number:05d}.npz") for number, part in enumerate(some)]
    missing = [item for item in items if not item[1].exists()]
    for _ in map_items(partial(_decode, plan, unseen), missing, plan.workers):
        pass
    return [path for _, path in items]


def task_of(episode: Episode) -> str:
    """Return the task of an episode: what its origin says, else its instruction."""
    return episode.origin.task or episode.instruction


def _decode(plan: ObjectivePlan, unseen: frozenset[str], item: tuple[Sequence[Episode], Path]) -> None:
    episodes, path = item
    clips = [_clip(plan, unseen, episode) for episode in episodes]
    facts, progress, pixels = zip(*clips)
    write_shard(path, ClipTable(facts, np.stack(progress), np.stack(pixels)))


def _clip(
    plan: ObjectivePlan, unseen: frozenset[str], episode: Episode
) -> tuple[ClipFact, NDArray[np.float64], Frames]:
    count = len(episode.clip)
    frames = np.linspace(0, count - 1, plan.frames).round().astype(np.int64)
    shown = replace(episode.clip, order=episode.clip.order[frames], positions=episode.clip.positions[frames])
    known = episode.truth.progress
    progress = np.array(known)[frames] if known is not None else np.full(plan.frames, np.nan)
    return _fact(plan, unseen, episode), progress.astype(np.float64), _squared(shown.read(), plan.size)


def _squared(frames: Frames, side: int) -> Frames:
    """Return frames squeezed to a square, so that nothing at their sides is cut off."""
    import cv2

    return np.stack([cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in frames])


def _fact(plan: ObjectivePlan, unseen: frozenset[str], episode: Episode) -> ClipFact:
    task, truth = task_of(episode), episode.truth
    level = truth.level or (level_of_progress(truth.progress[-1]) if truth.progress else 0)
    success = truth.success if truth.success is not None else (level == 5 if level else None)
    lot = float(rng_for(plan.seed, "part", episode.id).random())
    part = TEST if task in unseen else VALIDATION if lot < _JUDGED[0] else TEST if lot < _JUDGED[1] else TRAIN
    many = task in plan.multi_step
    won = -1 if success is None else int(success)
    words = (episode.instruction,)
    return ClipFact(episode.id, task, words, words[0], part, task not in unseen, many, level, won)
