"""Calibration by novelty: probabilities over the levels from a network's logits and how far its state is from training.

Novelty is the mean cosine distance to the five nearest states of training clips, as in out-of-distribution detection
with deep nearest neighbours (Sun et al., 2022). A linear map of the log-probabilities, which varies with the logarithm
of the novelty, gives the logits of what is told: it changes little where the state is familiar, and takes certainty
back where it is not.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from rewardlab.core.errors import ModelError

Floats = NDArray[np.float64]

LEVELS = 5
FEATURES = 2 * LEVELS + 1
_NEIGHBOURS = 5
_LEAST_LOG_PROB = -8.0  # so that one level of no probability at all does not decide alone
_LEAST_NOVELTY = 1e-4


@dataclass(frozen=True, eq=False)
class NoveltyCalibration:
    """The fitted map from `calibration_features` to logits, and the states that count as familiar."""

    weight: Floats  # (FEATURES, LEVELS)
    bias: Floats  # (LEVELS,)
    familiar: NDArray[np.float32]  # (N, width), each of length 1

    def probabilities(self, logits: Floats, novelty: Floats) -> Floats:
        """Return calibrated probabilities (n, 5) of logits (n, 5) whose states have the given novelty (n,)."""
        return mapped_probabilities(calibration_features(logits, novelty), self.weight, self.bias)


def calibration_features(logits: Floats, novelty: Floats) -> Floats:
    """Return what the linear map reads: log-probabilities, log novelty, and their products, (n, FEATURES)."""
    log_probs = np.maximum(log_softmax(logits, axis=1), _LEAST_LOG_PROB)
    log_novelty = np.log(np.maximum(novelty, _LEAST_NOVELTY))[:, None]
    return np.hstack([log_probs, log_novelty, log_probs * log_novelty])


def mapped_probabilities(features: Floats, weight: Floats, bias: Floats) -> Floats:
    """Return the probabilities (n, 5) that a linear map gives to features (n, FEATURES)."""
    probs: Floats = softmax(features @ weight + bias, axis=1)
    return probs


def knn_ood_score(states: NDArray[np.float32], familiar: NDArray[np.float32]) -> Floats:
    """Return for each state (n, width) the mean cosine distance to its nearest familiar states, 0 to 2."""
    count = min(_NEIGHBOURS, len(familiar))
    # Not by `@`: OpenBLAS would use all cores, and its threads then spin on, in the way of the next batch.
    cosines = np.einsum("nd,fd->nf", unit_length(states), familiar)
    nearest = np.partition(cosines, -count, axis=1)[:, -count:]
    distance: Floats = 1.0 - nearest.mean(axis=1, dtype=np.float64)
    return distance


def unit_length(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each state divided by its length."""
    scaled: NDArray[np.float32] = states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)
    return scaled.astype(np.float32)


def load_training_embeddings(path: Path) -> NDArray[np.float32]:
    """Read the states of training clips, float16 (N, width) in a .npy file."""
    try:
        states = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ModelError(f"{path} holds no states of training clips ({error}); export the model again") from error
    if states.ndim != 2 or not len(states) or states.dtype != np.float16 or not np.isfinite(states).all():
        raise ModelError(f"{path} must hold finite float16 rows of one width, got {states.dtype} {states.shape}")
    return unit_length(states.astype(np.float32))
