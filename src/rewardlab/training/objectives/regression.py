"""Objectives with labels of progress or level: regression, bins, classes, ordinal thresholds, preferences."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from rewardlab.training.objectives.contract import ClipBatch, masked_mean, other_task

_LEVELS = 5


def rewind(batch: ClipBatch, probability: float = 0.8) -> Tensor:
    """ReWiND: mean squared error to t / T on successes, of which some run backwards from a random frame on, and to 0
    under the instruction of another task."""
    clips = batch.successes
    if not len(clips):
        return batch.no_loss
    order = _rewound(clips, probability)
    target = order / max(clips.frames - 1, 1)
    matched = (clips.value.gather(1, order) - target).square()
    text, known = _other_instruction(clips)
    mismatched = ((1 + torch.einsum("btd,bd->bt", clips.images, clips.texts[text])) / 2).square().mean(1)
    return matched.mean() + masked_mean(mismatched, known)


def _rewound(clips: ClipBatch, probability: float) -> Tensor:
    """Return which frame each place of a clip shows: up to a turn they run forwards, then back."""
    place = torch.arange(clips.frames, device=clips.draws.device).expand(len(clips), -1)
    turn = (clips.draws[:, 1:2] * (clips.frames - 1)).long() + 1
    turn = torch.where(clips.draws[:, :1] < probability, turn, clips.frames)
    return torch.where(place <= turn, place, (2 * turn - place).clamp(min=0))


def _other_instruction(clips: ClipBatch) -> tuple[Tensor, Tensor]:
    """Return for each clip one of another task, drawn at random, and whether there is any."""
    other = other_task(clips)
    count = other.sum(1)
    wanted = (clips.draws[:, 2] * count).long()
    return ((other.cumsum(1) - 1 == wanted[:, None]) & other).long().argmax(1), count > 0


def progress_bins(batch: ClipBatch, width: float = 0.1, bins: int = 10) -> Tensor:
    """Cross-entropy over bins of true progress; a bin's logit falls with its distance from the value, in widths."""
    known = torch.isfinite(batch.progress)
    target = (batch.progress.nan_to_num(0.0) * bins).long().clamp(0, bins - 1)
    centres = (torch.arange(bins, device=target.device) + 0.5) / bins
    return masked_mean(_kernel_entropy(batch.value, centres, width, target), known)


def classification(batch: ClipBatch, width: float = 0.2) -> Tensor:
    """Cross-entropy over the five levels; the logit of a level falls with its distance from the value, in widths."""
    centres = torch.arange(_LEVELS, device=batch.level.device) / (_LEVELS - 1)
    entropy = _kernel_entropy(batch.value, centres, width, (batch.level - 1).clamp(min=0))
    return masked_mean(entropy, batch.level > 0)


def _kernel_entropy(value: Tensor, centres: Tensor, width: float, target: Tensor) -> Tensor:
    logits = -((value[..., None] - centres) / width).square() / 2
    return -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]


def ordinal(batch: ClipBatch, temperature: float = 0.1) -> Tensor:
    """Cumulative link: binary cross-entropy of 'the level is above k' for k from 1 to 4, at even thresholds."""
    steps = torch.arange(1, _LEVELS, device=batch.level.device)
    thresholds = (steps - 0.5) / (_LEVELS - 1)
    logits = (batch.value[..., None] - thresholds) / temperature
    above = (batch.level[..., None] > steps).to(logits.dtype)
    losses = binary_cross_entropy_with_logits(logits, above, reduction="none").mean(-1)
    return masked_mean(losses, batch.level > 0)


def bradley_terry(batch: ClipBatch, temperature: float = 0.1, least_gap: float = 0.1) -> Tensor:
    """Bradley-Terry: the frame with more true progress is preferred, within a clip and between the ends of two clips of
    a task; pairs closer than `least_gap` are no preference."""
    within = _preferences(batch.similarity, batch.progress, temperature, least_gap)
    ends = batch.texts @ batch.images[:, -1].T  # each end under the instruction that asks
    gap = batch.progress[:, -1][:, None] - batch.progress[:, -1][None, :]
    better = (gap >= least_gap) & ~other_task(batch)
    across = -logsigmoid((ends.diagonal()[:, None] - ends) / temperature)
    return within + masked_mean(across, better)


def _preferences(score: Tensor, progress: Tensor, temperature: float, least_gap: float) -> Tensor:
    gap = progress[:, :, None] - progress[:, None, :]
    losses = -logsigmoid((score[:, :, None] - score[:, None, :]) / temperature)
    return masked_mean(losses, gap >= least_gap)  # nan is never so large
