"""Clips from datasets of any format: some frames of each episode, and which tasks and episodes are kept for judging."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    folder = plan.out / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    some = [episodes[start : start + _SHARD] for start in range(0, len(episodes), _SHARD)]
    items = [(part, folder / f"{number:05d}.npz") for number, part in enumerate(some)]
    missing = [item for item in items if not item[1].exists()]
    if missing:
        successes = Successes.among(episodes)
        unseen = _unseen(plan, sorted({successes.place(episode)[1] for episode in episodes}))
        work = partial(_decode, plan, successes, unseen)
        for _ in map_items(work, missing, plan.workers):
            pass
    return [path for _, path in items]


def _unseen(plan: ObjectivePlan, tasks: Sequence[str]) -> frozenset[str]:
    """Draw the tasks that are held out."""
    if len(tasks) < 2:
        raise DataError(
            f"objectives contrast tasks, and {', '.join(plan.data)} holds {len(tasks)}; name data with two or more"
        )
    drawn = sorted(tasks, key=lambda task: float(rng_for(plan.seed, "unseen", task).random()))
    return frozenset(drawn[: max(1, round(plan.holdout * len(tasks)))])


@dataclass(frozen=True)
class Successes:
    """What successes show: a row that shows the same under another instruction belongs to the success.

    So it is with counterfactual rows: the clip is no failure of its task, and is learned from where the success is.
    """

    by_clip: dict[tuple[str, bytes], tuple[str, str]]  # the video and the frames of it: id and task of the success

    @classmethod
    def among(cls, episodes: Sequence[Episode]) -> "Successes":
        """Find them."""
        won = [episode for episode in episodes if _level_and_success(episode)[1]]
        return cls({_shown(episode): (episode.id, task_of(episode)) for episode in reversed(won)})

    def place(self, episode: Episode) -> tuple[str, str]:
        """Return the id and the task that an episode goes by."""
        own = (episode.id, task_of(episode))
        return self.by_clip[_shown(episode)] if self.is_repeated_by(episode) else own

    def is_repeated_by(self, episode: Episode) -> bool:
        """Tell whether an episode that is no success shows what one shows."""
        return not _level_and_success(episode)[1] and _shown(episode) in self.by_clip


def _shown(episode: Episode) -> tuple[str, bytes]:
    """Return the video of an episode, and which frames of it."""
    return episode.clip.source.digest, episode.clip.order.tobytes()


def task_of(episode: Episode) -> str:
    """Return the task of an episode by itself: what its origin says, else its instruction."""
    return episode.origin.task or episode.instruction


def _decode(
    plan: ObjectivePlan, successes: Successes, unseen: frozenset[str], item: tuple[Sequence[Episode], Path]
) -> None:
    episodes, path = item
    clips = [_clip(plan, successes, unseen, episode) for episode in episodes]
    facts, progress, pixels = zip(*clips)
    write_shard(path, ClipTable(facts, np.stack(progress), np.stack(pixels)))


def _clip(
    plan: ObjectivePlan, successes: Successes, unseen: frozenset[str], episode: Episode
) -> tuple[ClipFact, NDArray[np.float64], Frames]:
    count = len(episode.clip)
    frames = np.linspace(0, count - 1, plan.frames).round().astype(np.int64)
    shown = replace(episode.clip, order=episode.clip.order[frames], positions=episode.clip.positions[frames])
    known = episode.truth.progress
    progress = np.array(known)[frames] if known is not None else np.full(plan.frames, np.nan)
    return _fact(plan, successes, unseen, episode), progress.astype(np.float64), _squared(shown.read(), plan.size)


def _squared(frames: Frames, side: int) -> Frames:
    """Return frames squeezed to a square, so that nothing at their sides is cut off."""
    import cv2

    return np.stack([cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in frames])


def _level_and_success(episode: Episode) -> tuple[int, bool | None]:
    """Return the level, 0 where it is unknown, and whether the episode is a success."""
    truth = episode.truth
    level = truth.level or (level_of_progress(truth.progress[-1]) if truth.progress else 0)
    return level, truth.success if truth.success is not None else (level == 5 if level else None)


def _fact(plan: ObjectivePlan, successes: Successes, unseen: frozenset[str], episode: Episode) -> ClipFact:
    (name, task), (level, success) = successes.place(episode), _level_and_success(episode)
    lot = float(rng_for(plan.seed, "part", name).random())
    part = TEST if task in unseen else VALIDATION if lot < _JUDGED[0] else TEST if lot < _JUDGED[1] else TRAIN
    many = task in plan.multi_step
    won = -1 if success is None else int(success)
    words = (episode.instruction,)
    repeats = successes.is_repeated_by(episode)
    return ClipFact(episode.id, task, words, words[0], part, task not in unseen, many, level, won, repeats)
