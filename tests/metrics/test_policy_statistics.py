"""Statistics of few trainings against values that are known."""

import numpy as np
import pytest
from scipy.stats import spearmanr, trim_mean

from rewardlab.metrics.policy_statistics import (
    clustered_correlation_interval,
    interquartile_mean,
    pearson,
    performance_profile,
    profile_band,
    rank_correlation_of,
    row_means,
    stratified_interval,
)


@pytest.mark.parametrize("count", [1, 3, 4, 9, 30])
def test_the_interquartile_mean_is_the_trimmed_mean_of_rliable(count: int) -> None:
    scores = np.random.default_rng(count).random(count)
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25))


def test_one_bad_seed_does_not_move_the_interquartile_mean() -> None:
    assert interquartile_mean(np.array([0.9, 0.9, 0.9, 0.0])) == pytest.approx(0.9)
    assert np.isnan(interquartile_mean(np.zeros(0)))


def test_seeds_are_drawn_within_their_task() -> None:
    # Tasks far apart, seeds alike: drawn over all of them at once, the mean would move by far more than a seed does.
    low, high = stratified_interval({"easy": [0.9, 0.9, 0.9], "hard": [0.1, 0.1, 0.1]}, row_means)
    assert low == high == pytest.approx(0.5)


def test_one_seed_a_task_has_no_interval() -> None:
    assert all(np.isnan(end) for end in stratified_interval({"easy": [0.9], "hard": [0.1]}))


def test_the_interval_of_a_mean_is_the_exact_one_of_the_binomial() -> None:
    scores = {"task": [0.0] * 20 + [1.0] * 20}
    low, high = stratified_interval(scores, row_means)
    # Drawn again, 40 coins of 1/2: the 2.5 and 97.5 percentiles of Binomial(40, 1/2) are 14 and 26.
    assert (low, high) == pytest.approx((14 / 40, 26 / 40), abs=0.02)


def test_a_performance_profile_is_the_share_of_trainings_above_each_score() -> None:
    scores = {"a": [0.2, 0.6], "b": [0.6, 1.0]}
    assert performance_profile(scores, (0.0, 0.2, 0.5, 0.6, 1.0)) == [1.0, 0.75, 0.75, 0.25, 0.0]
    low, high = profile_band(scores, (0.5,))
    assert low[0] <= 0.75 <= high[0] and high[0] == 1.0


def test_correlations_are_those_of_numpy_and_scipy_and_nan_without_variation() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(12)
    y = x + rng.random(12)
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert rank_correlation_of(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert np.isnan(pearson(x, np.ones(12))) and np.isnan(pearson(x[:2], y[:2]))


def test_the_interval_of_a_correlation_covers_it_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(60):
        quality = rng.normal(size=12)
        x = np.repeat(quality, 3)
        y = np.repeat(0.8 * quality + 0.6 * rng.normal(size=12), 3)  # the error is the model's, in all its tasks
        low, high = clustered_correlation_interval(x, y, [f"model {number // 3}" for number in range(36)])
        covered += low <= 0.8 <= high
    assert covered >= 49  # 95 % less what percentile intervals of 12 clusters lack, and less chance
