"""Fitting pocket's calibration on tasks that trainings did not see: cross-fitted over folds, conformal over tasks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket.novelty_calibration import (
    FEATURES,
    LEVELS,
    calibration_features,
    mapped_probabilities,
    novelty_of,
    unit_length,
)
from rewardlab.runner.fit_calibration import conformal_quantile
from rewardlab.training.pocket.plan import PocketPlan, Training

Floats = NDArray[np.float64]

_COVERAGE = 0.9
_UNSEEN_SHARE = 0.5  # of the weight in the fit; the other half is on tasks that the training knew
_PENALTY = 1e-3  # on the squares of what is fitted
_PARTS = 5  # of the tasks, for the conformal threshold


@dataclass(frozen=True, eq=False)
class ProbedClips:
    """What trainings say of validation clips."""

    features: Floats  # (n, FEATURES)
    level: NDArray[np.int64]  # 1 to 5
    unseen: NDArray[np.bool_]  # whether the training never saw the clip's task
    task: NDArray[Any]

    def where(self, chosen: NDArray[np.bool_]) -> "ProbedClips":
        """Return the chosen clips."""
        return ProbedClips(self.features[chosen], self.level[chosen], self.unseen[chosen], self.task[chosen])


def fit_novelty_calibration(plan: PocketPlan, training: Training) -> dict[str, Any]:
    """Return the calibration of a training as its settings hold it, fitted on the other folds of the same variant.

    A calibration so never meets what its own training says of its unseen tasks; where a plan has one fold, it has to.
    """
    folds = [each for each in plan.trainings if each.variant == training.variant]
    others = [each for each in folds if each.fold != training.fold] or folds
    clips = _joined([probed_clips(plan, each) for each in others])
    weight, bias = fit_linear_map(clips)
    return {
        "calibration": {"weight": np.round(weight, 5).tolist(), "bias": np.round(bias, 5).tolist()},
        "conformal": round(_conformal_threshold(plan, clips), 6),
        "calibrated_on": {"folds": [each.fold for each in others], "clips": len(clips.level)},
    }


def familiar_states(plan: PocketPlan, training: Training) -> NDArray[np.float16]:
    """Return the states of a training's own training clips."""
    with np.load(_probe_file(plan, training)) as found:
        states: NDArray[np.float16] = found["trained/state"].astype(np.float16)
    return states


def probed_clips(plan: PocketPlan, training: Training, probe: str = "own") -> ProbedClips:
    """Return what a training says of the validation rollouts; where a plan has no unseen task, all count as unseen."""
    with np.load(_probe_file(plan, training)) as found:
        task, level = found[f"{probe}/task"], found[f"{probe}/level"].astype(np.int64)
        logits, states = found[f"{probe}/logits"].astype(np.float64), found[f"{probe}/state"].astype(np.float32)
        familiar = unit_length(found["trained/state"].astype(np.float32))
    names = plan.unseen(training.fold)
    unseen = np.isin(task, names) if names else np.ones(len(task), bool)
    return ProbedClips(calibration_features(logits, novelty_of(states, familiar)), level, unseen, task)


def fit_linear_map(clips: ProbedClips) -> tuple[Floats, Floats]:
    """Return weight (FEATURES, LEVELS) and bias (LEVELS,) of least cross-entropy, seen and unseen weighing the same."""
    centre, scale = clips.features.mean(axis=0), clips.features.std(axis=0) + 1e-6
    design = np.hstack([(clips.features - centre) / scale, np.ones((len(clips.level), 1))])
    truth, importance = np.eye(LEVELS)[clips.level - 1], _importance(clips.unseen)

    def loss(flat: Floats) -> tuple[float, Floats]:
        logits = design @ flat.reshape(-1, LEVELS)
        error = softmax(logits, axis=1) - truth
        value = -importance @ (log_softmax(logits, axis=1) * truth).sum(axis=1) + _PENALTY * flat @ flat
        return float(value), (design.T @ (importance[:, None] * error)).ravel() + 2 * _PENALTY * flat

    start = np.zeros((FEATURES + 1) * LEVELS)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x.reshape(-1, LEVELS)
    weight = found[:-1] / scale[:, None]
    return weight, found[-1] - centre @ weight


def _importance(unseen: NDArray[np.bool_]) -> Floats:
    if unseen.all() or not unseen.any():
        return np.full(len(unseen), 1 / len(unseen))
    importance: Floats = np.where(unseen, _UNSEEN_SHARE / unseen.sum(), (1 - _UNSEEN_SHARE) / (~unseen).sum())
    return importance


def _conformal_threshold(plan: PocketPlan, clips: ProbedClips) -> float:
    """Return the least probability of a level in a 90 % set, from tasks each judged by a map fitted without them."""
    names = np.unique(clips.task)
    part_of = dict(zip(names, rng_for(plan.seed, "conformal parts").permutation(len(names)) % _PARTS))
    parts = np.array([part_of[task] for task in clips.task])
    scores = []
    for part in np.unique(parts):
        judged = clips.where((parts == part) & clips.unseen)
        fitted = clips.where(parts != part) if (parts != part).any() else clips
        weight, bias = fit_linear_map(fitted)
        probs = mapped_probabilities(judged.features, weight, bias)
        scores.append(1 - probs[np.arange(len(judged.level)), judged.level - 1])
    quantile = conformal_quantile(np.concatenate(scores), _COVERAGE)
    return 0.0 if quantile is None else 1 - quantile


def _joined(parts: list[ProbedClips]) -> ProbedClips:
    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return ProbedClips(column("features"), column("level"), column("unseen"), column("task"))


def _probe_file(plan: PocketPlan, training: Training) -> Path:
    return plan.out / f"{training.name}-probes.npz"
