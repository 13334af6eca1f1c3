"""Fitting the calibration of pocket: sure where the task is known, wide where it is not, judged on tasks left out."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rewardlab.models.pocket.inference import NoveltyCalibration, knn_ood_score, unit_length
from rewardlab.training.pocket import PocketSettings, Training, pocket_settings
from rewardlab.training.pocket.calibration import fit_novelty_calibration

WIDTH = 8


def write_probes(plan: PocketSettings, fold: int) -> None:
    """A model that is right on tasks it knows, and says 1 of all others, whose states are far from training."""
    rng = np.random.default_rng(fold)
    tasks = np.repeat(np.array(plan.all_tasks), 20)
    level = rng.integers(1, 6, len(tasks))
    unseen = np.isin(tasks, plan.unseen(fold))
    said = np.where(unseen, 1, level)
    states = rng.normal(0, 0.1, (len(tasks), WIDTH)) + np.where(unseen[:, None], np.eye(WIDTH)[0], np.eye(WIDTH)[1])
    known = rng.normal(0, 0.1, (50, WIDTH)) + np.eye(WIDTH)[1]
    logits = 6 * np.eye(5)[said - 1] + rng.normal(0, 0.5, (len(tasks), 5))
    np.savez(
        plan.out / f"pocket-fold{fold}-probes.npz",
        **{"own/task": tasks, "own/level": level, "own/logits": logits, "own/state": states, "trained/state": known},
    )


def test_it_is_wide_where_the_training_is_lost_and_narrow_where_it_is_not(tmp_path: Path) -> None:
    plan = pocket_settings(variants=("pocket",), folds=("0", "1", "2"), out=tmp_path)
    for fold in (0, 1, 2):
        write_probes(plan, fold)
    found = fit_novelty_calibration(plan, Training("pocket", 0))
    assert found["calibrated_on"] == {"folds": [1, 2], "clips": 2000}
    with np.load(tmp_path / "pocket-fold0-probes.npz") as probes:
        unseen = np.isin(probes["own/task"], plan.unseen(0))
        familiar = unit_length(probes["trained/state"].astype(np.float32))
        fitted = found["calibration"]
        calibration = NoveltyCalibration(np.array(fitted["weight"]), np.array(fitted["bias"]), familiar)
        novelty = knn_ood_score(probes["own/state"].astype(np.float32), familiar)
        sets = calibration.probabilities(probes["own/logits"], novelty) >= found["conformal"]
        level = probes["own/level"]
    holds = sets[np.arange(len(level)), level - 1]
    assert holds[unseen].mean() > 0.85 and sets[unseen].sum(axis=1).mean() > 4
    assert holds[~unseen].mean() > 0.95 and sets[~unseen].sum(axis=1).mean() < 1.5


def test_one_fold_alone_is_calibrated_on_itself(tmp_path: Path) -> None:
    plan = pocket_settings(variants=("pocket",), folds=("3",), out=tmp_path)
    write_probes(plan, 3)
    assert fit_novelty_calibration(plan, Training("pocket", 3))["calibrated_on"]["folds"] == [3]
