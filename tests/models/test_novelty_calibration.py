"""Calibration by novelty: what is far from training gets less certain answers, and bad files are told."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from rewardlab.core.errors import ModelError
from rewardlab.models.pocket.inference import (
    FEATURES,
    LEVELS,
    NoveltyCalibration,
    calibration_features,
    knn_ood_score,
    load_training_embeddings,
    unit_length,
)


def test_novelty_is_the_mean_cosine_distance_to_the_five_nearest() -> None:
    familiar = unit_length(np.array([[1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1]], np.float32))
    states = np.array([[3, 0], [0, 2], [-1, 0]], np.float32)
    assert knn_ood_score(states, familiar) == pytest.approx([0.0, 0.8, 1.8])


def test_a_map_that_keeps_the_log_probabilities_keeps_the_answer() -> None:
    weight = np.zeros((FEATURES, LEVELS))
    weight[:LEVELS] = np.eye(LEVELS)
    calibration = NoveltyCalibration(weight, np.zeros(LEVELS), np.eye(5, dtype=np.float32))
    logits = np.array([[0.0, 1.0, 2.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0, -2.0]])
    assert calibration.probabilities(logits, np.array([0.1, 0.5])) == pytest.approx(softmax(logits, axis=1))


def test_features_stay_finite_for_a_level_of_no_probability_and_a_state_of_no_novelty() -> None:
    found = calibration_features(np.array([[900.0, -900.0, 0.0, 0.0, 0.0]]), np.array([0.0]))
    assert found.shape == (1, FEATURES) and np.isfinite(found).all()


@pytest.mark.parametrize(
    "states",
    [
        np.zeros((0, 8), np.float16),
        np.zeros((9, 8), np.float64),
        np.full((9, 8), np.nan, np.float16),
        np.zeros(9, "f2"),
    ],
    ids=["empty", "double", "nan", "flat"],
)
def test_states_that_cannot_be_compared_are_refused(states: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", states)
    with pytest.raises(ModelError, match="finite float16 rows of one width"):
        load_training_embeddings(tmp_path / "x.npy")


def test_a_file_that_would_execute_code_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError, match="is not a file of training states"):
        load_training_embeddings(tmp_path / "x.npy")
