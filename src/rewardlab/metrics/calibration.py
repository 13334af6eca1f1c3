"""Do the probabilities over the five levels mean what they say? Proper scores, and errors with their null."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.core.summary import ReliabilityBin
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import SHARE, Codes, Numbers
from rewardlab.metrics.contract import mean_metric, metric

BINS = 15
_SIMULATED = 500_000  # labels drawn for the null, about


def _forecasts(trials: TrialTable) -> tuple[Numbers, Codes]:
    """Return probabilities and true levels (0 to 4) of the trials that have both."""
    probs, truth = trials.vectors("probabilities", 5), trials.number("truth_level")
    known = ~np.isnan(probs).any(axis=1) & ~np.isnan(truth)
    return probs[known], truth[known].astype(np.int64) - 1


def _one_hot(trials: TrialTable) -> Numbers:
    found: Numbers = (trials.number("truth_level")[:, None] == np.arange(1, 6)).astype(np.float64)
    return found


@mean_metric(better="lower", eligibility="probabilities", bounds=SHARE)
def ranked_probability_score(trials: TrialTable) -> Numbers:
    """Mean squared distance of the cumulative probabilities from the truth, over four thresholds; proper, 0 is best."""
    gap = np.cumsum(trials.vectors("probabilities", 5) - _one_hot(trials), axis=1)[:, :4]
    return np.where(np.isnan(trials.number("truth_level")), np.nan, (gap**2).sum(axis=1) / 4)


@mean_metric(better="lower", eligibility="probabilities", bounds=(0.0, 2.0))
def brier_score(trials: TrialTable) -> Numbers:
    """Mean over episodes of the sum of squared errors of the five probabilities; proper, from 0 (best) to 2."""
    gap = trials.vectors("probabilities", 5) - _one_hot(trials)
    return np.where(np.isnan(trials.number("truth_level")), np.nan, (gap**2).sum(axis=1))


@metric(better="lower", eligibility="probabilities", resample=None)
def ordinal_ece(trials: TrialTable) -> float:
    """Calibration error of "the level is above k", mean over k = 1 to 4, with bins of equal mass."""
    return ordinal_error(*_forecasts(trials))


@metric(better="lower", eligibility="probabilities", resample=None)
def top_label_ece(trials: TrialTable) -> float:
    """Calibration error of the most probable level, in 15 bins of equal width; read it against its null."""
    return top_label_error(*_forecasts(trials))


def ordinal_error(probs: Numbers, truth: Codes) -> float:
    """Return the ordinal calibration error of probabilities (n, 5) and true levels 0 to 4; nan of nothing."""
    return float(_ordinal_errors(probs, truth[:, None])[0]) if len(truth) else float("nan")


def top_label_error(probs: Numbers, truth: Codes) -> float:
    """Return the top-label calibration error of probabilities (n, 5) and true levels 0 to 4; nan of nothing."""
    return float(_top_label_errors(probs, truth[:, None])[0]) if len(truth) else float("nan")


def reliability_diagram(trials: TrialTable) -> list[ReliabilityBin]:
    """Return the bins of the top-label calibration error that hold a trial, from unsure to sure."""
    probs, truth = _forecasts(trials)
    confidence, place = _confidence(probs)
    right = probs.argmax(axis=1) == truth
    return [
        ReliabilityBin(float(confidence[place == b].mean()), float(right[place == b].mean()), int((place == b).sum()))
        for b in np.unique(place)
    ]


def null_quantiles(trials: TrialTable, seed: int, fraction: float = 0.95) -> dict[str, float]:
    """Return what a perfectly calibrated model with these probabilities stays below in this fraction of studies.

    The labels are drawn from the model's own probabilities, less often for more trials; an error below its null is no
    sign of miscalibration.
    """
    probs, _ = _forecasts(trials)
    if not len(probs):
        return {"ordinal_ece": float("nan"), "top_label_ece": float("nan")}
    rng = rng_for(seed, "calibration null", len(probs))
    luck = rng.random((len(probs), _null_draws(len(probs))), dtype=np.float32)
    labels = _drawn_labels(probs, luck)
    ordinal, top = _ordinal_errors(probs, labels), _top_label_errors(probs, labels)
    return {"ordinal_ece": float(np.quantile(ordinal, fraction)), "top_label_ece": float(np.quantile(top, fraction))}


def null_band(trials: TrialTable, seed: int, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return between which numbers the errors of a perfectly calibrated model with these probabilities lie.

    All trials of an episode share their luck, as they share their truth: they are not so many independent episodes.
    """
    known = ~np.isnan(trials.vectors("probabilities", 5)).any(axis=1) & ~np.isnan(trials.number("truth_level"))
    used = trials.where(known)
    if not len(used):
        return {name: (float("nan"), float("nan")) for name in (ordinal_ece.name, brier_score.name)}
    probs = used.vectors("probabilities", 5)
    _, episode = np.unique(used.codes("episode")[0], return_inverse=True)
    rng = rng_for(seed, "calibration null of episodes", len(probs))
    luck = rng.random((int(episode.max()) + 1, _null_draws(len(probs))), dtype=np.float32)
    labels = _drawn_labels(probs, luck[episode])
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    drawn = {ordinal_ece.name: _ordinal_errors(probs, labels), brier_score.name: _brier_scores(probs, labels)}
    bands = {name: np.quantile(errors, tails).tolist() for name, errors in drawn.items()}
    return {name: (low, high) for name, (low, high) in bands.items()}


