"""What a learning objective is: a plain function from a batch of embedded clips to a loss.

Every objective trains the same parameters and is read out in the same way, by the cosine of a frame and its
instruction: none has a layer of its own, so that nothing but the loss differs between two trainings.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

SUCCESS, PROGRESS, LEVEL = "success", "progress", "level"  # what an objective may need to know of a clip


@dataclass(frozen=True, eq=False)
class ClipBatch:
    """Clips as an objective sees them: unit vectors of frames and instructions, and what is known of each clip.

    What is random in an objective comes from `draws`, which are the same for every objective.
    """

    images: Tensor  # (clips, frames, width), in the order of time
    texts: Tensor  # (clips, width)
    progress: Tensor  # (clips, frames): true progress from 0 to 1, nan where unknown
    level: Tensor  # (clips, frames): 1 to 5, were the frame the last; 0 where unknown
    success: Tensor  # (clips,): True where the clip is known to end in success
    task: Tensor  # (clips,): the number of its task
    done: Tensor  # (clips,): True where the clip shows its task done, even if it was asked for something else
    draws: Tensor  # (clips, DRAWS): uniform random numbers from 0 to 1

    @cached_property
    def similarity(self) -> Tensor:
        """Return the cosine of each frame and the instruction of its clip, (clips, frames)."""
        return torch.einsum("btd,bd->bt", self.images, self.texts)

    @cached_property
    def value(self) -> Tensor:
        """Return the similarity on the scale of progress, from 0 to 1."""
        return (1 + self.similarity) / 2

    @cached_property
    def successes(self) -> "ClipBatch":
        """Return the clips that end in success, which are the demonstrations of most objectives."""
        kept = self.success
        parts = (self.images, self.texts, self.progress, self.level, self.success, self.task, self.done, self.draws)
        return ClipBatch(*(part[kept] for part in parts))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def frames(self) -> int:
        """Return how many frames a clip has."""
        return int(self.images.shape[1])

    @property
    def no_loss(self) -> Tensor:
        """Return a loss of 0 that leaves every parameter as it is, for a batch that shows nothing to learn from."""
        return 0.0 * (self.images.sum() + self.texts.sum())


DRAWS = 8  # random numbers of a clip
Loss = Callable[..., Tensor]  # of a ClipBatch, and options by name


@dataclass(frozen=True)
class Objective:
    """An objective of the catalog: its loss, what it needs to know, and the option that is tuned with its values."""

    loss: Loss
    needs: str = ""
    option: str = ""
    values: tuple[float | str | bool, ...] = ()
    source: str = "rewardlab"

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return str(self.loss.__name__)

    @property
    def summary(self) -> str:
        """Return what the loss is, in a sentence."""
        return " ".join((self.loss.__doc__ or "").split())


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values that count, 0 where none does."""
    return torch.where(mask, values, torch.zeros_like(values)).sum() / mask.sum().clamp(min=1)


def other_task(batch: ClipBatch) -> Tensor:
    """Return whether two clips have different tasks, (clips, clips)."""
    return batch.task[:, None] != batch.task[None, :]


def log_mean_exp(values: Tensor, eps: float) -> Tensor:
    """Return log(eps + mean(exp(values))), in a form that does not overflow."""
    mean = torch.logsumexp(values.flatten(), 0) - math.log(values.numel())
    return torch.logaddexp(mean, torch.full_like(mean, math.log(eps)))


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the Euclidean distance of vectors; its gradient stays finite where two are the same."""
    return ((a - b).square().sum(-1) + 1e-12).sqrt()


def shuffled(clips: int, k: int) -> list[list[int]]:
    """Return up to k orders of some clips in which none is where it was."""
    return [[(place + shift) % clips for place in range(clips)] for shift in range(1, min(k, clips - 1) + 1)]
