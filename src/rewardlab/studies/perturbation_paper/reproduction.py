"""Every stated number and sentence beside what the equation gives."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rewardlab.studies.perturbation_paper.paper import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.sampler import SampledMean
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, averaged

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
    reproduced: list[Reproduction] = []
    for stated in stated_numbers():
        name = stated.measure
        if all((stated.model, category, stated.severity) in known for category in stated.categories):
            found = [results.find(stated.model, category, stated.severity) for category in stated.categories]
            expected = sum(outcome.expected[name] for outcome in found) / len(found)
            sampled, rounding = [outcome.sampled[name] for outcome in found], 10.0 ** (-2 * stated.decimals) / 12
            # Of each condition in a study of the paper's size, whatever the size of ours.
            variances = [
                outcome.sampled[name].error ** 2 * results.study.episodes / EPISODES + outcome.spread[name] ** 2
                for outcome in found
            ]
            error = math.sqrt(sum(variances) / len(found) ** 2 + rounding)
            reproduced.append(Reproduction(stated, expected, averaged(sampled), error))
    return reproduced


# The sentences of the perturbation paper, each held against its own table and its own equation.


@dataclass(frozen=True)
class ClaimCheck:
    """A sentence of the paper, whether it holds, and what was found."""

    sentence: str
    holds: bool
    found: str


def claim_checks(results: SimulationResults) -> list[ClaimCheck]:
    """Return the sentences that can be held against numbers; none for other models or severities."""
    study = results.study
    if not study.of_paper or not {0, 4} <= set(study.severities):
        return []
    return [*_accuracy_claims(results), *_other_claims(results)]


def _accuracy_claims(results: SimulationResults) -> Iterator[ClaimCheck]:
    ahead = [c for c, value in STATED_ACCURACY["ensemble"].items() if STATED_ACCURACY["tuned"][c] > value]
    yield ClaimCheck(
        "the ensemble has the best worst case in every category",
        not ahead,
        f"in its own Table 1 the tuned model leads in {' and '.join(ahead)}",
    )
    low = min(STATED_ACCURACY["ensemble"].values())
    yield ClaimCheck("the ensemble stays above 83%", low > 0.83, f"its lowest stated accuracy is {low:.3f}")
    kinds = results.study.categories
    taus = [[results.find("ensemble", c, s).expected["tau"] for c in kinds] for s in results.study.severities]
    tau = min(sum(each) / len(each) for each in taus)
    yield ClaimCheck("the ensemble keeps tau above 0.93", tau > 0.93, f"the equation gives {tau:.3f} at worst")
    yield ClaimCheck(
        "accuracy falls by 12.7% under visual change",
        True,
        f"as a share of .927, from the text's .809; it is {100 * (0.927 - 0.809):.1f} points, and Table 1 says .805",
    )


def _other_claims(results: SimulationResults) -> Iterator[ClaimCheck]:
    lowest = min(min(row.values()) for row in STATED_ACCURACY.values())
    ours = min(outcome.expected["accuracy"] for outcome in results.outcomes)
    yield ClaimCheck(
        "general models fall below an accuracy of 0.70 at severity 1",
        False,
        f"no stated accuracy is below {lowest:.3f} (ours: {ours:.3f}); it is the competence of Eq. 1 that falls below",
    )
    yield ClaimCheck(
        "the threshold is the last severity at which accuracy stays above 0.70",
        False,
        "the stated thresholds are the first failing severity; the definition gives one less, and severity 5 is none",
    )
    votes = {vote.condition.category: vote for vote in results.votes if vote.condition.severity == 4}
    if votes:
        found = "/".join(f"{votes[c].expected:.3f}" for c in results.study.categories)
        same = max(abs(votes[c].expected - value) for c, value in STATED_ACCURACY["ensemble"].items()) < 0.02
        shared = results.study.correlation
        yield ClaimCheck(
            "the ensemble is a majority vote of three models",
            same,
            f"a vote of three such members whose errors correlate by {shared:g} gives {found}; "
            "the stated row is a row of Eq. 1",
        )
    yield ClaimCheck(
        "calibration is measured", False, "no calibration error and no mean absolute error is stated; ours are given"
    )
