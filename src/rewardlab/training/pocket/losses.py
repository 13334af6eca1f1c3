"""The losses: levels and progress where they are known, and displacements as an auxiliary target."""

import torch
from torch import Tensor, nn

from rewardlab.training.pocket.network import LEVELS


def level_and_progress_loss(progress: Tensor, levels: Tensor, true_progress: Tensor, true_level: Tensor) -> Tensor:
    """Return cross-entropy and distance of level and success, mostly at the end, and cross-entropy of progress."""
    known = (true_level > 0).float()
    index = torch.arange(known.shape[1], device=known.device)
    last = (index == (known * index).argmax(1, keepdim=True)).float() * known
    weight = 0.5 * known / known.sum(1, keepdim=True).clamp(min=1) + 0.5 * last
    target = (true_level - 1).clamp(min=0)
    entropy = nn.functional.cross_entropy(levels.transpose(1, 2), target, reduction="none", label_smoothing=0.02)
    mean = (levels.softmax(-1) * torch.arange(1.0, 6.0, device=levels.device)).sum(-1)
    distance = (mean - true_level).abs()
    success = nn.functional.binary_cross_entropy_with_logits(
        levels[..., -1] - levels[..., :-1].logsumexp(-1), (true_level == LEVELS).float(), reduction="none"
    )
    labelled = torch.isfinite(true_progress).float()
    soft = nn.functional.binary_cross_entropy_with_logits(progress, true_progress.nan_to_num(0.0), reduction="none")
    progress_loss = (soft * labelled).sum() / labelled.sum().clamp(min=1)
    level_loss = ((entropy + 0.3 * distance + 0.3 * success) * weight).sum() / weight.sum().clamp(min=1)
    return level_loss + 0.5 * progress_loss


def displacement_loss(displacements: Tensor, true_displacements: Tensor) -> Tensor:
    """Return the smooth L1 loss of displacements in tenths of a metre, where they are known."""
    labelled = torch.isfinite(true_displacements).float()
    target = true_displacements.nan_to_num(0.0) * 10
    loss = nn.functional.smooth_l1_loss(displacements, target, reduction="none")
    return (loss * labelled).sum() / labelled.sum().clamp(min=1)


def caption_loss(caption: Tensor, true_caption: Tensor) -> Tensor:
    """Return the binary cross-entropy of the words of a caption, where there is one."""
    labelled = torch.isfinite(true_caption).float()
    loss = nn.functional.binary_cross_entropy_with_logits(caption, true_caption.nan_to_num(0.0), reduction="none")
    return (loss * labelled).sum() / labelled.sum().clamp(min=1)


def eyes_loss(predicted: Tensor, features: Tensor) -> Tensor:
    """Return how far predicted image features point away from the pretrained ones."""
    return (1 - nn.functional.cosine_similarity(predicted.float(), features.float(), dim=-1)).mean()
