"""Numbers of curves and of several models, by hand."""

import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.model_ranking import (
    effective_robustness,
    mean_maximum_rank_violation,
    rank_sets,
    rank_stability,
    top_kept,
)
from rewardlab.metrics.robustness_curve import (
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


def test_effective_robustness_finds_the_one_model_off_the_line() -> None:
    clean = {f"m{i}": 0.55 + 0.04 * i for i in range(9)}
    changed = {name: 1 / (1 + math.exp(-(-1 + 1.5 * math.log(a / (1 - a))))) for name, a in clean.items()}
    on_line = effective_robustness(clean, changed)
    assert all(abs(value) < 1e-9 for value in on_line.values())
    lifted = effective_robustness(clean, changed | {"m4": changed["m4"] + 0.1})
    assert lifted["m4"] == pytest.approx(0.1)
    assert all(math.isnan(v) for v in effective_robustness({"a": 0.5}, {"a": 0.4}).values())


def test_rank_stability_is_tau_b_of_the_two_rankings() -> None:
    rng = rng_for(0, "ranking")
    a, b = rng.random(12), rng.random(12)
    assert rank_stability(a, b) == pytest.approx(kendalltau(a, b).statistic)
    assert math.isnan(rank_stability([0.5, 0.5], [0.1, 0.2])) and math.isnan(rank_stability([0.5], [0.1]))


def test_the_best_model_and_rank_sets_over_draws() -> None:
    drawn = np.array([[0.9, 0.8, 0.9, 0.9], [0.7, 0.85, 0.7, 0.7], [0.1, 0.1, 0.1, 0.1]])
    assert top_kept(drawn, np.repeat(drawn[:, :1], 4, axis=1), "higher") == 0.75
    assert top_kept(drawn, drawn, "lower") == 1.0
    assert rank_sets(drawn, "higher") == [(1, 2), (1, 2), (3, 3)]
    assert rank_sets(drawn, "lower") == [(2, 3), (2, 3), (1, 1)]


def test_rank_violation_weighs_a_swap_by_the_real_gap() -> None:
    """The proxy swaps the first two: each of them is off by .2; the third is in place."""
    assert mean_maximum_rank_violation([0.9, 0.7, 0.1], [0.6, 0.8, 0.0]) == pytest.approx((0.2 + 0.2 + 0) / 3)
    assert mean_maximum_rank_violation([0.9, 0.7], [9, 7]) == 0.0
    assert math.isnan(mean_maximum_rank_violation([], []))
