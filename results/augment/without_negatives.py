"""Learning objectives with and without the factory's negatives; all that differs is which clips of a batch they see.

Of a batch of 128 clips about half are successes. What learns without negatives sees these, what learns with them sees
every second clip of any kind: 64 clips either way.
"""

import torch
from torch import Tensor
from torch.nn.functional import relu

from rewardlab.training.objectives.contract import ClipBatch, masked_mean, other_task
from rewardlab.training.objectives.losses import classification, rewind, triplet

_MARGIN = 0.2


def triplet_without(batch: ClipBatch) -> Tensor:
    """Triplet loss of the successes: earlier frames and other tasks are its negatives."""
    return triplet(batch.successes, _MARGIN)


def triplet_with(batch: ClipBatch) -> Tensor:
    """The same, and each pair of frame and words that fails is farther apart than the successes of its task."""
    some = half_of(batch)
    ends = some.similarity[:, -1]
    pairs = some.success[:, None] & ~some.success[None, :] & ~other_task(some)
    hinge = relu(_MARGIN + ends[None, :] - ends[:, None])
    return triplet(some.successes, _MARGIN) + masked_mean(hinge, pairs)


def triplet_by_video(batch: ClipBatch) -> Tensor:
    """The catalog's triplet: a row that fails is a failure under every instruction, also where only its words are."""
    return triplet(half_of(batch), _MARGIN)


def levels_without(batch: ClipBatch) -> Tensor:
    """Cross-entropy over levels: a success is a 5, and a 1 under the instruction of another task."""
    return _levels(batch.successes)


def levels_with(batch: ClipBatch) -> Tensor:
    """The same, and the rows that the factory made at their levels."""
    return _levels(half_of(batch))


def rewind_without(batch: ClipBatch) -> Tensor:
    """ReWiND on successes: how far a clip has run, clips run backwards, and 0 under other instructions."""
    return rewind(batch.successes)


def rewind_with(batch: ClipBatch) -> Tensor:
    """The same, and the rows that the factory made at their levels."""
    some = half_of(batch)
    return rewind(some.successes) + classification(some)


def half_of(batch: ClipBatch) -> ClipBatch:
    """Return every second clip of a batch."""
    parts = (batch.images, batch.texts, batch.progress, batch.level, batch.success, batch.task, batch.draws)
    return ClipBatch(*(part[::2] for part in parts))


def _levels(batch: ClipBatch) -> Tensor:
    return classification(batch) + classification(_mismatched(batch))


def _mismatched(batch: ClipBatch) -> ClipBatch:
    """Return the clips under the instruction of the next clip of another task, where all is at level 1."""
    other = other_task(batch)
    place = torch.arange(len(batch), device=batch.task.device)
    ahead = (place[None, :] - place[:, None]) % max(len(batch), 1)
    chosen = torch.where(other, ahead, len(batch)).argmin(1) if len(batch) else place
    level = torch.where(other.any(1), 1, 0)[:, None].expand(-1, batch.frames) if len(batch) else batch.level
    last = torch.arange(batch.frames, device=batch.task.device) == batch.frames - 1
    level = torch.where(last[None, :], level, 0)
    return ClipBatch(batch.images, batch.texts[chosen], batch.progress, level, batch.success, batch.task, batch.draws)
