"""Wrong rewards against examples worked by hand: false and missed successes, balanced accuracy, near misses."""

import math
from dataclasses import replace

import pytest

from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import measure
from tests.metrics.handmade_trials import scored, table, trial

#                  read            true
EXAMPLE = scored([5, 1, 4.5, 2, 5, 3, 5, 4, 4.6, 2], [1, 1, 2, 3, 4, 4, 5, 5, 5, 5])


def value(name: str, trials: TrialTable = EXAMPLE) -> float:
    return METRICS[name](trials)


def test_a_near_miss_called_success_is_a_false_success() -> None:
    assert value("false_success_of_failures") == pytest.approx(3 / 6)
    assert value("false_success_rate") == pytest.approx(2 / 4), "the older number leaves true 4s out"


@pytest.mark.parametrize(("level", "share"), [(1, 1 / 2), (2, 1.0), (3, 0.0), (4, 1 / 2)])
def test_false_success_is_told_by_true_level(level: int, share: float) -> None:
    assert value(f"false_success_at_level_{level}") == pytest.approx(share)


def test_a_success_read_as_four_or_less_is_missed() -> None:
    assert value("missed_success_rate") == pytest.approx(2 / 4)


def test_balanced_accuracy_is_the_mean_over_successes_and_failures() -> None:
    assert value("balanced_success_accuracy") == pytest.approx((3 / 6 + 2 / 4) / 2)
    assert value("balanced_success_accuracy", scored([5] * 5, [5, 5, 5, 5, 1])) == 0.5, "a constant gains nothing"
    assert value("success_accuracy", scored([5] * 5, [5, 5, 5, 5, 1])) == 0.8


def test_near_misses_are_told_from_successes_pair_by_pair() -> None:
    # 4s read 5 and 3; 5s read 5, 4, 4.6, 2: against 5 one tie, against 3 all but the 2: (0.5 + 3) of 8 pairs
    assert value("near_miss_auc") == pytest.approx(3.5 / 8)
    assert value("near_miss_auc", scored([1, 4.1, 4.2], [1, 4, 5])) == 1.0
    assert math.isnan(value("near_miss_auc", scored([5, 5], [5, 3])))


def test_an_episode_without_a_level_still_succeeds_or_fails() -> None:
    unknown = [replace(trial(read, None), truth_success=truth) for read, truth in ((5.0, False), (4.0, True))]
    assert value("false_success_of_failures", table(unknown)) == 1.0
    assert value("missed_success_rate", table(unknown)) == 1.0
    assert math.isnan(value("false_success_at_level_4", table(unknown)))


@pytest.mark.parametrize("name", ["balanced_success_accuracy", "near_miss_auc", "false_success_of_failures"])
def test_numbers_come_with_coverage_and_an_interval_around_them(name: str) -> None:
    levels, truths = [5, 4, 4.6, 2, 5, 3] * 6, [5, 5, 4, 4, 4, 5] * 6
    rows = [trial(float(a), b, task=str(i % 9)) for i, (a, b) in enumerate(zip(levels, truths, strict=True))]
    silent = trial(None, 4, status="failed", task="0")
    trials = table([*rows, silent])
    found = measure(METRICS[name], trials, draw_clusters(9, 200, seed=0))
    assert found.low <= found.value <= found.high
    assert found.asked == found.scored + 1
    assert found.value == pytest.approx(value(name, table(rows)))


def test_reaching_level_five_early_is_judged_where_level_five_begins() -> None:
    truth = (0.0, 0.9, 1.0)
    near = trial(5.0, 5, progress=(0.0, 0.9, 1.0), truth_progress=truth)
    early = trial(5.0, 5, progress=(0.0, 1.0, 1.0), truth_progress=truth)
    assert value("early_level_5_rate", table([near, early])) == 0.5
    assert value("early_fire_rate", table([near, early])) == 0.0, "the older number takes a true 0.9 for success"
