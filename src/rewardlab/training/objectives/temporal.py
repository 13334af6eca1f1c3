"""Objectives that learn from the order of frames in demonstrations: TCN, R3M, VIP and LIV."""

import torch
from torch import Tensor

from rewardlab.core.errors import PlanError
from rewardlab.training.objectives.contract import ClipBatch, distance, log_mean_exp, shuffled
from rewardlab.training.objectives.contrastive import align

_NEGATIVES = 3  # other videos to a video
_EPS = 1e-8  # in VIP's logarithm


def tcn(batch: ClipBatch, alignment: float = 1.0) -> Tensor:
    """Time-contrastive loss as in R3M: of three frames in order the middle one is nearer to either end than these are
    to each other or to other videos; no word is in it, so that `alignment` adds LIV's InfoNCE (0 leaves it out)."""
    clips = batch.successes
    if not len(clips) or clips.frames < 3:
        return batch.no_loss
    return _time_contrast(clips) + (alignment * align(clips, 1.0) if alignment else 0.0)


def r3m(batch: ClipBatch, temperature: float = 0.1, language: float = 1.0) -> Tensor:
    """R3M: the time-contrastive loss, and a later frame completes the instruction more than the frame before it and
    than those of other videos; the score, an MLP as published, is the similarity over a temperature."""
    clips = batch.successes
    if not len(clips) or clips.frames < 3:
        return batch.no_loss
    return _time_contrast(clips) + language * _language_contrast(clips, temperature)


def _three_frames(clips: ClipBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Draw three frames of each clip in the order of time."""
    first = (clips.draws[:, 0] * (clips.frames - 2)).long()
    middle = first + 1 + (clips.draws[:, 1] * (clips.frames - first - 2)).long()
    last = middle + 1 + (clips.draws[:, 2] * (clips.frames - middle - 1)).long()
    return first, middle, last


def _at(clips: ClipBatch, place: Tensor) -> Tensor:
    return clips.images[torch.arange(len(clips), device=place.device), place]


def _time_contrast(clips: ClipBatch) -> Tensor:
    e0, e1, e2 = (_at(clips, place) for place in _three_frames(clips))
    s01, s02, s12 = -distance(e0, e1), -distance(e0, e2), -distance(e1, e2)
    others = shuffled(len(clips), _NEGATIVES)
    last = torch.stack([s12, s02, *(-distance(e2, e2[order]) for order in others)], 1)
    first = torch.stack([s01, s02, *(-distance(e0, e0[order]) for order in others)], 1)
    return -(last.log_softmax(1)[:, 0] + first.log_softmax(1)[:, 0]).mean() / 2


def _language_contrast(clips: ClipBatch, temperature: float) -> Tensor:
    def score(images: Tensor) -> Tensor:
        return (images * clips.texts).sum(-1) / temperature

    start, goal = clips.images[:, 0], clips.images[:, -1]
    s0, s1, s2 = (_at(clips, place) for place in _three_frames(clips))
    losses = []
    for later, before in ((goal, start), (s1, s0), (s2, s1)):
        others = []
        for order in shuffled(len(clips), _NEGATIVES):
            same = clips.task == clips.task[order]
            others.append(score(later[order]).masked_fill(same, -torch.inf))
        losses.append(-torch.stack([score(later), score(before), *others], 1).log_softmax(1)[:, 0].mean())
    return torch.stack(losses).mean()


def vip(batch: ClipBatch, goal: str = "text", gamma: float = 0.98) -> Tensor:
    """VIP: the dual of goal-conditioned value learning on demonstrations, the value being minus the distance to the
    goal; `image` takes the last frame for the goal, as published, `text` the instruction."""
    if goal not in ("text", "image"):
        raise PlanError(f"the goal of vip is text or image, got {goal!r}")
    clips = batch.successes
    if not len(clips):
        return batch.no_loss
    aim = clips.texts if goal == "text" else clips.images[:, -1]
    return _dual(-distance(clips.images, aim[:, None]), gamma)


def liv(batch: ClipBatch, language: float = 1.0, gamma: float = 0.98, negatives: int = 3) -> Tensor:
    """LIV: InfoNCE of last frames and instructions without a temperature, and VIP to the last frame and, weighted by
    `language`, to the instruction; the value is the cosine over 1 - gamma."""
    clips = batch.successes
    if not len(clips):
        return batch.no_loss
    total = align(clips, 1.0) + _cosine_dual(clips, clips.images[:, -1], gamma, negatives)
    return total + (language * _cosine_dual(clips, clips.texts, gamma, negatives) if language else 0.0)


def _cosine_dual(clips: ClipBatch, goals: Tensor, gamma: float, negatives: int) -> Tensor:
    values = torch.einsum("btd,bd->bt", clips.images, goals) / (1 - gamma)
    loss = _dual(values, gamma)
    orders = shuffled(len(clips), negatives)
    if not orders:
        return loss
    other = [torch.einsum("btd,bd->bt", clips.images[order], goals) / (1 - gamma) for order in orders]
    return loss + _bellman(torch.cat(other), gamma, at_goal=False)


def _dual(values: Tensor, gamma: float) -> Tensor:
    """Return (1 - gamma) * mean(-V(o_0)) + log(eps + mean(exp(-(r + gamma * V(o') - V(o)))))."""
    return (1 - gamma) * -values[:, 0].mean() + _bellman(values, gamma, at_goal=True)


def _bellman(values: Tensor, gamma: float, *, at_goal: bool) -> Tensor:
    """Return the logarithm over all steps, the last of which stays where it is; only at the goal the reward is 0."""
    following = torch.cat([values[:, 1:], values[:, -1:]], 1)
    reward = torch.full_like(values, -1.0)
    if at_goal:
        reward[:, -1] = 0.0
    return log_mean_exp(-(reward + gamma * following - values), _EPS)
