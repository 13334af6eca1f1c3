"""Rank agreement against scipy, with ties, fractions and tasks."""

import math
from dataclasses import replace
from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from scipy.stats import kendalltau

from rewardlab.core.episode import Episode, Label, Preference, episode_from_frames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters, percentile_interval
from rewardlab.metrics.estimates import clusters_of, measure
from rewardlab.metrics.rank_correlation import (
    PreferredPair,
    count_pairs,
    human_preference_agreement,
    pair_draws,
    preferred_pairs,
    tau_b_of_conditions,
)
from tests.metrics.handmade_trials import scored, table, trial
from tests.narrowing import known


def some(seed: int, count: int, fractional: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_for(seed, "rank", count)
    truths = rng.integers(1, 6, count).astype(float)
    scores = np.clip(truths + rng.integers(-2, 3, count) + (rng.random(count) if fractional else 0), 1, 5)
    return scores, truths


@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("count", [4, 17, 400])
def test_tau_b_is_scipys_and_tau_a_counts_every_pair(count: int, fractional: bool) -> None:
    scores, truths = some(1, count, fractional)
    trials = scored(scores.tolist(), truths.astype(int).tolist())
    assert METRICS["kendall_tau_b"](trials) == pytest.approx(kendalltau(scores, truths).statistic, abs=1e-12)
    signs = [np.sign((scores[i] - scores[j]) * (truths[i] - truths[j])) for i, j in combinations(range(count), 2)]
    assert METRICS["kendall_tau_a"](trials) == pytest.approx(np.mean(signs))


def test_a_perfect_judge_of_five_levels_has_tau_b_one_but_tau_a_well_below() -> None:
    levels = np.repeat([1, 2, 3, 4, 5], 40).tolist()
    assert METRICS["kendall_tau_b"](scored(levels, levels)) == pytest.approx(1)
    assert 0.78 < METRICS["kendall_tau_a"](scored(levels, levels)) < 0.81


@pytest.mark.parametrize("name", ["kendall_tau_a", "kendall_tau_b", "kendall_tau_b_within_task"])
def test_a_constant_judge_has_no_rank_correlation(name: str) -> None:
    assert math.isnan(METRICS[name](scored([3, 3, 3], [1, 2, 5])))
    assert math.isnan(METRICS[name](scored([1, 2, 5], [4, 4, 4])))


def test_within_task_tau_is_the_mean_over_tasks_where_it_is_defined() -> None:
    scores, truths = some(2, 90, fractional=True)
    tasks = rng_for(2, "tasks").integers(0, 12, 90)
    trials = table([trial(s, int(t), task=str(k)) for s, t, k in zip(scores, truths, tasks, strict=True)])
    taus = [kendalltau(scores[tasks == k], truths[tasks == k]).statistic for k in range(12)]
    assert METRICS["kendall_tau_b_within_task"](trials) == pytest.approx(np.nanmean(taus))


def test_preference_counts_right_pairs_of_the_same_task_and_half_of_the_ties() -> None:
    """Task x: (5 over 1) right, (5 over 3) tie, (3 over 1) right. Task y: one wrong pair; pairs across tasks: none."""
    x = [trial(4.0, 5, task="x"), trial(4.0, 3, task="x"), trial(2.0, 1, task="x")]
    y = [trial(1.0, 4, task="y"), trial(5.0, 2, task="y")]
    assert METRICS["preference_accuracy"](table([*x, *y])) == pytest.approx((1 + 0.5 + 1 + 0) / 4)


def pair_of(number: int, preferred: Literal["a", "b", "tie"]) -> PreferredPair:
    return PreferredPair(f"p{number}", f"{number}a", f"{number}b", preferred)


def test_agreement_with_people_goes_by_the_expected_level_and_leaves_their_ties_out() -> None:
    """Right; wrong; equal levels, half; a tie of the person; one rollout failed; right by the expectation alone."""
    levels = [(4.0, 2.0), (4.0, 2.0), (3.0, 3.0), (5.0, 1.0), (5.0, None), (3.0, 3.0)]
    trials = [
        trial(level, episode=f"{number}{side}", task=f"t{number}", status="failed" if level is None else "scored")
        for number, both in enumerate(levels)
        for side, level in zip("ab", both, strict=True)
    ]
    trials[10] = replace(trials[10], probabilities=(0.0, 0.0, 0.6, 0.4, 0.0))
    trials[11] = replace(trials[11], probabilities=(0.0, 0.0, 0.9, 0.1, 0.0))
    said: tuple[Literal["a", "b", "tie"], ...] = ("a", "b", "a", "tie", "a", "a")
    pairs = [pair_of(number, word) for number, word in enumerate(said)]
    drawn, draws = table(trials), draw_clusters(6, 400, seed=0)
    found = human_preference_agreement(drawn, pairs, draws)
    assert found.value == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert (found.scored, found.asked) == (4, 5)
    assert 0 <= found.low < found.value < found.high <= 1
    assert math.isnan(human_preference_agreement(drawn, pairs[3:5], draws).value)


def test_agreement_of_many_pairs_of_one_task_has_the_interval_of_its_tasks() -> None:
    """Ten tasks of 20 pairs, all right or all wrong: the interval is that of ten things, not of 200."""
    trials = [
        trial(5.0 if (side == "a") == (number // 20 < 6) else 1.0, episode=f"{number}{side}", task=str(number // 20))
        for number in range(200)
        for side in "ab"
    ]
    pairs = [pair_of(number, "a") for number in range(200)]
    found = human_preference_agreement(table(trials), pairs, draw_clusters(10, 2000, seed=0))
    assert found.value == pytest.approx(0.6)
    assert found.high - found.low > 0.45


def test_pairs_need_both_rollouts_and_must_not_contradict_each_other() -> None:
    def episode(name: str, pair: str, word: Literal["this", "other", "tie"]) -> Episode:
        made = episode_from_frames(
            np.zeros((2, 4, 4, 3), np.uint8), "lift it", label=Label(preference=Preference(pair, word))
        )
        return replace(made, id=name)

    good = [episode("1", "x", "other"), episode("2", "x", "this"), episode("3", "y", "tie"), episode("4", "y", "tie")]
    lone = episode("5", "z", "this")
    assert preferred_pairs([*good, lone]) == (PreferredPair("x", "1", "2", "b"), PreferredPair("y", "3", "4", "tie"))
    with pytest.raises(DataError, match="pair 'z' must be `this` in one row and `other` in a second"):
        preferred_pairs([lone, replace(lone, id="6")])


@pytest.mark.parametrize(("count", "fractional"), [(40, False), (40, True), (1500, True), (6000, False)])
def test_every_draw_has_the_tau_b_that_scipy_finds_in_the_trials_written_out(count: int, fractional: bool) -> None:
    scores, truths = some(3, count, fractional)
    cluster = rng_for(3, "clusters", count).integers(0, max(2, count // 4), count)
    cluster = np.unique(cluster, return_inverse=True)[1]
    draws = draw_clusters(int(cluster.max()) + 1, 60, seed=5)
    found = pair_draws(scores, truths, cluster, draws).tau_b()
    for draw in (0, 17, 59):
        rows = np.repeat(np.arange(count), draws.counts[cluster, draw])
        assert found[draw] == pytest.approx(kendalltau(scores[rows], truths[rows]).statistic, abs=1e-12)


def test_the_draw_that_holds_every_cluster_once_gives_each_metric_its_own_value() -> None:
    scores, truths = some(4, 80, fractional=True)
    tasks = rng_for(4, "tasks").integers(0, 9, 80)
    trials = table(
        [trial(s, int(t), task=str(k), subset=str(k % 3)) for s, t, k in zip(scores, truths, tasks, strict=True)]
    )
    draws = draw_clusters(9, 4, seed=0)
    draws.counts[:, 0] = 1
    for metric in (m for m in METRICS.values() if m.resample is not None):
        assert known(metric.resample)(trials, draws)[0] == pytest.approx(metric(trials), nan_ok=True), metric.name
    assert set(clusters_of(trials)) == set(range(9))


@pytest.mark.parametrize("fractional", [False, True])
def test_many_small_conditions_at_once_are_the_same_as_one_by_one(fractional: bool) -> None:
    scores, truths = some(6, 300, fractional)
    condition, cluster = np.arange(300) % 7, rng_for(6, "clusters").integers(0, 20, 300)
    scores[condition == 3] = 2.0  # a constant judge
    draws = draw_clusters(20, 80, seed=0)
    many = tau_b_of_conditions(scores, truths, cluster, condition, 8, draws)
    for number in range(8):
        mine = condition == number
        drawn = pair_draws(scores[mine], truths[mine], cluster[mine], draws).tau_b()[None, :]
        low, high = percentile_interval(drawn, many.clusters[number : number + 1])
        value = kendalltau(scores[mine], truths[mine]).statistic if mine.any() and number != 3 else math.nan
        found = (many.value[number], many.low[number], many.high[number])
        assert found == pytest.approx((value, low[0], high[0]), nan_ok=True, abs=1e-6)
        assert many.trials[number] == mine.sum()


def test_macro_error_in_a_draw_is_the_mean_over_the_subsets_in_it() -> None:
    rng = rng_for(7, "macro")
    rows = [
        trial(float(rng.integers(1, 6)), int(rng.integers(1, 6)), task=str(i % 8), subset=str(i % 3)) for i in range(60)
    ]
    trials = table(rows)
    measured = measure(METRICS["macro_mae"], trials, draw_clusters(8, 500, seed=0))
    errors = np.abs(trials.number("level") - trials.number("truth_level"))
    assert measured.value == pytest.approx(np.mean([errors[i::3].mean() for i in range(3)]))
    assert measured.low < measured.value < measured.high
    assert (measured.scored, measured.asked) == (60, 60)


def test_pairs_are_counted_per_group() -> None:
    scores, truths = some(5, 60, fractional=False)
    group = np.arange(60) % 4
    counts = count_pairs(scores, truths, group, 4)
    expected = [kendalltau(scores[group == g], truths[group == g]).statistic for g in range(4)]
    np.testing.assert_allclose(counts.tau_b(), expected, atol=1e-12)


def test_the_ceiling_of_tau_b_is_what_a_perfect_judge_without_ties_reaches() -> None:
    truths = [1, 1, 2, 3, 3, 3]  # 15 pairs, of which 1 + 3 are tied: 11 untied
    perfect = [level + 1e-9 * place for place, level in enumerate(truths)]
    trials = scored(perfect, truths)
    assert METRICS["kendall_tau_b_ceiling"](trials) == pytest.approx(math.sqrt(11 / 15))
    assert METRICS["kendall_tau_b"](trials) == pytest.approx(METRICS["kendall_tau_b_ceiling"](trials))


def test_the_ceiling_depends_on_the_truth_alone_and_is_one_without_ties() -> None:
    assert METRICS["kendall_tau_b_ceiling"](scored([3, 1, 2], [1, 2, 5])) == 1.0
    assert METRICS["kendall_tau_b_ceiling"](scored([4, 4, 4, 4], [1, 1, 5, 5])) == pytest.approx(math.sqrt(4 / 6))
    assert math.isnan(METRICS["kendall_tau_b_ceiling"](scored([1, 2], [4, 4])))
