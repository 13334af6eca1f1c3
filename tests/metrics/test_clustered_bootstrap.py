"""The clustered bootstrap: exactness, coverage by simulation, and tests against statsmodels."""

import math

import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import (
    Draws,
    cluster_sums,
    draw_clusters,
    paired_p_value,
    percentile_interval,
    proportion_interval,
)
from rewardlab.metrics.estimates import cluster_codes, estimate_means
from rewardlab.metrics.paired_differences import (
    exact_mcnemar,
    holm,
    minimum_detectable_change,
    paired_means,
    paired_metric,
)
from tests.metrics.handmade_trials import table, trial

CLUSTERS, SIZE, STUDIES = 50, 12, 1500
CORRELATION = 0.2  # between episodes of the same task


def test_trials_that_share_a_task_or_a_video_are_in_one_cluster() -> None:
    task = np.array([0, 0, 1, 2, 3, 4])
    video = np.array([0, 1, 1, 2, 3, 2])  # video 1 joins tasks 0 and 1, video 2 joins 2 and 4
    codes = cluster_codes(task, video)
    assert codes[0] == codes[1] == codes[2] and codes[3] == codes[5]
    assert len(set(codes.tolist())) == 3 and set(codes.tolist()) == {0, 1, 2}
    assert len(cluster_codes(task[:0], video[:0])) == 0


def test_every_draw_holds_as_many_clusters_as_there_are_and_the_seed_decides() -> None:
    draws = draw_clusters(300, 700, seed=3)
    assert (draws.counts.sum(axis=0) == 300).all()
    assert draws.counts.mean() == pytest.approx(1) and draws.counts.var() == pytest.approx(1, rel=0.05)
    assert np.array_equal(draws.counts, draw_clusters(300, 700, seed=3).counts)
    assert not np.array_equal(draws.counts, draw_clusters(300, 700, seed=4).counts)


@pytest.mark.parametrize("clusters", [7, 900])
def test_a_draw_is_the_mean_of_the_trials_written_out(clusters: int) -> None:
    rng = rng_for(0, "draw", clusters)
    cluster = np.append(np.arange(clusters), rng.integers(0, clusters, 3 * clusters))
    values = rng.random(len(cluster))
    values[::5] = np.nan
    draws = draw_clusters(clusters, 300, seed=1)
    above, below = cluster_sums(values, cluster, clusters)
    found = draws.ratios(above[None, :], below[None, :])[0]
    for draw in (0, 299):
        rows = np.repeat(np.arange(len(cluster)), draws.counts[cluster, draw])
        assert found[draw] == pytest.approx(np.nanmean(values[rows]))


def studies(kind: str, clusters: int = CLUSTERS) -> tuple[np.ndarray, float]:
    """Return many studies (rows) of clustered trials with an intraclass correlation of .2, and their true mean."""
    rng = rng_for(0, "studies", kind, clusters)
    cluster = np.repeat(np.arange(clusters), SIZE)
    if kind == "error":
        shared = rng.standard_normal((STUDIES, clusters))[:, cluster]
        own = rng.standard_normal((STUDIES, clusters * SIZE))
        return 1 + math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own, 1.0
    rate, spread = 0.75, (1 - CORRELATION) / CORRELATION
    chance = rng.beta(rate * spread, (1 - rate) * spread, (STUDIES, clusters))[:, cluster]
    return (rng.random(chance.shape) < chance).astype(float), rate


@pytest.mark.parametrize("kind", ["error", "rate"])
def test_the_clustered_interval_covers_95_percent_where_the_naive_one_covers_under_80(kind: str) -> None:
    values, truth = studies(kind)
    cluster = np.tile(np.repeat(np.arange(CLUSTERS), SIZE), STUDIES)
    study = np.repeat(np.arange(STUDIES), CLUSTERS * SIZE)
    draws = draw_clusters(CLUSTERS, 1000, seed=2)
    means = estimate_means(values.ravel(), cluster, study, STUDIES, draws, proportion=kind == "rate")
    covered = np.mean((means.low <= truth) & (truth <= means.high))
    half = 1.96 * values.std(axis=1) / math.sqrt(values.shape[1])
    naive = np.mean(np.abs(values.mean(axis=1) - truth) <= half)
    assert 0.92 <= covered <= 0.97
    assert naive < 0.80


