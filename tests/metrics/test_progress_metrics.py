"""Per-frame progress against scipy and by hand."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from rewardlab.core.seeding import rng_for
from rewardlab.metrics import METRICS
from rewardlab.metrics.contract import answered, eligible
from tests.metrics.handmade_trials import table, trial


def test_voc_is_the_mean_of_scipys_spearman_over_lengths_and_ties() -> None:
    rng = rng_for(0, "voc")
    clips = [np.round(rng.random(length), 1) for length in (4, 7, 7, 16, 16, 16)]
    trials = table([trial(5.0, 5, progress=tuple(clip.tolist())) for clip in clips])
    expected = [spearmanr(clip, np.arange(len(clip))).statistic for clip in clips]
    assert METRICS["value_order_correlation"](trials) == pytest.approx(np.mean(expected))


def test_constant_missing_and_single_frame_progress_have_no_order() -> None:
    for progress in ((0.5, 0.5, 0.5), None, (0.3,)):
        assert math.isnan(METRICS["value_order_correlation"](table([trial(5.0, 5, progress=progress)])))


def test_order_sensitivity_is_one_for_a_judge_that_sees_and_zero_for_a_clock() -> None:
    rising, falling = (0.1, 0.5, 0.9), (0.9, 0.5, 0.1)
    turned: dict[str, Any] = {
        "perturbation": "reverse",
        "category": "temporal",
        "severity": 4,
        "expectation": "reversed",
    }
    seeing = [trial(5.0, 5, episode="e", progress=rising), trial(1.0, episode="e", progress=falling, **turned)]
    length = [trial(5.0, 5, episode="e", progress=rising), trial(5.0, episode="e", progress=rising, **turned)]
    for rows, expected in ((seeing, 1.0), (length, 0.0)):
        trials = table(rows)
        used = trials.where(answered(trials, "reversed clip"))
        assert len(used) == 1
        assert METRICS["order_sensitivity"](used) == pytest.approx(expected)
        kept = trials.where(trials.matches("perturbation", "reverse"))
        assert METRICS["expectation_kept"](kept) == expected


def test_a_static_clip_is_one_whose_frames_are_all_the_same() -> None:
    rows = [trial(5.0, 5, shown=shown, progress=(0.1, 0.2, 0.3)) for shown in ((0, 0, 0), (0, 0, 1), (4, 4, 4))]
    trials = table([*rows, trial(5.0, 5, shown=(3,), progress=(0.1,))])
    assert eligible(trials, "static clip").tolist() == [True, False, True, False]


def test_progress_correlation_is_pearsons_with_the_truth() -> None:
    rng = rng_for(1, "progress")
    said, true = rng.random((5, 9)), rng.random((5, 9))
    rows = [
        trial(3.0, 3, progress=tuple(a.tolist()), truth_progress=tuple(b.tolist()))
        for a, b in zip(said, true, strict=True)
    ]
    expected = np.mean([pearsonr(a, b).statistic for a, b in zip(said, true, strict=True)])
    trials = table([*rows, trial(3.0, 3, progress=(0.1, 0.2)), trial(3.0, 3, truth_progress=(0.1, 0.2))])
    assert METRICS["progress_correlation"](trials) == pytest.approx(expected)


def test_tau_of_progress_is_the_mean_of_scipys_tau_b_with_ties_in_either() -> None:
    rng = rng_for(2, "tau")
    clips = [np.round(rng.random((2, length)), 1) for length in (2, 7, 7, 16, 16)]
    rows = [trial(3.0, 3, progress=tuple(a.tolist()), truth_progress=tuple(b.tolist())) for a, b in clips]
    flat = trial(3.0, 3, progress=(0.5, 0.5, 0.5), truth_progress=(0.1, 0.2, 0.3))
    expected = np.nanmean([kendalltau(a, b).statistic for a, b in clips])
    assert METRICS["progress_tau_b"](table([*rows, flat])) == pytest.approx(expected)


def test_firing_early_means_reading_success_before_it_is_true() -> None:
    truth = (0.0, 0.5, 1.0)
    on_time = trial(5.0, 5, progress=(0.0, 0.8, 0.9), truth_progress=truth)
    early = trial(5.0, 5, progress=(0.0, 0.9, 1.0), truth_progress=truth)
    never = trial(1.0, 5, progress=(0.0, 0.1, 0.1), truth_progress=truth)
    assert METRICS["early_fire_rate"](table([on_time, early, never, never])) == 0.25


def test_the_ceiling_of_the_tau_of_progress_counts_the_ties_of_the_true_progress() -> None:
    truth = (0.0, 0.0, 0.5, 1.0)  # of 6 pairs one is tied
    strict = trial(5.0, 5, progress=(0.0, 0.1, 0.2, 0.3), truth_progress=truth)
    flat = trial(5.0, 5, progress=(0.3, 0.3, 0.3, 0.3), truth_progress=(0.0, 0.2, 0.5, 1.0))
    assert METRICS["progress_tau_b"](table([strict, flat])) == pytest.approx(math.sqrt(5 / 6))
    assert METRICS["progress_tau_b_ceiling"](table([strict, flat])) == pytest.approx(math.sqrt(5 / 6))
