"""The noise floor against answers drawn many times, and where it is unknown."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.noise_floor import (
    RepeatVariance,
    even_weights,
    level_noise,
    repeat_variance,
    split_repeats,
    subset_weights,
)
from tests.metrics.handmade_trials import table, trial


def asked(first: list[Trial], *again: list[Trial]) -> tuple[TrialTable, RepeatVariance]:
    """Return the trials, and what asking the same again tells of them."""
    named = [replace(one, episode=one.episode or str(place)) for place, one in enumerate(first)]
    repeats = [
        replace(one, id=f"{number} {place}", episode=named[place].episode, repeat=number)
        for number, some in enumerate(again, 1)
        for place, one in enumerate(some)
    ]
    trials = table(named)
    return trials, repeat_variance(trials, TrialTable(to_arrow(repeats)), ["m"])


def test_the_variance_is_that_of_the_answers_to_each_trial_alone() -> None:
    trials, found = asked(
        [trial(3.0, 1), trial(5.0, 5)], [trial(5.0, 1), trial(5.0, 5)], [trial(4.0, 1), trial(5.0, 5)]
    )
    assert found.variance["micro_mae"].tolist() == [1, 0]
    assert found.variance["success_accuracy"].tolist() == [pytest.approx(1 / 3), 0]
    deviation, changed = level_noise(found, trials, np.arange(2), draw_clusters(2, 50, 0))
    assert deviation == pytest.approx(math.sqrt(0.5)) and changed.value == 0.5
    assert (changed.scored, changed.asked) == (2, 2)


def test_a_failed_answer_is_no_answer_and_lowers_the_coverage() -> None:
    failed = trial(None, 1, status="failed")
    trials, found = asked([trial(3.0, 1), trial(2.0, 1)], [failed, trial(4.0, 1)])
    assert np.isnan(found.variance["micro_mae"][0]) and found.variance["micro_mae"][1] == 2
    _, changed = level_noise(found, trials, np.arange(2), draw_clusters(1, 50, 0))
    assert (changed.value, changed.scored, changed.asked) == (1, 1, 2)
    known = found.floor_between("micro_mae", np.array([1]), np.array([1]), np.ones(1))
    assert found.floor_between("micro_mae", np.array([0]), np.array([1]), np.ones(1)) != known  # unknown, not 0
    assert math.isnan(found.floor_between("micro_mae", np.array([0]), np.array([0]), np.ones(1)))


def test_trials_of_one_episode_share_the_noise_of_its_clean_answer() -> None:
    clean = trial(3.0, 1, episode="a")
    dark, bright = (replace(clean, perturbation=name, category="visual", severity=4) for name in ("dark", "bright"))
    again = [replace(clean, level=5.0), dark, bright]  # only the clean answer moves: a variance of 2
    trials, found = asked([clean, dark, bright], again)
    rows = np.flatnonzero(trials.text("perturbation") != "clean")
    assert found.floor_from_clean("micro_mae", rows, even_weights(rows)) == pytest.approx(1.96 * math.sqrt(2), rel=1e-3)


def test_the_floor_holds_95_percent_of_the_differences_between_askings() -> None:
    rng = np.random.default_rng(1)
    truths, chance = rng.integers(1, 6, 60), rng.random(60)

    def asking() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.where(rng.random(60) < chance, 5.0, 1.0)

    many = [asking() for _ in range(5)]
    first, *again = [[trial(float(x), int(t)) for x, t in zip(levels, truths, strict=True)] for levels in many]
    _, found = asked(first, *again)
    rows = np.arange(60)
    floor = found.floor_between("micro_mae", rows, rows, even_weights(rows))
    gaps = [np.abs(asking() - truths).mean() - np.abs(asking() - truths).mean() for _ in range(4000)]
    assert np.mean(np.abs(gaps) <= floor) == pytest.approx(0.95, abs=0.03)


def test_subsets_weigh_alike_and_repeats_are_told_from_first_answers() -> None:
    trials = table([trial(1.0, 1, subset="a"), trial(1.0, 1, subset="a"), trial(1.0, 1, subset="b")])
    assert subset_weights(trials, np.arange(3)).tolist() == [0.25, 0.25, 0.5]
    first, again = split_repeats(TrialTable(to_arrow([trial(1.0), trial(2.0, repeat=1), trial(3.0, repeat=2)])))
    assert first.number("level").tolist() == [1] and again.number("level").tolist() == [2, 3]
