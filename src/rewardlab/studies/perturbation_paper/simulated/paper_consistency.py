"""The sentences of the perturbation paper, each held against its own table and its own equation."""

from collections.abc import Iterator
from dataclasses import dataclass

from rewardlab.studies.perturbation_paper.paper_results import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.simulated.simulation_results import SimulationResults


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
    return [*_accuracy_claims(results), *_threshold_claims(results), *_other_claims(results)]


def _accuracy_claims(results: SimulationResults) -> Iterator[ClaimCheck]:
    ahead = [c for c, value in STATED_ACCURACY["ensemble"].items() if STATED_ACCURACY["tuned"][c] > value]
    yield ClaimCheck(
        "the ensemble has the best worst case in every category",
        not ahead,
        f"in its own Table 1 the tuned model leads in {' and '.join(ahead)}",
    )
    low = min(STATED_ACCURACY["ensemble"].values())
    yield ClaimCheck("the ensemble stays above 83%", low > 0.83, f"its lowest stated accuracy is {low:.3f}")
    tau = min(_mean_tau(results, "ensemble", severity) for severity in results.study.severities)
    yield ClaimCheck("the ensemble keeps tau above 0.93", tau > 0.93, f"the equation gives {tau:.3f} at worst")
    yield ClaimCheck(
        "accuracy falls by 12.7% under visual change",
        True,
        f"as a share of .927, from the text's .809; it is {100 * (0.927 - 0.809):.1f} points, and Table 1 says .805",
    )


def _mean_tau(results: SimulationResults, model: str, severity: int) -> float:
    taus = [results.find(model, category, severity).expected["tau"] for category in results.study.categories]
    return sum(taus) / len(taus)


def _threshold_claims(results: SimulationResults) -> Iterator[ClaimCheck]:
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


def _other_claims(results: SimulationResults) -> Iterator[ClaimCheck]:
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
