"""`MODEL+FOLDER`: temperature, isotonic maps (also similarity to level), prediction sets."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.records import read_json
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.composite import name_composite, read_fitted, validated_answers
from rewardlab.models.contract import NamedModel, RewardModel, identity

VERSION = 1  # of the behaviour: raise it whenever the same calibration gives other answers
MIN_PROB = 1e-6  # a level said to be impossible counts as this probable: no evidence rules anything out for good

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """What was fitted: a temperature for probabilities, or an isotonic map from predicted to calibrated levels.

    `steps` are the ends of the map's flat parts. `threshold` is the conformal quantile: a level with a higher
    nonconformity leaves the prediction set, which holds the truth with the stated coverage; None where there were too
    few episodes to exclude any level.
    """

    temperature: float | None
    steps: tuple[tuple[float, float], ...]
    coverage: float
    threshold: float | None

    def __post_init__(self) -> None:
        if self.temperature is None and not self.steps:
            raise ValueError("neither a temperature nor steps")
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if any(len(step) != 2 for step in self.steps):
            raise ValueError("steps must be pairs of a predicted and a calibrated level")
        if not all(low[0] < high[0] for low, high in pairwise(self.steps)):
            raise ValueError("the predicted levels of the steps must rise")


@dataclass(frozen=True)
class Calibrated:
    """A model with its calibration."""

    model: RewardModel
    calibration: Calibration

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the calibrated answers; their info holds the prediction set and the level before calibration."""
        return [self._calibrated(answer) for answer in validated_answers(self.model, episodes)]

    def _calibrated(self, answer: Answer) -> Answer:
        if isinstance(answer, Failure):
            return answer
        calibrated = apply_calibration(answer, self.calibration)
        info = replace(
            answer.info,
            prediction_set=tuple(prediction_set(calibrated, self.calibration)),
            set_coverage=self.calibration.coverage,
            uncalibrated_level=answer.level,
        )
        return replace(calibrated, info=info)


def apply_temperature(probs: Floats, temperature: float) -> Floats:
    """Return probabilities over the last axis flattened (above 1) or sharpened (below 1)."""
    logits = np.log(np.maximum(probs, MIN_PROB)) / temperature
    unnormalised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scaled: Floats = unnormalised / unnormalised.sum(axis=-1, keepdims=True)
    return scaled


def isotonic_steps(predicted: Floats, truth: Floats) -> tuple[tuple[float, float], ...]:
    """Return the isotonic regression of truth on prediction: the ends of its flat parts, as pairs of both."""
    from scipy.optimize import isotonic_regression

    values, group = np.unique(predicted, return_inverse=True)
    count = np.bincount(group).astype(np.float64)
    fitted = isotonic_regression(np.bincount(group, truth) / count, weights=count).x
    flat = np.concatenate([[False], np.diff(fitted) == 0, [False]])
    ends = ~(flat[:-1] & flat[1:])  # a point inside a flat part adds nothing to the map
    return tuple((float(value), float(level)) for value, level in zip(values[ends], fitted[ends], strict=True))


def apply_calibration(score: Score, calibration: Calibration) -> Score:
    """Return the score with calibrated probabilities and its own level, or, without any, with a calibrated level."""
    if calibration.temperature is None:
        predicted, calibrated = zip(*calibration.steps, strict=True)
        return replace(score, level=float(np.interp(score.level, predicted, calibrated)), probabilities=None)
    if score.probabilities is None:
        return score
    probs = apply_temperature(np.array(score.probabilities), calibration.temperature)
    return replace(score, probabilities=tuple(probs.tolist()))


def nonconformity(score: Score) -> Floats:
    """Return the nonconformity of each level: 1 - its probability, or its distance from the predicted level."""
    if score.probabilities is None:
        return np.abs(np.array(LEVELS) - score.level)
    return 1 - np.array(score.probabilities)


def prediction_set(calibrated: Score, calibration: Calibration) -> list[int]:
    """Return the levels within the conformal quantile; the one of least nonconformity always is."""
    by_probs = calibration.temperature is not None
    if calibration.threshold is None or by_probs != (calibrated.probabilities is not None):
        return list(LEVELS)
    values = nonconformity(calibrated)
    quantile = max(calibration.threshold, float(values.min()))
    return [level for level, value in zip(LEVELS, values, strict=True) if value <= quantile]


def name_calibrated(name: str, model: NamedModel, path: Path) -> NamedModel:
    """Name a model with the calibration in this file, which must have been fitted for it."""
    calibration, _ = read_fitted(path, "calibration", model, Calibration, "fitted")
    fitted = identity("calibrated", {"version": VERSION, **asdict(calibration)})
    made = name_composite(name, fitted, [model], lambda built, _: Calibrated(built[0], calibration))
    return replace(made, prompt=model.prompt)


# From a similarity to a level of the rubric: a calibration that was fitted, or an order and no more.


@dataclass(frozen=True)
class LevelMap:
    """Levels at rising similarities; straight lines between them, flat outside."""

    similarities: tuple[float, ...]
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(np.diff(self.similarities) >= 0) and all(np.diff(self.levels) >= 0)
        inside = all(LEVELS[0] <= level <= LEVELS[-1] for level in self.levels)
        if not self.levels or len(self.levels) != len(self.similarities) or not rising or not inside:
            raise PlanError(
                "a level map has as many similarities as levels, both rising, and levels from 1 to 5, "
                f"got {len(self.similarities)} similarities and {len(self.levels)} levels"
            )

    def level(self, similarity: float) -> float:
        """Return the level of a similarity."""
        return float(np.interp(similarity, self.similarities, self.levels))

    def write(self, path: Path) -> None:
        """Save the map, to be named as `contrastive:...?levels=FILE`."""
        path.write_text(json.dumps({"similarities": self.similarities, "levels": self.levels}) + "\n", encoding="utf-8")


UNCALIBRATED = LevelMap((-1.0, 1.0), (1.0, 5.0))  # 3 + 2 * similarity: says which is higher, not how high it is


def read_level_map(path: Path) -> LevelMap:
    """Read a saved map, or `{"thresholds": [a, b, c, d]}`, where levels 2, 3, 4 and 5 begin."""
    try:
        content = read_json(path)
        if "thresholds" in content:
            thresholds = [float(number) for number in content["thresholds"]]
            if len(thresholds) != len(LEVELS) - 1:
                raise PlanError(f"thresholds are four rising numbers, where levels 2 to 5 begin, got {len(thresholds)}")
            places = [float(place) for t in thresholds for place in (np.nextafter(t, -np.inf), t)]
            return LevelMap(tuple(places), tuple(float(level) for upper in LEVELS[1:] for level in (upper - 1, upper)))
        return LevelMap(*(tuple(float(number) for number in content[key]) for key in ("similarities", "levels")))
    except FileNotFoundError:
        raise PlanError(f"there is no level map {path}; make one with fit_levels(...).write(path)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is no level map: {type(error).__name__}: {error}") from error


def fit_levels(similarities: Sequence[float], levels: Sequence[float]) -> LevelMap:
    """Return the rising map from similarity to level with the least squared error (isotonic regression)."""
    require_packages("fit_levels", "scipy", extra="fit")
    if len(similarities) != len(levels) or not len(levels):
        raise PlanError(f"expected one level per similarity, got {len(levels)} and {len(similarities)}")
    ends = isotonic_steps(np.asarray(similarities, np.float64), np.asarray(levels, np.float64))
    return LevelMap(tuple(end for end, _ in ends), tuple(level for _, level in ends))
