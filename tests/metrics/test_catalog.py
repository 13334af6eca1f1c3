"""Every metric of nothing is nan; errors, tau-b and severity thresholds against hand-worked numbers and scipy."""

import math

import pytest
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.metrics import METRICS
from rewardlab.metrics.estimates import with_clean_answers
from rewardlab.metrics.robustness import severity_threshold


def table(scores: list[float], truths: list[int], subsets: list[str] | None = None) -> TrialTable:
    names = subsets or ["s"] * len(scores)
    return TrialTable(to_arrow([
        Trial(
            id=str(i), model="m", episode=str(i), video="v", subset=subset, task="t", perturbation="clean",
            category="clean", severity=0, seed=0, expectation="same", truth_level=truth, truth_success=truth == 5,
            truth_progress=None, instruction="", shown=(), frames_hash="", status="scored", level=score,
        )
        for i, (score, truth, subset) in enumerate(zip(scores, truths, names, strict=True))
    ]))  # fmt: skip


def test_macro_weighs_subsets_and_micro_weighs_episodes() -> None:
    trials = table([5, 5, 5, 1], [5, 5, 5, 3], ["a", "a", "a", "b"])
    assert METRICS["macro_mae"](trials) == 1.0
    assert METRICS["micro_mae"](trials) == 0.5


def test_levels_are_rounded_half_up_for_accuracy() -> None:
    trials = table([4.5, 4.4, 2.5, 1.0], [5, 5, 3, 3])
    assert METRICS["exact_accuracy"](trials) == 0.5
    assert METRICS["within_one_accuracy"](trials) == 0.75
    assert METRICS["success_accuracy"](trials) == 0.75


def test_tau_b_is_scipys_with_ties() -> None:
    rng = rng_for(0, "tau")
    scores, truths = rng.integers(1, 6, 80).tolist(), rng.integers(1, 6, 80).tolist()
    assert METRICS["kendall_tau_b"](table(scores, truths)) == pytest.approx(kendalltau(scores, truths).statistic)


@pytest.mark.parametrize(("scores", "truths"), [([3, 3, 3], [1, 2, 5]), ([1, 2, 5], [4, 4, 4]), ([2], [2]), ([], [])])
def test_tau_b_of_a_constant_is_undefined(scores: list[float], truths: list[int]) -> None:
    assert math.isnan(METRICS["kendall_tau_b"](table(scores, truths)))


@pytest.mark.parametrize("name", METRICS)
def test_nothing_to_measure_is_nan(name: str) -> None:
    assert math.isnan(METRICS[name](with_clean_answers(table([], []))))


@pytest.mark.parametrize(
    ("curve", "reached"),
    [
        ([0.9, 0.8, 0.75, 0.71, 0.70], 4),
        ([0.9, 0.8, 0.69, 0.9, 0.9], 1),
        ([0.5, 0.9, 0.9, 0.9, 0.9], -1),
        ([0.9, math.nan, 0.9], 0),
        ([math.nan, 0.9], None),
        ([], None),
    ],
)
def test_the_severity_threshold_stops_at_the_first_fall(curve: list[float], reached: int | None) -> None:
    assert severity_threshold(curve, 0.7) == reached
