"""What a learning objective is: a plain function from a batch of embedded clips to a loss.

Every objective trains the same parameters and is read out in the same way, by the cosine of a frame and its
instruction: none has a layer of its own, so that nothing but the loss differs between two trainings.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

# What an objective learns from: both outcomes, successes alone, true progress, or levels.
SUCCESS, DEMONSTRATIONS, PROGRESS, LEVEL = "success", "demonstrations", "progress", "level"


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
        return ClipBatch(**{each.name: getattr(self, each.name)[self.success] for each in fields(self)})

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def frames(self) -> int:
        return int(self.images.shape[1])

    @property
    def no_loss(self) -> Tensor:
        """Return a loss of 0 that leaves every parameter as it is, for a batch that shows nothing to learn from."""
        return 0.0 * (self.images.sum() + self.texts.sum())


DRAWS = 8  # random numbers of a clip
Loss = Callable[..., Tensor]  # of a ClipBatch, and options by name


@dataclass(frozen=True)
class Objective:
    """An objective of the catalog: its loss, what it learns from, and the option that is tuned with its values.

    One that needs `demonstrations` counts only clips that end in success, so its batches hold no others.
    """

    loss: Loss
    needs: str = ""
    option: str = ""
    values: tuple[float | str | bool, ...] = ()
    source: str = "rewardlab"

    @property
    def name(self) -> str:
        return str(self.loss.__name__)

    @property
    def summary(self) -> str:
        return " ".join((self.loss.__doc__ or "").split())


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values that count, 0 where none does."""
    return torch.where(mask, values, torch.zeros_like(values)).sum() / mask.sum().clamp(min=1)


def other_task(batch: ClipBatch) -> Tensor:
    """Return whether two clips have different tasks, (clips, clips)."""
    return batch.task[:, None] != batch.task[None, :]


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the Euclidean distance of vectors; its gradient stays finite where two are the same."""
    return ((a - b).square().sum(-1) + 1e-12).sqrt()


def shuffled(clips: int, k: int) -> list[list[int]]:
    """Return up to k orders of some clips in which none is where it was."""
    return [[(place + shift) % clips for place in range(clips)] for shift in range(1, min(k, clips - 1) + 1)]
