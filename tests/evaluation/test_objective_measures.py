"""The measures of per-frame rewards are what they say, and the table tells a better objective from a worse one."""

from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.evaluation.frame_rewards import (
    MEASURES,
    ClipFacts,
    Numbers,
    PerturbedLevels,
    measure_values,
    ranking_score,
    robustness,
)
from rewardlab.evaluation.objective_comparison import MeasuredTrainings, objective_table
from rewardlab.metrics.robustness import robustness_auc

CLIPS, FRAMES, TASKS = 48, 5, 8
RNG = rng_for(0, "objective measures")
SUCCESS = np.arange(CLIPS) % 3
SUCCESS = np.where(SUCCESS == 2, -1, SUCCESS)
PROGRESS = np.sort(RNG.uniform(0, 1, (CLIPS, FRAMES)), axis=1)
PROGRESS[3] = np.nan
FACTS = ClipFacts(
    np.arange(CLIPS) % TASKS, PROGRESS, np.where(np.arange(CLIPS) % 5, 1 + np.arange(CLIPS) % 5, 0), SUCCESS
)
VALUES = np.round(RNG.normal(size=(CLIPS, FRAMES)) + PROGRESS.copy().round(1), 1)
VALUES[3] = np.round(RNG.normal(size=FRAMES), 1)
LEVELS = RNG.uniform(1, 5, CLIPS)


def ratio(measured: tuple[Numbers, Numbers]) -> float:
    return float(measured[0].sum() / measured[1].sum())


def slow_share(pairs: list[tuple[float, float, float, float]]) -> float | None:
    """Share of pairs (reward a, reward b, progress a, progress b) in the true order, ties half."""
    right = [0.5 if a == b else float((a > b) == (p > q)) for a, b, p, q in pairs if abs(p - q) >= 0.1]
    return float(np.mean(right)) if right else None


def test_agreement_within_clips_counts_pairs() -> None:
    shares = []
    for values, progress in zip(VALUES, PROGRESS, strict=True):
        frames = [(i, j) for i in range(FRAMES) for j in range(i)]
        shares.append(slow_share([(values[i], values[j], progress[i], progress[j]) for i, j in frames]))
    found = measure_values(VALUES, LEVELS, FACTS, VALUES[:, ::-1])["within"]
    assert ratio(found) == pytest.approx(np.mean([share for share in shares if share is not None]))
    assert found[1][3] == 0  # nothing is known of its progress


def test_agreement_across_clips_stays_in_the_task() -> None:
    shares = []
    for a in range(CLIPS):
        pairs = [
            (VALUES[a, i], VALUES[b, j], PROGRESS[a, i], PROGRESS[b, j])
            for b in range(CLIPS)
            if b != a and FACTS.task[a] == FACTS.task[b]
            for i in range(FRAMES)
            for j in range(FRAMES)
        ]
        shares.append(slow_share(pairs))
    expected = np.mean([share for share in shares if share is not None])
    assert ratio(measure_values(VALUES, LEVELS, FACTS, VALUES[:, ::-1])["across"]) == pytest.approx(expected)


def test_the_simulators_own_reward_is_measured_as_progress_is() -> None:
    rewarded = replace(FACTS, progress=np.full_like(PROGRESS, np.nan), env_reward=PROGRESS)
    found, plain = (measure_values(VALUES, LEVELS, facts, VALUES[:, ::-1]) for facts in (rewarded, FACTS))
    for name in ("within", "across"):
        assert ratio(found[f"env_{name}"]) == ratio(plain[name])
        assert not plain[f"env_{name}"][1].any() and not found[name][1].any()


def test_success_auc_is_the_mean_over_successes_of_the_failures_below_them() -> None:
    shares = []
    for a in np.flatnonzero(SUCCESS == 1):
        failed = [VALUES[b, -1] for b in np.flatnonzero(SUCCESS == 0) if FACTS.task[a] == FACTS.task[b]]
        shares += [np.mean([1.0 if VALUES[a, -1] > f else 0.5 if VALUES[a, -1] == f else 0.0 for f in failed])]
    assert ratio(measure_values(VALUES, LEVELS, FACTS, VALUES[:, ::-1])["success_auc"]) == pytest.approx(
        np.mean(shares)
    )


