"""Every number that the perturbation paper states, beside what its own equation gives."""

import math
from dataclasses import dataclass

from rewardlab.studies.perturbation_paper.paper_results import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.simulated.sampler import SampledMean
from rewardlab.studies.perturbation_paper.simulated.simulation_results import (
    ConditionResult,
    SimulationResults,
    averaged,
)

EPISODES = 500  # behind each number the paper states
CONTRADICTIONS = {
    ("tuned", "semantic"): "Eq. 1 gives competence .61 here and .60 to general-semantic, which is stated at .884: "
    "no rising map from competence to accuracy gives .841",
    ("ensemble", "domain"): "reliable to severity 4-5 needs sigma below .0433, and that an accuracy of .901 or more",
}


@dataclass(frozen=True)
class StatedNumber:
    """A number of the paper: a measure of a model at a severity, averaged over categories; `where` it stands."""

    where: str
    measure: str
    model: str
    categories: tuple[str, ...]
    severity: int
    value: float
    decimals: int = 3
    reason: str = ""  # why it cannot be met


@dataclass(frozen=True)
class Reproduction:
    """A stated number beside ours; `error` is the standard error of a study of the paper's size, rounding included."""

    stated: StatedNumber
    expected: float
    sampled: SampledMean
    error: float

    @property
    def distance(self) -> float:
        """Return how many standard errors the stated number lies from the closed form."""
        return (self.stated.value - self.expected) / self.error

    @property
    def met(self) -> bool:
        """Tell whether the closed form lies within two standard errors."""
        return abs(self.distance) <= 2


def stated_numbers() -> tuple[StatedNumber, ...]:
    """Return the sixteen numbers that the paper states."""
    every = ("visual", "semantic", "temporal", "domain")
    return (
        StatedNumber("text", "accuracy", "general", ("visual",), 0, 0.927),
        StatedNumber("text", "accuracy", "general", ("visual",), 4, 0.809),
        *(
            StatedNumber(
                "Table 1", "accuracy", model, (category,), 4, value, reason=CONTRADICTIONS.get((model, category), "")
            )
            for model, row in STATED_ACCURACY.items()
            for category, value in row.items()
        ),
        StatedNumber("Figure 2", "tau", "general", every, 0, 0.97, decimals=2),
        StatedNumber("Figure 2", "tau", "general", every, 4, 0.82, decimals=2),
    )


def reproductions(results: SimulationResults) -> list[Reproduction]:
    """Return every stated number that the study has a condition for; none if its models are not the paper's."""
    if not results.study.of_paper:
        return []
    known = {(o.condition.model, o.condition.category, o.condition.severity) for o in results.outcomes}
    return [
        _reproduction(results, stated)
        for stated in stated_numbers()
        if all((stated.model, category, stated.severity) in known for category in stated.categories)
    ]


def _reproduction(results: SimulationResults, stated: StatedNumber) -> Reproduction:
    found = [results.find(stated.model, category, stated.severity) for category in stated.categories]
    estimate = averaged([outcome.sampled[stated.measure] for outcome in found])
    expected = sum(outcome.expected[stated.measure] for outcome in found) / len(found)
    chance = sum(_variance(results, outcome, stated.measure) for outcome in found) / len(found) ** 2
    rounding = 10.0 ** (-2 * stated.decimals) / 12
    return Reproduction(stated, expected, estimate, math.sqrt(chance + rounding))


def _variance(results: SimulationResults, outcome: ConditionResult, measure: str) -> float:
    """Return the variance of one condition in a study of the paper's size, whatever the size of ours."""
    episode = outcome.sampled[measure].error ** 2 * results.study.episodes
    return episode / EPISODES + outcome.spread[measure] ** 2
