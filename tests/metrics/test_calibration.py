"""Calibration against scikit-learn, netcal where it is installed, and by hand."""

import math

import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.calibration import null_band, null_quantiles, ordinal_error, reliability_diagram, top_label_error
from tests.metrics.handmade_trials import table, trial

CERTAIN_FIVE = (0.0, 0.0, 0.0, 0.0, 1.0)


def forecasts(count: int, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and labels drawn from them: a perfectly calibrated judge."""
    rng = rng_for(0, "forecasts", count)
    probs = rng.dirichlet(np.full(5, sharpness), count)
    labels = (rng.random(count)[:, None] > np.cumsum(probs, axis=1)[:, :4]).sum(axis=1)
    return probs, labels


def judged(probs: np.ndarray, labels: np.ndarray) -> TrialTable:
    return table([trial(3.0, int(k) + 1, probabilities=tuple(p.tolist())) for p, k in zip(probs, labels, strict=True)])


def test_brier_is_scikit_learns() -> None:
    measures = pytest.importorskip("sklearn.metrics")
    probs, labels = forecasts(150)
    one_hot = np.eye(5)[labels]
    expected = sum(measures.brier_score_loss(one_hot[:, k], probs[:, k]) for k in range(5))
    assert METRICS["brier_score"](judged(probs, labels)) == pytest.approx(expected)


def test_rps_by_hand() -> None:
    """Truth 2; cumulative forecast .1 .3 .6 .9 against 0 1 1 1: (.01 + .49 + .16 + .01) / 4."""
    trials = table([trial(3.0, 2, probabilities=(0.1, 0.2, 0.3, 0.3, 0.1))])
    assert METRICS["ranked_probability_score"](trials) == pytest.approx(0.67 / 4)


def test_rps_is_the_mean_of_the_brier_scores_of_four_thresholds() -> None:
    measures = pytest.importorskip("sklearn.metrics")
    probs, labels = forecasts(120)
    above = 1 - np.cumsum(probs, axis=1)
    each = [measures.brier_score_loss(labels > k, np.clip(above[:, k], 0, 1)) for k in range(4)]
    assert METRICS["ranked_probability_score"](judged(probs, labels)) == pytest.approx(np.mean(each))


@pytest.mark.parametrize(("truth", "rps", "brier", "ece"), [(5, 0.0, 0.0, 0.0), (1, 1.0, 2.0, 1.0)])
def test_probabilities_of_exactly_zero_and_one(truth: int, rps: float, brier: float, ece: float) -> None:
    trials = table([trial(5.0, truth, probabilities=CERTAIN_FIVE)])
    assert METRICS["ranked_probability_score"](trials) == rps
    assert METRICS["brier_score"](trials) == brier
    assert METRICS["top_label_ece"](trials) == ece
    assert METRICS["ordinal_ece"](trials) == pytest.approx(ece)


def test_trials_without_probabilities_do_not_count_and_alone_they_are_nan() -> None:
    names = ("ranked_probability_score", "brier_score", "ordinal_ece", "top_label_ece")
    without = trial(5.0, 5)
    for name in names:
        assert math.isnan(METRICS[name](table([without])))
        assert METRICS[name](table([without, trial(5.0, 5, probabilities=CERTAIN_FIVE)])) == 0.0
    assert all(math.isnan(value) for value in null_quantiles(table([without]), 0).values())
    assert reliability_diagram(table([without])) == []


def test_top_label_ece_by_hand_and_as_a_loop() -> None:
    probs, labels = forecasts(400, sharpness=0.5)
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & ((confidence < low + 1 / 15) | (low == 14 / 15))
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert top_label_error(probs, labels) == pytest.approx(total)


def test_ordinal_ece_by_hand() -> None:
    """Two trials say P(level > k) = .5 for every k and one of them is above each k: no error. Twice above: .5."""
    even = np.array([[0.5, 0, 0, 0, 0.5]] * 2)
    assert ordinal_error(even, np.array([0, 4])) == pytest.approx(0.0)
    assert ordinal_error(even, np.array([4, 4])) == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "expected"), [(100, 0.111), (500, 0.049)])
def test_a_calibrated_judge_is_near_the_known_null_and_rarely_above_its_quantile(count: int, expected: float) -> None:
    probs, _ = forecasts(count)
    rng = rng_for(1, "null", count)
    errors = []
    for _ in range(200):
        labels = (rng.random(count)[:, None] > np.cumsum(probs, axis=1)[:, :4]).sum(axis=1)
        errors.append(top_label_error(probs, labels))
    quantile = null_quantiles(judged(probs, labels), seed=0)["top_label_ece"]
    assert np.mean(errors) == pytest.approx(expected, rel=0.25)
    assert 0.90 <= np.mean(np.asarray(errors) <= quantile) <= 0.99


def test_an_overconfident_judge_is_above_the_null() -> None:
    probs, labels = forecasts(500)
    sure = probs**4 / (probs**4).sum(axis=1, keepdims=True)
    trials = judged(sure, labels)
    null = null_quantiles(trials, seed=0)
    for name in ("top_label_ece", "ordinal_ece"):
        assert METRICS[name](trials) > null[name]


def test_the_diagram_holds_every_trial_once() -> None:
    probs, labels = forecasts(300)
    points = reliability_diagram(judged(probs, labels))
    assert sum(point.trials for point in points) == 300
    gap = sum(point.trials * abs(point.accuracy - point.confidence) for point in points) / 300
    assert gap == pytest.approx(top_label_error(probs, labels))


def test_the_null_of_the_brier_score_is_that_of_labels_drawn_from_the_probabilities() -> None:
    # half sure of 4, half of 5, always: every label costs 0.25 + 0.25, so that the null has no width
    torn = table([trial(4.5, 5, probabilities=(0.0, 0.0, 0.0, 0.5, 0.5)) for _ in range(8)])
    assert null_band(torn, seed=0)["brier_score"] == pytest.approx((0.5, 0.5))
    assert METRICS["brier_score"](torn) == pytest.approx(0.5)
    certain = table([trial(5.0, 4, probabilities=CERTAIN_FIVE) for _ in range(8)])
    assert null_band(certain, seed=0) == {"ordinal_ece": (0.0, 0.0), "brier_score": (0.0, 0.0)}
    assert METRICS["brier_score"](certain) == 2.0, "sure and wrong: far above what a calibrated model shows"


def test_cells_of_one_episode_are_no_independent_evidence() -> None:
    unsure = (0.2, 0.2, 0.2, 0.2, 0.2)
    apart = table([trial(3.0, 3, probabilities=unsure) for _ in range(60)])
    together = table([trial(3.0, 3, probabilities=unsure, episode=str(i % 6)) for i in range(60)])
    assert null_band(together, seed=0)["ordinal_ece"][1] > 2 * null_band(apart, seed=0)["ordinal_ece"][1]
