"""The twelve objectives, one function each, and the catalog with `name_objective`.

Code outside the package is named as `package.module:name`; it needs torch (extra `train`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid, relu

from rewardlab.core.catalog import Catalog, find, load_object
from rewardlab.core.errors import PlanError
from rewardlab.models.contract import Argument, parse_model_string, read_arguments
from rewardlab.training.objectives.contract import (
    DEMONSTRATIONS,
    LEVEL,
    PROGRESS,
    SUCCESS,
    ClipBatch,
    Loss,
    Objective,
    distance,
    masked_mean,
    other_task,
    shuffled,
)


def infonce(batch: ClipBatch, temperature: float = 0.07) -> Tensor:
    """Symmetric InfoNCE of the last frames of successes and their instructions; the same task is never a negative."""
    return align(batch.successes, temperature)


def align(clips: ClipBatch, temperature: float, more: Tensor | None = None) -> Tensor:
    """Return the symmetric cross-entropy of last frames and instructions; `more` are frames that match none."""
    if not len(clips):
        return clips.no_loss
    ends, own = clips.images[:, -1], torch.arange(len(clips), device=clips.task.device)
    logits = clips.texts @ ends.T / temperature
    allowed = other_task(clips) | torch.eye(len(clips), dtype=torch.bool, device=own.device)
    logits = logits.masked_fill(~allowed, -torch.inf)
    by_text = logits if more is None else torch.cat([logits, clips.texts @ more.T / temperature], dim=1)
    return (cross_entropy(by_text, own) + cross_entropy(logits.T, own)) / 2


def triplet(batch: ClipBatch, margin: float = 0.2, semi_hard: bool = False) -> Tensor:
    """Hinge with a margin: an instruction is nearer to a later frame than to an earlier one, and to its success than
    to failures and to clips of other tasks; of these all count, or the one semi-hard (FaceNet)."""
    won = batch.success
    positive = batch.similarity[:, -1:]
    ends = batch.texts @ batch.images[:, -1].T
    negative = other_task(batch) | ~batch.done[None, :]
    if semi_hard:  # of each row the nearest negative that is still farther than the positive, else the farthest
        farther = negative & (ends < positive)
        nearest = torch.where(farther, ends, -torch.inf).argmax(1, keepdim=True)
        farthest = torch.where(negative, ends, torch.inf).argmin(1, keepdim=True)
        chosen = torch.where(farther.any(1, keepdim=True), nearest, farthest)
        ends, negative = ends.gather(1, chosen), negative.any(1, keepdim=True)
    hinge = relu(margin + ends - positive)
    per_clip = torch.where(negative, hinge, 0.0).sum(1) / negative.sum(1).clamp(min=1)
    across = masked_mean(per_clip, won & negative.any(1))
    return across + masked_mean(_in_time(batch, margin), won)


def _in_time(batch: ClipBatch, margin: float) -> Tensor:
    """Return the hinge of a later and an earlier frame of each clip, drawn at random; 0 for a single frame."""
    if batch.frames < 2:
        return torch.zeros_like(batch.similarity[:, 0])
    later = 1 + (batch.draws[:, 0] * (batch.frames - 1)).long()
    earlier = (batch.draws[:, 1] * later).long()
    before, after = (batch.similarity.gather(1, place[:, None])[:, 0] for place in (earlier, later))
    return relu(margin + before - after)


def vlc(batch: ClipBatch, temperature: float = 0.07, weight: float = 33.0) -> Tensor:
    """Video-Language Critic: symmetric cross-entropy of last frames and instructions, failures as negatives only, and
    a ranking loss wherever the similarity of a success falls from one frame to the next."""
    clips = batch.successes
    contrast = align(clips, temperature, batch.images[~batch.done, -1])
    falls = relu(clips.similarity[:, :-1] - clips.similarity[:, 1:])
    return contrast + weight * masked_mean(falls, torch.ones_like(falls, dtype=torch.bool))


# Objectives with labels of progress or level: regression, bins, classes, ordinal thresholds, preferences.

_LEVELS = 5


def rewind(batch: ClipBatch, probability: float = 0.8) -> Tensor:
    """ReWiND: mean squared error to t / T on successes, of which some run backwards from a random frame on, and to 0
    under the instruction of another task."""
    clips = batch.successes
    if not len(clips):
        return batch.no_loss
    # Which frame each place of a clip shows: up to a turn they run forwards, then back.
    place = torch.arange(clips.frames, device=clips.draws.device).expand(len(clips), -1)
    turn = (clips.draws[:, 1:2] * (clips.frames - 1)).long() + 1
    turn = torch.where(clips.draws[:, :1] < probability, turn, clips.frames)
    order = torch.where(place <= turn, place, (2 * turn - place).clamp(min=0))
    target = order / max(clips.frames - 1, 1)
    matched = (clips.value.gather(1, order) - target).square()
    other = other_task(clips)
    count = other.sum(1)
    drawn = (clips.draws[:, 2] * count).long()  # which of the clips of other tasks lends its instruction
    text = ((other.cumsum(1) - 1 == drawn[:, None]) & other).long().argmax(1)
    mismatched = ((1 + torch.einsum("btd,bd->bt", clips.images, clips.texts[text])) / 2).square().mean(1)
    return matched.mean() + masked_mean(mismatched, count > 0)


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
    score, progress = batch.similarity, batch.progress
    losses = -logsigmoid((score[:, :, None] - score[:, None, :]) / temperature)
    within = masked_mean(losses, progress[:, :, None] - progress[:, None, :] >= least_gap)  # nan is never so large
    ends = batch.texts @ batch.images[:, -1].T  # each end under the instruction that asks
    gap = progress[:, -1][:, None] - progress[:, -1][None, :]
    better = (gap >= least_gap) & ~other_task(batch)
    across = -logsigmoid((ends.diagonal()[:, None] - ends) / temperature)
    return within + masked_mean(across, better)


# Objectives that learn from the order of frames in demonstrations: TCN, R3M, VIP and LIV.

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
    errors = -(reward + gamma * following - values)
    mean = torch.logsumexp(errors.flatten(), 0) - math.log(errors.numel())  # this form does not overflow
    return torch.logaddexp(mean, torch.full_like(mean, math.log(_EPS)))


_OWN: dict[str, Objective] = {
    entry.name: entry
    for entry in (
        Objective(triplet, SUCCESS, "margin", (0.2, 0.5), "Schroff et al. 2015"),
        Objective(tcn, DEMONSTRATIONS, "alignment", (0.0, 1.0), "Sermanet et al. 2018, as in R3M's code"),
        Objective(vip, DEMONSTRATIONS, "goal", ("image", "text"), "Ma et al. 2023a"),
        Objective(liv, DEMONSTRATIONS, "language", (0.0, 1.0), "Ma et al. 2023b"),
        Objective(r3m, DEMONSTRATIONS, "temperature", (0.1, 1.0), "Nair et al. 2022"),
        Objective(vlc, SUCCESS, "temperature", (0.07, 0.01), "Alakuijala et al. 2024"),
        Objective(infonce, DEMONSTRATIONS, "temperature", (0.07, 0.2), "van den Oord et al. 2018; Radford et al. 2021"),
        Objective(rewind, DEMONSTRATIONS, "probability", (0.8, 0.4), "Zhang et al. 2025"),
        Objective(progress_bins, PROGRESS, "width", (0.1, 0.05)),
        Objective(bradley_terry, PROGRESS, "temperature", (0.1, 0.05), "Christiano et al. 2017; Wang et al. 2024"),
        Objective(classification, LEVEL, "width", (0.2, 0.1), "RoboReward's five levels"),
        Objective(ordinal, LEVEL, "temperature", (0.1, 0.05), "McCullagh 1980"),
    )
}


@dataclass(frozen=True)
class NamedObjective:
    """An objective as it was asked for: the text, the entry, its options, and a hash of code outside the package."""

    text: str
    entry: Objective
    options: Mapping[str, Argument]
    code: str = ""

    @property
    def loss(self) -> Loss:
        """Return the loss with its options, a function of a batch alone."""
        return partial(self.entry.loss, **self.options)

    def tuned(self, value: Argument) -> "NamedObjective":
        """Return the objective with this value of the option that is tuned, unless the text states one."""
        return replace(self, options={self.entry.option: value, **self.options})


def name_objective(text: str) -> NamedObjective:
    """Return the objective that `NAME?option=value` or `package.module:name?option=value` means."""
    string = parse_model_string(text)
    path = f"{string.name}:{string.argument}" if string.argument else ""
    entry = _load(path) if path else find(OBJECTIVES, string.name, "objective")
    options = read_arguments(text, partial(entry.loss, None), string.options)
    return NamedObjective(text, entry, options, load_object(path)[1] if path else "")


def _load(path: str) -> Objective:
    found, _ = load_object(path)
    if not isinstance(found, Objective) and not callable(found):
        raise PlanError(f"{path} must be a function of a batch of clips that returns a loss, got {found!r}")
    return found if isinstance(found, Objective) else Objective(found)


OBJECTIVES = Catalog(_OWN, "objectives", lambda _, path: _load(path))
