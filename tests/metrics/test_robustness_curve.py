"""Numbers of severity curves, and the ranking of models under change, by hand."""

import math

import pytest
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.rank_correlation import rank_stability
from rewardlab.metrics.robustness import (
    corruption_error,
    mean_corruption_error,
    mean_rise,
    relative_corruption_error,
    robustness_auc,
)

OURS = {"blur": [0.1, 0.2, 0.3, 0.4, 0.5], "noise": [0.1, 0.1, 0.1, 0.1, 0.1]}
REFERENCE = {"blur": [0.2, 0.4, 0.6, 0.8, 1.0], "noise": [0.2, 0.2, 0.4, 0.4, 0.6], "fog": [0.2, 0.9, 0.9, 0.9, 0.9]}


def test_corruption_errors_by_hand() -> None:
    assert corruption_error(OURS["blur"], REFERENCE["blur"]) == pytest.approx(1.4 / 2.8)
    assert mean_corruption_error(OURS, REFERENCE) == pytest.approx((1.4 / 2.8 + 0.4 / 1.6) / 2)
    assert mean_rise(OURS) == pytest.approx((0.25 + 0.0) / 2)
    assert relative_corruption_error(OURS, REFERENCE) == pytest.approx(0.125 / ((0.5 + 0.2) / 2))


def test_a_reference_that_never_errs_or_never_gets_worse_gives_no_ratio() -> None:
    perfect = {"blur": [0.0] * 5}
    assert math.isnan(mean_corruption_error(OURS, perfect))
    assert math.isnan(relative_corruption_error(OURS, perfect))
    assert math.isnan(mean_corruption_error(OURS, {}))


def test_robustness_auc_is_one_for_a_flat_curve_and_follows_the_formula() -> None:
    assert robustness_auc([0.8] * 5) == pytest.approx(1)
    assert robustness_auc([0.8, 0.6, 0.4, 0.2, 0.0]) == pytest.approx((0.4 + 1.2 + 0.0) / 3.2)
    assert math.isnan(robustness_auc([0.0, 0.1])) and math.isnan(robustness_auc([0.5, math.nan]))


def test_rank_stability_is_tau_b_of_the_two_rankings() -> None:
    rng = rng_for(0, "ranking")
    a, b = rng.random(12).tolist(), rng.random(12).tolist()
    assert rank_stability(a, b) == pytest.approx(kendalltau(a, b).statistic)
    assert math.isnan(rank_stability([0.5, 0.5], [0.1, 0.2])) and math.isnan(rank_stability([0.5], [0.1]))
