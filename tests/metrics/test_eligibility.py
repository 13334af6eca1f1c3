"""Which trials a metric is about: failures stay in the denominator, dropped and undefined cells do not."""

import pytest

from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.contract import Eligibility, answered, eligible
from rewardlab.metrics.estimates import measure
from tests.metrics.handmade_trials import table, trial

CELLS = [
    trial(4.0, 4),
    trial(None, 4, status="failed"),
    trial(None, 4, status="failed", expectation="undefined"),  # it failed before its expectation was known
    trial(4.0, 4, expectation="relabel"),
    trial(4.0, 4, expectation="undefined"),
    trial(4.0, 4, expectation="lower"),
    trial(None, 4, status="failed", expectation="lower"),
    trial(None, 4, status="dropped", expectation="undefined"),
    trial(4.0, None),
]


@pytest.mark.parametrize("eligibility", ["level", "success", "probabilities"])
def test_a_cell_that_failed_before_its_expectation_was_known_still_counts_as_asked(eligibility: Eligibility) -> None:
    trials = table(CELLS)
    assert eligible(trials, eligibility).tolist() == [True, True, True, True, *[False] * 5]


def test_only_scored_cells_are_answered() -> None:
    assert answered(table(CELLS), "level").tolist() == [True, False, False, True, *[False] * 5]
    assert not answered(table(CELLS), "probabilities").any()  # nobody gave any


@pytest.mark.parametrize("name", ["macro_mae", "micro_mae", "success_accuracy", "kendall_tau_b"])
def test_a_failure_lowers_the_coverage_whether_its_expectation_was_known_or_not(name: str) -> None:
    trials = table(CELLS)
    found = measure(METRICS[name], trials, draw_clusters(1, 10, seed=0))
    assert (found.scored, found.asked) == (2, 4)