def _null_draws(trials: int) -> int:
    return int(np.clip(_SIMULATED // trials, 50, 500))


def _drawn_labels(probs: Numbers, luck: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return true levels 0 to 4 drawn from the probabilities, one column per draw."""
    edges = np.cumsum(probs, axis=1)[:, :4].astype(np.float32)
    labels = np.zeros(luck.shape, dtype=np.int8)
    for k in range(4):
        labels += luck >= edges[:, k, None]
    return labels


def _brier_scores(probs: Numbers, labels: NDArray[np.int8]) -> Numbers:
    """Return the mean Brier score for each column of labels: |p|^2 - 2 p(label) + 1."""
    hit = np.take_along_axis(probs, labels.astype(np.int64), axis=1)
    scores: Numbers = ((probs**2).sum(axis=1)[:, None] + 1 - 2 * hit).mean(axis=0)
    return scores


def _confidence(probs: Numbers) -> tuple[Numbers, Codes]:
    """Return the top probability and its bin; the last bin is closed, so that 1 belongs to it."""
    confidence = probs.max(axis=1, initial=0)
    return confidence, np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def _top_label_errors(probs: Numbers, labels: NDArray[Any]) -> Numbers:
    """Return the error for each column of labels."""
    confidence, place = _confidence(probs)
    best = probs.argmax(axis=1).astype(labels.dtype)
    return _binned_gap(labels == best[:, None], confidence, place)


def _ordinal_errors(probs: Numbers, labels: NDArray[Any]) -> Numbers:
    above = 1 - np.cumsum(probs, axis=1)[:, :4]
    gaps = [_binned_gap(labels > k, above[:, k], _equal_mass(above[:, k])) for k in range(4)]
    mean: Numbers = np.mean(gaps, axis=0)
    return mean


def _equal_mass(forecast: Numbers) -> Codes:
    """Return a bin per forecast, with as many trials in each as ties allow: equal forecasts share a bin."""
    first_rank = np.searchsorted(np.sort(forecast), forecast, side="left")
    return first_rank * BINS // max(len(forecast), 1)


def _binned_gap(hits: NDArray[np.bool_], forecast: Numbers, place: Codes) -> Numbers:
    """Return, for each column of hits, the sum over bins of the gap between hits and forecasts, per trial."""
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    happened = np.add.reduceat(hits[order], starts, axis=0, dtype=np.float32)
    foretold = np.add.reduceat(forecast[order], starts)
    found: Numbers = np.abs(happened - foretold[:, None]).sum(axis=0) / len(hits)
    return found
