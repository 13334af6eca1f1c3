"""Weighted sums of condition means against the intervals that single numbers and paired differences have."""

import math

import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import clusters_of, measure
from rewardlab.metrics.paired_differences import ConditionMeans, condition_means, less, mean_of, paired_means
from tests.metrics.handmade_trials import table, trial

DRAWS = draw_clusters(12, 800, seed=3)
CLUSTER = np.repeat(np.arange(12), 10)
SIDES = ("left", "right")


def two_sides(*, proportion: bool = False) -> tuple[np.ndarray, np.ndarray, ConditionMeans]:
    rng = rng_for(0, "contrasts")
    values = (rng.random((2, 120)) < np.array([[0.8], [0.6]])).astype(float)
    side = np.repeat([0, 1], 120)
    means = condition_means(values.ravel(), np.tile(CLUSTER, 2), [(side, SIDES)], DRAWS, proportion=proportion)
    return values[0], values[1], means


def test_a_single_rate_has_the_interval_it_has_everywhere_else() -> None:
    rng = rng_for(1, "rate")
    truths, said = rng.integers(1, 6, 60), rng.integers(1, 6, 60)
    trials = table(
        [trial(float(s), int(t), task=str(i % 12)) for i, (s, t) in enumerate(zip(said, truths, strict=True))]
    )
    metric = METRICS["success_accuracy"]
    assert metric.values is not None
    means = condition_means(metric.values(trials), clusters_of(trials), [trials.codes("model")], DRAWS, proportion=True)
    ours, theirs = means.combined({("m",): 1.0}), measure(metric, trials, DRAWS)
    assert (ours.value, ours.low, ours.high) == (theirs.value, theirs.low, theirs.high)


def test_a_difference_is_the_paired_difference() -> None:
    a, b, means = two_sides()
    ours, theirs = means.combined(less({("left",): 1.0}, {("right",): 1.0})), paired_means(a, b, CLUSTER, DRAWS)
    assert ours.value == pytest.approx(theirs.difference)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_a_mean_weighs_conditions_alike_whatever_their_size() -> None:
    values, side = np.array([1.0, 1, 1, 1, 0, 0, np.nan, 5]), np.array([0, 0, 0, 0, 1, 1, 1, -1])
    means = condition_means(values, np.array([0, 1, 2, 3, 0, 1, 2, 3]), [(side, SIDES)], DRAWS)
    found = means.combined(mean_of({("left",): 1.0}, {("right",): 1.0}))
    assert found.value == 0.5 and found.clusters == 2  # the side with fewer clusters decides


def test_a_condition_without_a_trial_leaves_nothing_to_say() -> None:
    _, _, means = two_sides()
    assert math.isnan(means.combined(less({("left",): 1.0}, {("middle",): 1.0})).value)
    assert math.isnan(means.combined({}).value)


def test_more_confidence_means_a_wider_interval() -> None:
    for rate in (False, True):
        usual, wide = (two_sides(proportion=rate)[2].combined({("left",): 1.0}, c) for c in (0.95, 0.995))
        assert wide.low < usual.low < usual.value < usual.high < wide.high
