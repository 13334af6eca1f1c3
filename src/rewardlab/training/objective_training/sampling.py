"""The sampler: which clips a step shows, in which look and words; the same for every objective with the same seed."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.training.objective_training.clips import ClipTable, levels_of
from rewardlab.training.objective_training.features import InputStore
from rewardlab.training.objective_training.trainable_pair import TrainablePair
from rewardlab.training.objectives.contract import DRAWS, ClipBatch

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sampler:
    """The training clips of each task, successes and others apart."""

    table: ClipTable
    store: InputStore
    by_task: tuple[tuple[Ints, Ints], ...]  # rows of others, rows of successes
    levels: Ints
    done: NDArray[np.bool_]  # which clips show their task done
    device: str

    def batch(self, pair: TrainablePair, seed: int, step: int, clips: int) -> ClipBatch:
        """Return the embedded batch of a step: every task as often as any other, successes as often as not."""
        rng = rng_for(seed, "objective batch", step)
        rows = np.array([self._draw(rng) for _ in range(clips)], np.int64)
        looks = rng.integers(0, len(self.store.train), clips)
        words = [pick(self.table.clips[row].texts, rng) for row in rows.tolist()]
        draws = torch.from_numpy(rng.random((clips, DRAWS), np.float32)).to(self.device)
        where = self.store.train.device
        inputs = self.store.train[torch.from_numpy(looks).to(where), torch.from_numpy(rows).to(where)].to(self.device)
        texts = pair.texts(self.store.text_rows(words).to(self.device))
        return ClipBatch(embed_clips(pair, inputs), texts, *self._truth(rows), draws)

    def _draw(self, rng: np.random.Generator) -> int:
        others, won = self.by_task[int(rng.integers(len(self.by_task)))]
        chosen = won if len(won) and (rng.random() < 0.5 or not len(others)) else others
        return int(chosen[int(rng.integers(len(chosen)))])

    def _truth(self, rows: Ints) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        facts = self.table.facts
        columns = (
            facts.progress[rows].astype(np.float32),
            self.levels[rows],
            facts.success[rows] == 1,
            facts.task[rows],
            self.done[rows],
        )
        progress, level, success, task, done = (torch.from_numpy(column).to(self.device) for column in columns)
        return progress, level, success, task, done


def make_sampler(train: ClipTable, store: InputStore, device: str) -> Sampler:
    """Return the sampler of some training clips; DataError where they cannot be contrasted."""
    facts = train.facts
    if len(train.tasks) < 2:
        raise DataError(
            f"objectives contrast tasks, and the training clips show {len(train.tasks)} ({', '.join(train.tasks)}); "
            "add another task, or change --fold, --holdout or --tasks"
        )
    for value, word in ((1, "success"), (0, "failure")):
        if not (facts.success == value).any():
            raise DataError(
                f"none of the {len(train.clips)} training clips is known to be a {word}, and objectives and their "
                "judging need both; add some, or label them"
            )
    groups = tuple(
        (
            np.flatnonzero((facts.task == task) & (facts.success != 1)),
            np.flatnonzero((facts.task == task) & (facts.success == 1)),
        )
        for task in np.unique(facts.task)
    )
    done = (facts.success == 1) | np.array([clip.repeats_success for clip in train.clips], bool)
    return Sampler(train, store, groups, levels_of(train), done, device)


def embed_clips(pair: TrainablePair, inputs: Tensor) -> Tensor:
    """Return the unit vectors of the frames of clips, (clips, frames, width)."""
    return pair.images(inputs.flatten(0, 1)).unflatten(0, tuple(inputs.shape[:2]))