def test_the_interval_of_tau_b_covers_too() -> None:
    """The true tau-b is that of a very large study of the same kind."""
    from rewardlab.metrics.rank_correlation import count_pairs, pair_draws

    def study(number: int, clusters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = rng_for(number, "tau study", clusters)
        cluster = np.repeat(np.arange(clusters), 8)
        truth = rng.integers(1, 6, len(cluster)).astype(float)
        noise = rng.standard_normal(clusters)[cluster] * 0.9 + rng.standard_normal(len(cluster)) * 1.2
        return np.clip(np.round(truth + noise), 1, 5), truth, cluster

    scores, truths, cluster = study(0, 20_000)
    true = count_pairs(scores, truths, np.zeros(len(cluster), dtype=np.int64), 1).tau_b()[0]
    draws = draw_clusters(40, 600, seed=0)
    covered = 0
    for number in range(1, 401):
        scores, truths, cluster = study(number, 40)
        drawn = pair_draws(scores, truths, cluster, draws).tau_b()[None, :]
        low, high = percentile_interval(drawn, np.array([40.0]))
        covered += int(low[0] <= true <= high[0])
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("clusters", [8, 12])
def test_with_few_clusters_the_interval_is_wider_and_still_covers_nine_of_ten(clusters: int) -> None:
    values, truth = studies("error", clusters)
    cluster = np.tile(np.repeat(np.arange(clusters), SIZE), STUDIES)
    study = np.repeat(np.arange(STUDIES), clusters * SIZE)
    means = estimate_means(
        values.ravel(), cluster, study, STUDIES, draw_clusters(clusters, 1000, seed=2), proportion=False
    )
    assert np.mean((means.low <= truth) & (truth <= means.high)) >= 0.91


@pytest.mark.parametrize("clusters", [2, 3, 4, 6, 9])
def test_an_interval_of_very_few_clusters_covers_95_percent(clusters: int) -> None:
    values = rng_for(0, "few clusters", clusters).normal(1, 0.5, (STUDIES, clusters))
    cluster, study = np.tile(np.arange(clusters), STUDIES), np.repeat(np.arange(STUDIES), clusters)
    draws = draw_clusters(clusters, 500, seed=0)
    means = estimate_means(values.ravel(), cluster, study, STUDIES, draws, proportion=False)
    assert 0.93 <= np.mean((means.low <= 1) & (means.high >= 1)) <= 0.97


def test_clusters_that_agree_have_an_interval_from_six_on() -> None:
    for clusters, known in ((5, False), (6, True)):
        gap, draws = np.full(clusters, 0.3), draw_clusters(clusters, 500, seed=0)
        paired = paired_means(gap, np.zeros(clusters), np.arange(clusters), draws)
        assert (paired.p < 0.05) == known and math.isnan(paired.low) != known
        if known:
            assert [paired.low, paired.high] == pytest.approx([0.3, 0.3])


def test_one_cluster_or_nothing_has_no_interval() -> None:
    draws = draw_clusters(1, 50, seed=0)
    one = estimate_means(
        np.array([1.0, 2.0]), np.zeros(2, dtype=int), np.zeros(2, dtype=int), 1, draws, proportion=False
    )
    assert one.value[0] == 1.5 and math.isnan(one.low[0]) and math.isnan(one.high[0])
    none = estimate_means(np.array([np.nan]), np.zeros(1, dtype=int), np.zeros(1, dtype=int), 2, draws, proportion=True)
    assert np.isnan(none.value).all() and np.isnan(none.low).all()


def test_a_rate_of_all_or_none_keeps_an_interval_as_wide_as_its_clusters_allow() -> None:
    draws = draw_clusters(20, 200, seed=0)
    cluster = np.repeat(np.arange(20), 30)
    for value in (0.0, 1.0):
        means = estimate_means(np.full(600, value), cluster, np.zeros(600, dtype=int), 1, draws, proportion=True)
        width = means.high[0] - means.low[0]
        assert 0.1 < width < 0.25  # twenty clusters, not six hundred trials
        assert min(abs(means.low[0] - value), abs(means.high[0] - value)) < 1e-9


def test_a_rate_of_independent_trials_has_wilsons_interval() -> None:
    """With many clusters of one trial each, Student's t is the normal and the effective number is the number."""
    from statsmodels.stats.proportion import proportion_confint

    count = 4000
    values = (np.arange(count) < 1200).astype(float)
    drawn = np.array([[0.3 - 0.3, 0.3 + 0.3]])
    drawn = 0.3 + (drawn - drawn.mean()) / drawn.std() * math.sqrt(0.21 / count * (count - 1) / count)
    size = np.array([float(count)])
    low, high = proportion_interval(np.array([values.mean()]), drawn, size, size)
    assert (low[0], high[0]) == pytest.approx(proportion_confint(1200, count, method="wilson"), abs=2e-4)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (5, 1), (12, 15), (40, 8)])
def test_mcnemar_is_that_of_statsmodels(only_a: int, only_b: int) -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    expected = tables.mcnemar([[30, only_a], [only_b, 20]], exact=True).pvalue if only_a + only_b else 1.0
    assert exact_mcnemar(only_a, only_b) == pytest.approx(expected)


