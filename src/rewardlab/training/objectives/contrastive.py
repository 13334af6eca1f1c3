"""Objectives that contrast clips with the instructions of other tasks: InfoNCE, a triplet margin, VLC's ranking."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, relu

from rewardlab.training.objectives.contract import ClipBatch, masked_mean, other_task


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
    if semi_hard:
        ends, negative = _semi_hard(ends, positive, negative)
    hinge = relu(margin + ends - positive)
    per_clip = torch.where(negative, hinge, 0.0).sum(1) / negative.sum(1).clamp(min=1)
    across = masked_mean(per_clip, won & negative.any(1))
    return across + masked_mean(_in_time(batch, margin), won)


def _semi_hard(ends: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Choose of each row the nearest negative that is still farther than the positive, else the farthest."""
    farther = negative & (ends < positive)
    nearest = torch.where(farther, ends, -torch.inf).argmax(1, keepdim=True)
    farthest = torch.where(negative, ends, torch.inf).argmin(1, keepdim=True)
    chosen = torch.where(farther.any(1, keepdim=True), nearest, farthest)
    return ends.gather(1, chosen), negative.any(1, keepdim=True)


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
