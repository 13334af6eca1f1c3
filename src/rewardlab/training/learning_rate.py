"""The learning rate of a step, and the numbers of a training that its optimizer needs."""

import math
from typing import Protocol


class OptimizerNumbers(Protocol):
    """The highest learning rate, the share of steps in which it is reached, the decay of matrices, the largest norm."""

    @property
    def rate(self) -> float:
        """Return the highest learning rate."""

    @property
    def warm_up(self) -> float:
        """Return the share of the steps in which it is reached."""

    @property
    def weight_decay(self) -> float:
        """Return the decay of matrices."""

    @property
    def max_norm(self) -> float:
        """Return the norm at which gradients are clipped."""


def learning_rate(step: int, steps: int, numbers: OptimizerNumbers) -> float:
    """Return the rate of a step: a linear warm-up from nothing, then half a cosine down to nothing."""
    warm_up = math.ceil(numbers.warm_up * steps)
    if step < warm_up:
        return numbers.rate * step / warm_up
    return numbers.rate * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
