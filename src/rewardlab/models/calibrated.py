"""MODEL+FOLDER: a model whose answers are calibrated by what `rewardlab calibrate` fitted for it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.composite import ask, name_compound
from rewardlab.models.contract import NamedModel, Recipe, RewardModel

CALIBRATION = "calibration.json"
LEAST_PROB = 1e-6  # a level said to be impossible counts as this probable: no evidence rules anything out for good

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """What was fitted: a temperature for probabilities, or steps from levels said to levels meant; and a threshold.

    `threshold` is how strange a level may be to stay in the set that holds the truth with the stated coverage; None
    where too few episodes were there to exclude any level.
    """

    temperature: float | None
    steps: tuple[tuple[float, float], ...]
    coverage: float
    threshold: float | None


@dataclass(frozen=True)
class Calibrated:
    """A model with its calibration."""

    model: RewardModel
    calibration: Calibration

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the calibrated answers; `raw` holds the set of levels, and what the model itself said."""
        return [self._one(answer) for answer in ask(self.model, episodes)]

    def _one(self, answer: Answer) -> Answer:
        if isinstance(answer, Failure):
            return answer
        calibrated = apply_calibration(answer, self.calibration)
        note = {"set": level_set(calibrated, self.calibration), "coverage": self.calibration.coverage}
        note |= {"level": answer.level, "raw": answer.raw}
        return replace(calibrated, raw=json.dumps(note, ensure_ascii=False, separators=(",", ":")))


def apply_temperature(probs: Numbers, temperature: float) -> Numbers:
    """Return probabilities over the last axis flattened (above 1) or sharpened (below 1)."""
    logs = np.log(np.maximum(probs, LEAST_PROB)) / temperature
    raised = np.exp(logs - logs.max(axis=-1, keepdims=True))
    found: Numbers = raised / raised.sum(axis=-1, keepdims=True)
    return found


def apply_calibration(score: Score, calibration: Calibration) -> Score:
    """Return the score with calibrated probabilities and its own level, or with a calibrated level where it has none."""
    if calibration.temperature is None:
        said, meant = zip(*calibration.steps)
        return replace(score, level=float(np.interp(score.level, said, meant)), probabilities=None)
    if score.probabilities is None:
        return score
    probs = apply_temperature(np.array(score.probabilities), calibration.temperature)
    return replace(score, probabilities=tuple(probs.tolist()))


def nonconformity(score: Score) -> Numbers:
    """Return how strange each level would be as the truth: its improbability, or its distance from the level said."""
    if score.probabilities is None:
        return np.abs(np.array(LEVELS) - score.level)
    return 1 - np.array(score.probabilities)


def level_set(calibrated: Score, calibration: Calibration) -> list[int]:
    """Return the levels that stay possible; the least strange one always does."""
    by_chance = calibration.temperature is not None
    if calibration.threshold is None or by_chance != (calibrated.probabilities is not None):
        return list(LEVELS)
    strange = nonconformity(calibrated)
    limit = max(calibration.threshold, float(strange.min()))
    return [level for level, value in zip(LEVELS, strange) if value <= limit]


def split_calibration(text: str) -> tuple[str, Path] | None:
    """Return the model and the calibration that MODEL+PATH names; None where no + is followed by a calibration."""
    places = [place for place, sign in enumerate(text) if sign == "+"]
    for place in places:
        with suppress(OSError):  # such as a name too long for any file
            path = Path(text[place + 1 :])
            if (path / CALIBRATION).is_file():
                return text[:place], path / CALIBRATION
            if path.suffix == ".json" and path.is_file():
                return text[:place], path
    return None


def name_calibrated(name: str, model: NamedModel, path: Path) -> NamedModel:
    """Name a model with the calibration in this file, which must have been fitted for it."""
    record = _record(path)
    if record["fingerprint"] != model.fingerprint:
        whom = "another version of it" if record["model"] == model.name else str(record["model"])
        raise PlanError(
            f"{path} was not fitted for {model.name} but for {whom}; run `rewardlab calibrate {model.name} DATA`"
        )
    calibration = _calibration(path, record)
    identity = digest(json.dumps(asdict(calibration), sort_keys=True))
    recipe = Recipe((model.name,), identity, lambda built: Calibrated(built[0], calibration))
    return name_compound(name, recipe, [model])


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} cannot be read as a calibration ({error}); run `rewardlab calibrate` again") from error
    if not isinstance(record, dict) or not {"model", "fingerprint", "fitted"} <= record.keys():
        raise PlanError(f"{path} is no calibration; `rewardlab calibrate MODEL DATA` writes one")
    return record


def _calibration(path: Path, record: dict[str, Any]) -> Calibration:
    try:
        fitted = Calibration(**record["fitted"])
        steps = tuple((float(said), float(meant)) for said, meant in fitted.steps)
        if fitted.temperature is None and not steps:
            raise ValueError("neither a temperature nor steps")
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"{path} holds another kind of calibration ({error}); run `rewardlab calibrate` again"
        ) from error
    return replace(fitted, steps=steps)
