"""Flips, shifts and undue rewards by hand."""

import math

import pytest

from rewardlab.metrics import METRICS
from rewardlab.metrics.contract import answered, eligible
from tests.metrics.handmade_trials import table, trial

NOISE = {"perturbation": "noise", "category": "visual", "severity": 2}


def test_shifts_compare_with_the_clean_answer_of_the_same_model_and_episode() -> None:
    clean = [trial(3.0, 3, episode=e, model=m) for e in "ab" for m in "xy"]
    changed = [trial(5.0, 3, episode="a", model="x", **NOISE), trial(2.4, 3, episode="b", model="x", **NOISE)]
    trials = table([*clean, *changed])
    moved = trials.where(trials.matches("perturbation", "noise"))
    assert METRICS["flip_rate"](moved) == 1.0
    assert METRICS["level_shift"](moved) == pytest.approx((2.0 + 0.6) / 2)
    assert METRICS["signed_shift"](moved) == pytest.approx((2.0 - 0.6) / 2)


def test_only_cells_that_keep_the_label_and_have_a_clean_answer_count_as_shifts() -> None:
    rows = [
        trial(3.0, 3, episode="a"),
        trial(1.0, 1, episode="a", expectation="relabel", **NOISE),
        trial(1.0, None, episode="a", expectation="lower", **NOISE),
        trial(5.0, 3, episode="without clean", **NOISE),
        trial(4.0, 3, episode="a", **NOISE),
    ]
    trials = table(rows)
    assert eligible(trials, "unchanged").tolist() == [True, False, False, False, True]


def test_false_success_and_over_reward_are_about_what_was_not_done() -> None:
    rows = [trial(5.0, 1), trial(4.6, 3), trial(2.0, 3), trial(5.0, 4), trial(5.0, 5)]
    trials = table(rows)
    unfinished = trials.where(answered(trials, "unfinished"))
    assert METRICS["false_success_rate"](unfinished) == METRICS["false_success_rate"](trials) == pytest.approx(2 / 3)
    assert METRICS["over_reward_on_failure"](trials) == pytest.approx((4.0 + 1.6 + 0.0 + 1.0) / 4)


def test_without_failures_there_is_no_undue_reward_to_measure() -> None:
    trials = table([trial(5.0, 5)])
    assert math.isnan(METRICS["false_success_rate"](trials))
    assert math.isnan(METRICS["over_reward_on_failure"](trials))


def test_expectations_kept_by_hand() -> None:
    rows = [
        trial(4.0, 4, episode="a"),
        trial(4.4, 4, episode="a", **NOISE),
        trial(3.0, 4, episode="a", **NOISE),
        trial(5.0, None, episode="a", expectation="lower", **NOISE),
        trial(2.0, 2, episode="a", expectation="relabel", **NOISE),
        trial(2.0, None, episode="a", expectation="undefined", **NOISE),
    ]
    trials = table(rows)
    cells = trials.where(trials.matches("perturbation", "noise"))
    assert METRICS["expectation_kept"](cells) == pytest.approx(2 / 4)