def test_holm_is_that_of_statsmodels_and_nan_is_no_test() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    values = [0.01, 0.04, 0.03, 0.005, 0.5, 0.04]
    assert holm(values) == pytest.approx(multitest.multipletests(values, method="holm")[1])
    mixed = holm([0.01, math.nan, 0.04])
    assert math.isnan(mixed[1]) and [mixed[0], mixed[2]] == pytest.approx([0.02, 0.04])
    assert holm([]) == []


def test_the_minimum_detectable_change_is_that_of_the_paired_t_test() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    clusters, error = 40, 0.03
    size = power.TTestPower().solve_power(nobs=clusters, alpha=0.05, power=0.8) * error * math.sqrt(clusters)
    assert minimum_detectable_change(error, clusters) == pytest.approx(size, rel=0.02)
    assert math.isnan(minimum_detectable_change(0.1, 1))


@pytest.mark.parametrize("clusters", [2, 3, 10])
def test_the_standard_error_of_a_difference_is_right_for_few_clusters(clusters: int) -> None:
    draws, cluster = draw_clusters(clusters, 1000, seed=0), np.arange(clusters)
    gaps = rng_for(0, "standard error", clusters).standard_normal((600, clusters))
    squares = [paired_means(gap, np.zeros(clusters), cluster, draws).error ** 2 for gap in gaps]
    assert np.mean(squares) == pytest.approx(1 / clusters, rel=0.15)


def test_paired_p_values_are_uniform_when_nothing_differs() -> None:
    draws = draw_clusters(40, 400, seed=0)
    cluster = np.repeat(np.arange(40), 6)
    small = 0
    for number in range(600):
        rng = rng_for(number, "no difference")
        gap = rng.standard_normal(40)[cluster] * 0.5 + rng.standard_normal(240)
        small += paired_means(gap, np.zeros(240), cluster, draws).p < 0.05
    assert 0.03 <= small / 600 <= 0.075


@pytest.mark.parametrize("clusters", [2, 3, 5, 9, 25])
def test_a_p_value_is_below_five_percent_only_where_the_interval_leaves_out_zero(clusters: int) -> None:
    draws = draw_clusters(clusters, 2000, seed=0)
    cluster = np.repeat(np.arange(clusters), 4)
    for number in range(60):
        rng = rng_for(number, "edge")
        values = rng.standard_normal(4 * clusters) + 1 / math.sqrt(clusters)
        paired = paired_means(values, np.zeros(len(values)), cluster, draws)
        leaves_out = paired.low > 0 or paired.high < 0
        assert leaves_out or paired.p >= 0.05
        if abs(paired.p - 0.05) > 0.004:  # at the edge the order statistics are interpolated
            assert leaves_out == (paired.p < 0.05)


def test_identical_models_do_not_differ_and_a_constant_has_no_tau_to_compare() -> None:
    draws = draw_clusters(10, 100, seed=0)
    rng = rng_for(0, "identical")
    scores, truths = 1 + 4 * rng.random(30), rng.integers(1, 6, 30)
    varied, flat = (
        table(
            [
                trial(level, truth, task=str(n % 10))
                for n, (level, truth) in enumerate(zip(levels, truths.tolist(), strict=True))
            ]
        )
        for levels in (scores.tolist(), [3.0] * 30)
    )
    tau_b = METRICS["kendall_tau_b"]
    same = paired_metric(tau_b, varied, varied, draws)
    assert same.difference == 0 and same.p == 1
    constant = paired_metric(tau_b, varied, flat, draws)
    assert math.isnan(constant.difference) and math.isnan(constant.p) and math.isnan(constant.low)
    assert math.isnan(paired_p_value(np.array([0.1, 0.2]), clusters=1))


def test_pairing_sees_a_difference_that_two_sepaproportion_intervals_hide() -> None:
    draws = draw_clusters(30, 1000, seed=0)
    cluster = np.repeat(np.arange(30), 5)
    rng = rng_for(0, "pairing")
    hard = rng.standard_normal(30)[cluster] + rng.standard_normal(150)
    paired = paired_means(hard + 0.15, hard + 0.05 * rng.standard_normal(150), cluster, draws)
    assert paired.p < 0.01 and paired.low > 0
    low, high = (
        estimate_means(x, cluster, np.zeros(150, dtype=int), 1, draws, proportion=False) for x in (hard, hard + 0.15)
    )
    assert low.high[0] > high.low[0]


def test_draws_given_by_hand_are_weights() -> None:
    draws = Draws(np.array([[2, 0], [0, 2]], dtype=np.uint8), seed=0)
    assert draws.ratios(np.array([[3.0, 8.0]]), np.array([[1.0, 2.0]])).tolist() == [[3.0, 4.0]]
    assert math.isnan(draws.ratios(np.array([[3.0, 0.0]]), np.array([[1.0, 0.0]]))[0, 1])