def test_order_and_error_are_those_of_the_catalog() -> None:
    from scipy.stats import spearmanr

    found = measure_values(VALUES, LEVELS, FACTS, VALUES[:, ::-1])
    orders = [spearmanr(VALUES[row], np.arange(FRAMES)).statistic for row in np.flatnonzero(SUCCESS == 1)]
    assert ratio(found["voc"]) == pytest.approx(np.nanmean(orders))
    assert ratio(found["order_sensitivity"]) == pytest.approx(np.nanmean(orders))
    known = FACTS.level > 0
    assert ratio(found["mae"]) == pytest.approx(np.abs(LEVELS - FACTS.level)[known].mean())


def test_robustness_is_the_area_under_accuracy() -> None:
    cells = [(clip, change, severity) for clip in (0, 1) for change in (0, 1) for severity in (1, 2, 3, 4)]
    cells = [cell for cell in cells if cell != (1, 1, 4)]  # one curve lacks a severity: it does not count
    clip, change, severity = np.array(cells).T
    facts = replace(FACTS, level=np.full(CLIPS, 4))
    said = RNG.uniform(1, 5, len(cells))
    above, below = robustness(LEVELS, said, facts, PerturbedLevels(clip, change, severity, np.full(len(cells), 4)))
    accuracy = 1 - np.abs(said - 4) / 4
    for row, curves in ((0, 2), (1, 1)):
        start = 1 - abs(LEVELS[row] - 4) / 4
        areas = [robustness_auc([start, *accuracy[(clip == row) & (change == number)]]) for number in range(curves)]
        assert above[row] / below[row] == pytest.approx(np.mean(areas))
    assert not below[2:].any()


def test_the_true_reward_is_perfect_and_its_negative_is_not() -> None:
    facts = replace(FACTS, progress=np.sort(RNG.uniform(0, 1, (CLIPS, FRAMES)), axis=1))
    assert ranking_score(facts.progress, facts) == 1.0
    assert ranking_score(-facts.progress, facts) == 0.0
    assert ranking_score(np.zeros_like(facts.progress), facts) == 0.5
    assert np.isnan(ranking_score(VALUES, replace(FACTS, progress=np.full_like(PROGRESS, np.nan))))


def trainings(backbone: str, objective: str, noise: float, control: bool = False) -> MeasuredTrainings:
    facts = replace(FACTS, progress=np.nan_to_num(PROGRESS, nan=0.5))
    seeds = []
    for seed in range(1 if control else 3):
        values = facts.progress + noise * rng_for(seed, objective).normal(size=PROGRESS.shape)
        seeds.append(measure_values(values, np.full(CLIPS, 3.0), facts, values[:, ::-1]))
    return MeasuredTrainings(backbone, objective, tuple(seeds), control)


def test_the_table_ranks_and_tests_objectives_on_the_same_clips() -> None:
    own = [trainings("b", "good", 0.01), trainings("b", "bad", 5.0), trainings("b", "same", 0.01)]
    groups = {"all": np.ones(CLIPS, bool), "none": np.zeros(CLIPS, bool)}
    cells, contrasts = objective_table(
        [*own, trainings("b", "blind", 9.0, control=True)], FACTS.task, groups, "good", 5000
    )
    found = {(cell.objective, cell.group, cell.measure): cell for cell in cells}
    assert len(found) == 4 * 2 * len(MEASURES)
    good, bad = found["good", "all", "within"], found["bad", "all", "within"]
    assert good.value is not None and bad.value is not None and good.value > 0.95 > 0.7 > bad.value
    assert good.low is not None and good.low <= good.value <= (good.high or 0) and good.tasks == TASKS
    assert good.rank_low == 1 and (bad.rank_low, bad.rank_high) == (3, 3)
    assert found["blind", "all", "within"].rank_low is None
    assert found["good", "none", "within"].value is None
    tests = {(c.objective, c.group, c.measure): c for c in contrasts}
    assert set(name for name, _, _ in tests) == {"bad", "same"}
    worse, same = tests["bad", "all", "within"], tests["same", "all", "within"]
    assert worse.difference == pytest.approx(bad.value - good.value) and worse.p_holm is not None
    assert worse.p_holm < 0.05 and same.p_holm is not None and same.p_holm > 0.05
    assert worse.p is not None and worse.p_holm >= worse.p
