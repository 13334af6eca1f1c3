"""Validation on held-out examples: the error of the expected level, as `hf:` answers, or the loss on captions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.answer_tokens import choice_softmax
from rewardlab.training.vlm.answer_inputs import Reply
from rewardlab.training.vlm.answer_network import Batch, answer_losses
from rewardlab.training.vlm.batches import Pass
from rewardlab.training.vlm.example import Example
from rewardlab.training.vlm.processes import Processes

OVERALL = "all"


@dataclass(frozen=True)
class ValidationErrors:
    """Mean errors by the source of the label, and over all examples."""

    measure: str  # mae of levels, loss on captions
    by_source: dict[str, float]

    @property
    def overall(self) -> float:
        """Return the error over all examples."""
        return self.by_source[OVERALL]


def validation_passes(examples: int, first: int, micro: int, processes: Processes) -> list[Pass]:
    """Return the forward passes of this process over examples that begin at a place, equally many in each process."""
    rows = math.ceil(examples / processes.world)
    places = [first + i for i in range(examples)][processes.rank :: processes.world]
    weights = [1.0] * len(places) + [0.0] * (rows - len(places))
    places += [first] * (rows - len(places))
    return [Pass(0, tuple(places[i : i + micro]), tuple(weights[i : i + micro])) for i in range(0, rows, micro)]


@torch.no_grad()
def expected_levels(network: Any, batches: Iterable[Batch], reply: Reply) -> dict[int, float]:
    """Return the expected level of every example that counts, by its place."""
    levels: dict[int, float] = {}
    for batch in batches:
        rows = network(batch)[:, -2, list(reply.choices)].float().tolist()
        counted = zip(batch.places, rows, batch.weights.tolist())
        levels |= {place: _expected(row) for place, row, weight in counted if weight}
    return levels


@torch.no_grad()
def caption_losses(network: Any, batches: Iterable[Batch]) -> dict[int, float]:
    """Return the loss of every example that counts, by its place."""
    losses: dict[int, float] = {}
    for batch in batches:
        counted = zip(batch.places, answer_losses(network(batch), batch).tolist(), batch.weights.tolist())
        losses |= {place: loss for place, loss, weight in counted if weight}
    return losses


def _expected(logits: list[float]) -> float:
    probs = choice_softmax(logits)
    if isinstance(probs, Failure):
        raise ModelError(f"validation stopped: {probs.reason}; try a lower --rate")
    return float(np.array(probs) @ LEVELS)


def level_errors(examples: Sequence[Example], levels: Sequence[float]) -> ValidationErrors:
    """Return the mean absolute error over all examples and for each source of labels."""
    errors = np.abs(np.array([example.level for example in examples]) - np.array(levels))
    sources = np.array([example.source for example in examples])
    by_source = {str(source): float(errors[sources == source].mean()) for source in dict.fromkeys(sources.tolist())}
    return ValidationErrors("mae", {OVERALL: float(errors.mean()), **by_source})


def caption_errors(losses: Sequence[float]) -> ValidationErrors:
    """Return the mean loss on captions, which stands for all examples."""
    return ValidationErrors("loss", {OVERALL: float(np.mean(losses))})


def constant_error(training: Sequence[Example], validation: Sequence[Example]) -> tuple[float, float]:
    """Return the level that a blind constant would choose from the training, its median, and its error."""
    level = float(np.median([example.level for example in training]))
    return level, float(np.mean([abs(example.level - level) for example in validation]))
