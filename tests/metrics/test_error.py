"""Errors and accuracies against scikit-learn and by hand."""

import math

import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import measure
from tests.metrics.handmade_trials import scored, table, trial


def test_errors_and_accuracies_are_those_of_scikit_learn() -> None:
    measures = pytest.importorskip("sklearn.metrics")
    rng = rng_for(0, "errors")
    truths, said = rng.integers(1, 6, 200), rng.integers(1, 6, 200)
    trials = scored(said.tolist(), truths.tolist())
    assert METRICS["micro_mae"](trials) == pytest.approx(measures.mean_absolute_error(truths, said))
    assert METRICS["exact_accuracy"](trials) == pytest.approx(measures.accuracy_score(truths, said))
    assert METRICS["success_accuracy"](trials) == pytest.approx(measures.accuracy_score(truths == 5, said == 5))
    near = np.abs(truths - said) <= 1
    assert METRICS["within_one_accuracy"](trials) == pytest.approx(near.mean())


def test_one_trial_and_one_class_have_numbers_where_they_are_defined() -> None:
    one = scored([4.0], [5])
    assert METRICS["macro_mae"](one) == METRICS["micro_mae"](one) == 1.0
    assert METRICS["success_accuracy"](one) == 0.0
    assert math.isnan(METRICS["kendall_tau_b"](one))
    same = scored([3, 3, 3], [3, 3, 3])
    assert METRICS["exact_accuracy"](same) == 1.0
    assert math.isnan(METRICS["preference_accuracy"](same))


def test_a_missing_score_never_counts_as_a_number() -> None:
    trials = table([trial(5.0, 5), trial(None, 5, status="failed")])
    assert METRICS["micro_mae"](trials) == 0.0
    assert METRICS["exact_accuracy"](trials) == 1.0


@pytest.mark.parametrize("name", ["micro_mae", "macro_mae"])
def test_the_interval_of_an_error_stays_between_zero_and_four_levels(name: str) -> None:
    trials = table([trial(5.0, 5, task="a", video="a"), trial(1.0, 4, task="b", video="b")])
    found = measure(METRICS[name], trials, draw_clusters(2, 200, seed=0))
    assert (found.value, found.low, found.high) == (1.5, 0, 4)


def test_the_interval_of_a_correlation_of_few_tasks_stays_between_minus_one_and_one() -> None:
    said, truths = [1, 5, 4, 2, 1, 5], [1, 5, 2, 4, 2, 4]
    trials = table([trial(float(a), b, task=str(i // 2)) for i, (a, b) in enumerate(zip(said, truths, strict=True))])
    found = measure(METRICS["kendall_tau_b"], trials, draw_clusters(3, 200, seed=0))
    assert -1 <= found.low < found.value < found.high <= 1
