"""What a metric is: a named function of trials; the caller adds coverage and intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rewardlab.core.trial import TrialTable

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """A named number of a set of trials; `needs` says which trials it can use at all."""

    name: str
    summary: str
    better: Better
    needs: Literal["level", "success", "clean score"]
    compute: Callable[[TrialTable], float]

    def __call__(self, trials: TrialTable) -> float:
        """Return the number, nan if no trial can be used."""
        return self.compute(trials)


def metric(better: Better, needs: Literal["level", "success", "clean score"] = "level") -> Callable[..., Metric]:
    """Turn a function of trials into a metric named like the function."""

    def wrap(compute: Callable[[TrialTable], float]) -> Metric:
        summary = " ".join((compute.__doc__ or "").split())
        return Metric(compute.__name__, summary, better, needs, compute)

    return wrap
