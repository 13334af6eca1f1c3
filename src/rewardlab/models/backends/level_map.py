"""From a similarity to a level of the rubric: a calibration that was fitted, or an order and no more."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.bounded_json import read_json
from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import PlanError
from rewardlab.models.calibrated import isotonic_steps

Floats = NDArray[np.float64]


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
            return _steps([float(number) for number in content["thresholds"]])
        return LevelMap(*(tuple(float(number) for number in content[key]) for key in ("similarities", "levels")))
    except FileNotFoundError:
        raise PlanError(f"there is no level map {path}; make one with fit_levels(...).write(path)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{path} is no level map: {type(error).__name__}: {error}") from error


def _steps(thresholds: Sequence[float]) -> LevelMap:
    if len(thresholds) != len(LEVELS) - 1:
        raise PlanError(f"thresholds are four rising numbers, where levels 2 to 5 begin, got {len(thresholds)}")
    places = [place for t in thresholds for place in (np.nextafter(t, -np.inf), t)]
    levels = [level for upper in LEVELS[1:] for level in (upper - 1, upper)]
    return LevelMap(tuple(map(float, places)), tuple(map(float, levels)))


def fit_levels(similarities: Sequence[float], levels: Sequence[float]) -> LevelMap:
    """Return the rising map from similarity to level with the least squared error (isotonic regression)."""
    if len(similarities) != len(levels) or not len(levels):
        raise PlanError(f"expected one level per similarity, got {len(levels)} and {len(similarities)}")
    ends = isotonic_steps(np.asarray(similarities, np.float64), np.asarray(levels, np.float64))
    return LevelMap(tuple(end for end, _ in ends), tuple(level for _, level in ends))
