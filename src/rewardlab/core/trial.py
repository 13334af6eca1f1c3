"""Score, Failure, Trial, the check of an answer, and the names of graded perturbations such as `low_light@2.5`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rewardlab.core.errors import ModelError, ModelRaised
from rewardlab.core.limits import ANSWER_CHARACTERS

Category = Literal["visual", "semantic", "temporal", "domain", "pair"]
Expectation = Literal["same", "lower", "relabel", "reversed", "undefined"]
Status = Literal["scored", "failed", "dropped"]

_MAX_REASON = 2_000  # characters of an error that are kept
SEVERITIES = (0, 1, 2, 3, 4)
CLEAN = "clean"  # the name of the perturbation that changes nothing
CATEGORIES: tuple[Category, ...] = ("visual", "semantic", "temporal", "domain", "pair")  # of perturbations


@dataclass(frozen=True)
class Score:
    """A model's answer: a level in [1, 5] and, if it has them, probabilities over the levels and per-frame progress."""

    level: float
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None


@dataclass(frozen=True)
class Failure:
    """A model gave no usable answer; nothing stands in for it. `raw` is what it said, if it said anything."""

    reason: str
    raw: str | None = None


Answer = Score | Failure


def validate_answer(answer: object, shown_frames: int) -> Answer:
    """Return the answer if it keeps the contract, else the Failure that says how it broke it."""
    try:
        if isinstance(answer, Failure):
            return Failure(_bounded(answer.reason), None if answer.raw is None else _bounded(answer.raw))
        if not isinstance(answer, Score):
            return Failure(f"expected a Score or a Failure, got {type(answer).__name__}")
        score = _plain_score(answer)
        _check_score(score, shown_frames)
    except Exception as error:  # what a model puts into an answer may be an object of any kind
        return failure_of(error, with_type=not isinstance(error, ModelError | TypeError | ValueError))
    return score


def failure_of(error: BaseException, *, with_type: bool = True) -> Failure:
    """Return the Failure of a model that raised this."""
    return Failure(error_text(error, with_type=with_type and not isinstance(error, ModelRaised)))


def error_text(error: BaseException, *, with_type: bool = False) -> str:
    """Return what an error says as text that can be written, of bounded length, whatever its class does."""
    try:
        said = _printable(error)
    except Exception:
        said = "an error that cannot be told"
    return f"{type(error).__name__}: {said}"[:_MAX_REASON] if with_type else said[:_MAX_REASON]


def _plain_score(score: Score) -> Score:
    """Return the score in plain numbers and printable text, whatever kinds of numbers the model used."""
    if isinstance(score.level, str):
        raise ModelError(f"level must be a number from 1 to 5, got the text {score.level!r}")
    probs = None if score.probabilities is None else tuple(float(p) for p in score.probabilities)
    progress = None if score.progress is None else tuple(float(p) for p in score.progress)
    return Score(float(score.level), probs, progress, None if score.raw is None else _bounded(score.raw))


def _bounded(text: object) -> str:
    """Return text of a model; a longer one than is taken in is no answer."""
    found = _printable(text)
    if len(found) > ANSWER_CHARACTERS.value:
        raise ModelError(f"an answer of {len(found):,} characters, {ANSWER_CHARACTERS.describe()}")
    return found


def _printable(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()


def _check_score(score: Score, shown_frames: int) -> None:
    if not (math.isfinite(score.level) and 1 <= score.level <= 5):
        raise ModelError(f"level must be a number from 1 to 5, got {score.level}")
    probs = score.probabilities
    if probs is not None and not (len(probs) == 5 and all(0 <= p <= 1 for p in probs) and abs(sum(probs) - 1) < 1e-3):
        raise ModelError(f"probabilities must be five numbers that sum to 1, got {probs}")
    progress = score.progress
    if progress is not None and not (len(progress) == shown_frames and all(math.isfinite(p) for p in progress)):
        raise ModelError(f"progress must be {shown_frames} finite numbers, one per frame, got {len(progress)}")


@dataclass(frozen=True)
class Trial:
    """One trial: episode x perturbation x severity x model, with what was expected and what came."""

    id: str
    model: str
    episode: str
    video: str
    subset: str
    task: str
    perturbation: str
    category: str
    severity: int
    seed: int
    expectation: Expectation
    truth_level: int | None
    truth_success: bool | None
    truth_progress: tuple[float, ...] | None
    instruction: str
    shown: tuple[int, ...]
    frames_hash: str
    status: Status
    level: float | None = None
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None
    reason: str | None = None
    seconds: float = 0.0


# Names of perturbations at a severity between the whole ones: `low_light@2.3125`, and pairs `a@1.5+b@2`.

GradedPart = tuple[str, float]  # a perturbation and its severity, above 0 and at most 4
_PART = r"(.+?)@(\d+(?:\.\d+)?)"
_GRADED = re.compile(rf"{_PART}(?:\+{_PART})?")


def graded_name(parts: Sequence[GradedPart]) -> str:
    """Return the name; one change at a whole severity goes by its plain name, as in a stress test."""
    if len(parts) == 1 and parts[0][1] == int(parts[0][1]):
        return parts[0][0]
    return "+".join(f"{name}@{severity:g}" for name, severity in parts)


def graded_parts(name: str) -> tuple[GradedPart, ...]:
    """Return the changes and severities that a name states; none where it states no severity."""
    found = _GRADED.fullmatch(name)
    if found is None:
        return ()
    first, at, second, second_at = found.groups()
    return ((first, float(at)),) if second is None else ((first, float(at)), (second, float(second_at)))


Randomness = Literal["none", "per_clip", "per_frame", "ar1"]  # ar1: drawn per frame, correlated with the frame before
SeverityTable = tuple[Any, Any, Any, Any]  # the parameter at severities 1, 2, 3 and 4
