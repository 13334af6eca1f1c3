"""What a condition gives on average, without sampling; each function takes many noise scales at once."""

import numpy as np
from scipy.special import ndtr

from rewardlab.studies.perturbation_paper.simulated.study_config import StudyConfig, Values, clipped

BINS = 10  # equal bins of predicted progress for the calibration error
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_SMALLEST = 1e-12  # stands in for a scale of nothing where a formula divides by it


def closed_form(study: StudyConfig, competence: Values) -> dict[str, Values]:
    """Return accuracy, tau, calibration error and mean absolute error at each competence."""
    scale = study.scale(competence)
    return {
        "accuracy": accuracy(scale, study.truth),
        "tau": tau(scale, study.steps, study.rho),
        "ece": calibration_error(scale, study.truth),
        "mae": scale * np.sqrt(2 / np.pi),
    }


def mean_over_drift(study: StudyConfig, centre: Values) -> dict[str, tuple[Values, Values]]:
    """Return mean and standard deviation of each closed form over the noise that Eq. 1 adds to competence."""
    drawn = clipped(centre[..., None] + study.drift * _NODES)
    weights = _WEIGHTS / _WEIGHTS.sum()
    found = {}
    for name, values in closed_form(study, drawn).items():
        mean = values @ weights
        found[name] = (mean, np.sqrt(np.maximum((values**2) @ weights - mean**2, 0)))
    return found


def accuracy(scale: Values, truth: Values) -> Values:
    """Return the chance that a step is put on its side of one half, averaged over steps."""
    return np.asarray(1 - step_error_rates(scale, truth).mean(axis=-1))


def step_error_rates(scale: Values, truth: Values) -> Values:
    """Return the chance of a wrong side per step (last axis); a noiseless model is never wrong."""
    margin = np.abs(truth - 0.5)
    wide = np.asarray(scale, dtype=np.float64)[..., None]
    return np.where(wide > 0, np.asarray(ndtr(-margin / np.maximum(wide, _SMALLEST))), 0.0)


def tau(scale: Values, steps: int, rho: float) -> Values:
    """Return the expected tau-b of an evenly rising episode: pairs that lie equally far apart are alike."""
    lag = np.arange(1, steps)
    spread = np.maximum(np.asarray(scale)[..., None], _SMALLEST) * np.sqrt(2 * (1 - rho**lag))
    ordered = 2 * ndtr(lag / steps / spread) - 1
    pairs = (steps - lag) / (steps * (steps - 1) / 2)
    return np.asarray(ordered @ pairs)


def calibration_error(scale: Values, truth: Values) -> Values:
    """Return how far true progress lies from predicted progress, cut to [0, 1], on average over bins of the latter."""
    wide = np.maximum(np.asarray(scale, dtype=np.float64), _SMALLEST)[..., None, None]
    z = (np.linspace(0, 1, BINS + 1) - truth[:, None]) / wide
    below, density = ndtr(z), np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    above = ndtr(-z[..., -1])
    mass = np.diff(below, axis=-1)
    said = truth[:, None] * mass - wide * np.diff(density, axis=-1)
    mass[..., 0] += below[..., 0]  # predictions below 0 count as 0
    mass[..., -1] += above  # and those above 1 as 1
    said[..., -1] += above
    return np.asarray(np.abs((truth[:, None] * mass - said).mean(axis=-2)).sum(axis=-1))


def vote_accuracy(scale: Values, truth: Values, correlation: float) -> Values:
    """Return the accuracy of the majority of three alike members whose errors are correlated."""
    if correlation == 1:
        return accuracy(scale, truth)
    margin = np.abs(truth - 0.5) / np.maximum(np.asarray(scale, dtype=np.float64)[..., None], _SMALLEST)
    shared = np.linspace(-8.5, 8.5, 4001)
    weight = np.exp(-(shared**2) / 2)
    wrong = ndtr((np.sqrt(correlation) * shared - margin[..., None]) / np.sqrt(1 - correlation))
    lost = (3 * wrong**2 - 2 * wrong**3) @ (weight / weight.sum())
    return np.asarray(1 - lost.mean(axis=-1))
