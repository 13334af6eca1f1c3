"""Score with its info, Failure, Trial, the check of an answer, and names of perturbations such as `low_light@2.5`."""

import math
import re
import traceback
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

from rewardlab.core.episode import FAILURE_CAUSES
from rewardlab.core.errors import ModelError, ModelRaised, RewardlabError
from rewardlab.core.limits import ANSWER_CHARACTERS

Category = Literal["visual", "semantic", "temporal", "domain", "pair"]
Expectation = Literal["same", "lower", "relabel", "reversed", "undefined"]
Status = Literal["scored", "failed", "dropped"]
Decision = Literal["pass", "hold", "fallback", "abstain"]  # of a guard

_MAX_REASON = 2_000  # characters of an error that are kept
_MAX_TRACEBACK = 6_000  # characters, of its end
_PACKAGE = Path(__file__).parents[1]
_MAX_TOKENS = 10**15
_MOST_PROGRESS = 1e15  # what 32 bits hold well
SEVERITIES = (0, 1, 2, 3, 4)
SUCCESS_LEVEL = 5  # the level of the rubric at which the task is done
MIDWAY = "midway:"  # before the name of a perturbation that begins in the middle of the clip
STAGE = "#stage"  # behind the id of an episode, with a number: the question about one of its stages
CLEAN = "clean"  # the name of the perturbation that changes nothing
NO_FAILURE = "none"  # in place of a cause: the rollout did not fail
FAILURE_ANSWERS = (NO_FAILURE, *FAILURE_CAUSES)
CATEGORIES: tuple[Category, ...] = ("visual", "semantic", "temporal", "domain", "pair")  # of perturbations


@dataclass(frozen=True)
class GuardVerdict:
    """What a guard decided: the answer passes, is held at level 4, is a fallback model's, or is withheld."""

    decision: Decision  # what became of the answer: pass, hold, fallback or abstain
    risk: float  # estimated probability that a claimed success is false
    success_probability: float | None = None  # probability of success, as the guarded model gave it
    shift: dict[str, float] = field(default_factory=dict, hash=False)  # distances from reference data, in deviations


@dataclass(frozen=True)
class ScoreInfo:
    """What is known about an answer beside the answer; None or empty where nothing is known."""

    prediction_set: tuple[int, ...] | None = None  # levels that hold the true one with probability `set_coverage`
    set_coverage: float | None = None  # share of clips whose true level is in the set
    novelty: float | None = None  # distance of the clip, as the model reads it, from its training data
    unfamiliar: bool | None = None  # whether the clip is unlike the training data of the model
    training_distance: float | None = None  # distance of the clip that decides this
    distance_limit: float | None = None  # above this training distance a clip is unfamiliar
    unfamiliar_because: str | None = None  # what is unlike training, where it is not the distance
    disagreement: float | None = None  # standard deviation of the levels of the members of an ensemble
    uncalibrated_level: float | None = None  # the level before a calibration
    member_levels: dict[str, float] = field(default_factory=dict, hash=False)  # levels of the members of an ensemble
    member_failures: dict[str, str] = field(default_factory=dict, hash=False)  # why members gave no level
    skipped_members: int | None = None  # members that an ensemble with early exit did not ask
    frame_quality: dict[str, float] = field(default_factory=dict, hash=False)  # measured when a guard is fitted
    precision: str | None = None  # numeric mode, where it is not float32
    input_tokens: int | None = None  # tokens that a server read for this answer
    output_tokens: int | None = None  # tokens that a server wrote for this answer
    cost: float | None = None  # of the answer, in the currency of the model's prices
    log_probability: float | None = None  # of the one answer that a protocol asks about, such as TOPReward's True
    normalised_instruction: str | None = None  # instruction that the model saw in place of the one given
    failure_cause: str | None = None  # why the rollout failed, as the model says; `none` where it did not fail
    failure_probabilities: dict[str, float] = field(default_factory=dict, hash=False)  # of every cause, and of `none`
    failure_frame: int | None = None  # number of the shown frame, from 0, at which the model says that it failed
    failure_text: str | None = None  # what a language model said when it was asked why
    abstained: bool | None = None  # whether it answered that the clip does not show it; None where it could not
    abstention_probability: float | None = None  # that it would answer so
    guard: GuardVerdict | None = None


@dataclass(frozen=True)
class Score:
    """A model's answer: a level in [1, 5] and, if it has them, probabilities over the levels and per-frame progress.

    `raw` is what a language model said, as text; `info` is what else is known about the answer.
    """

    level: float
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None
    info: ScoreInfo = ScoreInfo()


@dataclass(frozen=True)
class Failure:
    """A model gave no usable answer; nothing stands in for it. `raw` is what it said, if it said anything.

    `traceback` shows where the model's code raised; it stays on this machine: no server sends it.
    """

    reason: str
    raw: str | None = None
    info: ScoreInfo = ScoreInfo()
    traceback: str | None = None


Answer = Score | Failure


def validate_answer(answer: object, shown_frames: int) -> Answer:
    """Return the answer if it keeps the contract, else the Failure that says how it broke it; a number is a level."""
    try:
        if isinstance(answer, Failure):
            return Failure(
                _bounded(answer.reason),
                _text_or_none(answer.raw),
                checked_info(answer.info),
                _text_or_none(answer.traceback),
            )
        if isinstance(answer, Real) and not isinstance(answer, bool):
            answer = Score(float(answer))
        if not isinstance(answer, Score):
            hint = "; a tensor of one number is float(tensor)" if type(answer).__name__ == "Tensor" else ""
            return Failure(f"expected a Score, a number from 1 to 5 or a Failure, got {type(answer).__name__}{hint}")
        return _checked_score(answer, shown_frames)
    except Exception as error:  # what a model puts into an answer may be an object of any kind
        return failure_of(error, with_type=not isinstance(error, ModelError | TypeError | ValueError))


def failure_of(error: BaseException, *, with_type: bool = True) -> Failure:
    """Return the Failure of a model that raised this."""
    said = error_text(error, with_type=with_type and not isinstance(error, ModelRaised))
    return Failure(said, traceback=error_traceback(error))


def error_traceback(error: BaseException) -> str | None:
    """Return the traceback from the model's own code on; None for an error that rewardlab raises on purpose."""
    if isinstance(error, ModelRaised):
        return error.traceback
    if isinstance(error, RewardlabError):
        return None
    own = error.__traceback__
    while own is not None and Path(own.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        own = own.tb_next
    try:
        lines = traceback.format_exception(type(error), error, own or error.__traceback__)
    except Exception:  # its class is the model's own, and may do anything
        return None
    return _printable("".join(lines).rstrip())[-_MAX_TRACEBACK:]


def error_text(error: BaseException, *, with_type: bool = False) -> str:
    """Return what an error says as text that can be written, of bounded length, whatever its class does."""
    try:
        said = _printable(error)
    except Exception:
        said = "an error that cannot be told"
    return f"{type(error).__name__}: {said}"[:_MAX_REASON] if with_type else said[:_MAX_REASON]


def _checked_score(score: Score, shown_frames: int) -> Score:
    """Return the score in plain numbers and printable text, whatever kinds of numbers the model used."""
    level, probs, progress = _float(score.level), _floats(score.probabilities), _floats(score.progress)
    raw, info = _text_or_none(score.raw), checked_info(score.info)
    if not (math.isfinite(level) and 1 <= level <= 5):
        raise ModelError(f"level must be a number from 1 to 5, got {_printable(repr(score.level))[:60]}")
    if probs is not None and not (len(probs) == 5 and all(0 <= p <= 1 for p in probs) and abs(sum(probs) - 1) < 1e-3):
        given = _printable(score.probabilities)[:120]
        raise ModelError(f"probabilities must be five numbers that sum to 1, got {given}")
    if progress is not None and not (len(progress) == shown_frames and all(abs(p) <= _MOST_PROGRESS for p in progress)):
        raise ModelError(f"progress must be {shown_frames} finite numbers, one per frame, got {len(progress)}")
    return Score(level, probs, progress, raw, info)


def _floats(given: Any) -> tuple[float, ...] | None:
    """Return numbers in their order; what has none, such as a mapping, counts as no number at all."""
    return None if given is None else tuple(map(_float, () if isinstance(given, Mapping | Set) else given))


def _float(given: Any) -> float:
    """Return a number of any library; NaN for what Python would merely turn into one, such as a text or a truth."""
    if isinstance(given, str | bytes | bool) or type(given).__name__ == "bool":  # NumPy's has this name too
        return math.nan
    try:
        return float(given)
    except (TypeError, ValueError):
        return math.nan


def _text_or_none(text: object) -> str | None:
    return None if text is None else _bounded(text)


def _bounded(text: object) -> str:
    """Return text of a model; a longer one than is taken in is no answer."""
    found = _printable(text)
    if len(found) > ANSWER_CHARACTERS.value:
        raise ModelError(f"an answer of {len(found):,} characters, {ANSWER_CHARACTERS.describe()}")
    return found


def _printable(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()


def checked_info(info: object) -> ScoreInfo:
    """Return the info in plain numbers and texts; a ModelError names the field that cannot be."""
    if not isinstance(info, ScoreInfo):
        raise ModelError(f"info must be a ScoreInfo, got {type(info).__name__}")
    probs = info.failure_probabilities
    return ScoreInfo(
        None if info.prediction_set is None else _levels(info.prediction_set),
        _number_or_none("set_coverage", info.set_coverage, 0, 1),
        _number_or_none("novelty", info.novelty),
        _flag_or_none("unfamiliar", info.unfamiliar),
        _number_or_none("training_distance", info.training_distance),
        _number_or_none("distance_limit", info.distance_limit),
        _text_or_none(info.unfamiliar_because),
        _number_or_none("disagreement", info.disagreement, 0, 4),
        _number_or_none("uncalibrated_level", info.uncalibrated_level, 1, 5),
        _numbers("member_levels", info.member_levels, 1, 5),
        {name: _bounded(reason) for name, reason in _named("member_failures", info.member_failures).items()},
        _count_or_none("skipped_members", info.skipped_members),
        _numbers("frame_quality", info.frame_quality),
        _text_or_none(info.precision),
        _count_or_none("input_tokens", info.input_tokens),
        _count_or_none("output_tokens", info.output_tokens),
        _number_or_none("cost", info.cost, 0, 1e15),
        _number_or_none("log_probability", info.log_probability),
        _text_or_none(info.normalised_instruction),
        _cause_or_none(info.failure_cause),
        {_cause_or_none(name) or "": p for name, p in _numbers("failure_probabilities", probs, 0, 1).items()},
        _count_or_none("failure_frame", info.failure_frame),
        _text_or_none(info.failure_text),
        _flag_or_none("abstained", info.abstained),
        _number_or_none("abstention_probability", info.abstention_probability, 0, 1),
        None if info.guard is None else _checked_verdict(info.guard),
    )


def _cause_or_none(cause: object) -> str | None:
    known = next((each for each in FAILURE_ANSWERS if each == cause), None)
    if cause is not None and known is None:
        raise ModelError(f"info.failure_cause must be one of {', '.join(FAILURE_ANSWERS)}, got {str(cause)[:60]!r}")
    return known


def _levels(given: Sequence[int]) -> tuple[int, ...]:
    levels = list(given)
    known = tuple(level for level in (1, 2, 3, 4, 5) if level in levels)
    if levels != list(known):
        raise ModelError(f"info.prediction_set must hold rising levels from 1 to 5, got {str(given)[:60]}")
    return known


def _checked_verdict(verdict: object) -> GuardVerdict:
    if not isinstance(verdict, GuardVerdict) or verdict.decision not in get_args(Decision):
        raise ModelError(f"info.guard must be a GuardVerdict with one of its decisions, got {str(verdict)[:60]}")
    return GuardVerdict(
        verdict.decision,
        _number("guard.risk", verdict.risk, 0, 1),
        _number_or_none("guard.success_probability", verdict.success_probability, 0, 1),
        _numbers("guard.shift", verdict.shift),
    )


def _number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a number of any kind as a float."""
    number = _float(value)
    if not (math.isfinite(number) and least <= number <= most):
        raise ModelError(f"info.{name} must be a finite number from {least:g} to {most:g}, got {str(value)[:60]!r}")
    return number


def _number_or_none(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float | None:
    return None if value is None else _number(name, value, least, most)


def _numbers(name: str, values: object, least: float = -math.inf, most: float = math.inf) -> dict[str, float]:
    given = _named(name, values).items()
    return {key: _number(f"{name}[{key[:60]!r}]", value, least, most) for key, value in given}


def _named(name: str, values: object) -> dict[str, Any]:
    """Return values by their names, as plain texts of bounded length together."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ModelError(f"info.{name} must be values by name, got {type(values).__name__}")
    _bounded("".join(f"{key}{value}" for key, value in values.items()))
    return {_printable(key): value for key, value in values.items()}


def _count_or_none(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= _MAX_TOKENS):
        raise ModelError(f"info.{name} must be a whole number, got {str(value)[:60]!r}")
    return value


def _flag_or_none(name: str, value: Any) -> bool | None:
    if value not in (None, True, False):
        raise ModelError(f"info.{name} must be true or false, got {str(value)[:60]!r}")
    return None if value is None else bool(value)


# The info of an answer as JSON holds it: what is not known is left out.


def info_to_json(info: ScoreInfo) -> dict[str, Any]:
    """Return the fields that are known."""
    found = {name: value for name, value in vars(info).items() if value not in (None, {})}
    return found | ({"guard": dict(vars(info.guard))} if info.guard is not None else {})


def info_from_json(content: object) -> ScoreInfo:
    """Return the info that JSON holds, not yet checked; fields that this version does not know are passed over."""
    known = _known_fields(ScoreInfo, {} if content is None else content)
    if known.get("guard") is not None:
        known["guard"] = GuardVerdict(**{"decision": None, "risk": None, **_known_fields(GuardVerdict, known["guard"])})
    return ScoreInfo(**known)


def _known_fields(kind: type[ScoreInfo] | type[GuardVerdict], content: object) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ModelError(f"a {kind.__name__} must be a JSON object, got {type(content).__name__}")
    return {each.name: content[each.name] for each in fields(kind) if each.name in content}


def familiarity_sentence(info: ScoreInfo) -> str:
    """Return in plain words whether the clip is like the model's training data; empty where the model cannot tell."""
    if info.unfamiliar is None:
        return ""
    distance, limit = info.training_distance, info.distance_limit
    facts = ""
    if distance is not None and limit is not None:
        digits = 2 if f"{distance:.2f}" != f"{limit:.2f}" else 4  # so that they differ as shown
        facts = f" (distance {distance:.{digits}f}, limit {limit:.{digits}f})"
    if not info.unfamiliar:
        return f"within its training data{facts}"
    if info.unfamiliar_because:
        facts = f" ({info.unfamiliar_because})"
    return f"unlike its training data{facts}: do not use this answer"


_IN_SENTENCE = ("set_coverage", "unfamiliar", "training_distance", "distance_limit", "unfamiliar_because")


def describe_info(info: ScoreInfo) -> str:
    """Return what is known in one line for people, without the `familiarity_sentence`; empty where nothing is."""
    parts = []
    if info.prediction_set is not None:
        share = (
            "" if info.set_coverage is None else f" in {100 * info.set_coverage:g} % of clips like its training data"
        )
        parts.append(f"prediction set {', '.join(map(str, info.prediction_set))} (holds the true level{share})")
    if info.novelty is not None:
        parts.append(f"novelty {info.novelty:.4g} (higher is less certain)")
    for name, value in vars(info).items():
        if isinstance(value, float | int | str) and name not in (*_IN_SENTENCE, "novelty"):
            parts.append(f"{name.replace('_', ' ')} {f'{value:.4g}' if isinstance(value, float) else value}")
    if info.member_levels or info.member_failures:
        levels = [f"{name} {level:g}" for name, level in info.member_levels.items()]
        parts.append(f"members {', '.join([*levels, *(f'{name} failed' for name in info.member_failures)])}")
    if info.guard is not None:
        parts.append(f"guard: {info.guard.decision}, risk {info.guard.risk:.2f}")
    return "; ".join(parts)


@dataclass(frozen=True)
class Trial:
    """One episode under one perturbation at one severity, scored by one model: what was expected and what came."""

    id: str  # content address: model, episode, perturbation, severity, seed and frames make it
    model: str  # model string, without options about speed
    episode: str  # id of the episode in its dataset
    video: str  # digest of the video file
    subset: str  # part of the dataset, such as its source; metrics average over subsets
    task: str  # task of the episode; episodes of a task are resampled together
    perturbation: str  # name of the perturbation; `clean` for none
    category: str  # visual, semantic, temporal, domain or pair; `clean` for none
    severity: int  # 0 (clean) to 4
    seed: int  # seed of the run
    expectation: Expectation  # what a sound model must do: same, lower, relabel, reversed; or undefined
    truth_level: int | None  # true level from 1 to 5
    truth_success: bool | None  # whether the task is done
    truth_progress: tuple[float, ...] | None  # true progress at each frame shown
    instruction: str  # what the robot was asked to do, as shown to the model
    shown: tuple[int, ...]  # indices of the frames shown
    frames_hash: str  # digest of the frames shown; empty where none could be made
    status: Status  # scored, failed (the model gave no answer) or dropped (the perturbation does not apply)
    level: float | None = None  # the model's level from 1 to 5
    probabilities: tuple[float, ...] | None = None  # the model's probabilities of the five levels
    progress: tuple[float, ...] | None = None  # the model's progress at each frame shown; 1 is done
    raw: str | None = None  # what a language model said
    reason: str | None = None  # why the trial failed or was dropped
    traceback: str | None = None  # where the model's code raised
    seconds: float = 0.0  # time of the model: its share of the batch
    embodiment: str | None = None  # the robot, where it is stated
    perspective: str | None = None  # the camera, where it is stated
    truth_stages: tuple[int, ...] | None = None  # stage after stage, at each frame shown: done (1) or not (0)
    truth_failure_cause: str | None = None  # why the rollout failed
    truth_failure_frame: int | None = None  # number of the shown frame, from 0, from which on that can be seen
    drawn: str | None = None  # the perturbation that `random:CATEGORY` drew for this episode; missing for others
    repeat: int | None = None  # 1, 2, ...: the same question asked again, for the noise floor; missing the first time
    info: ScoreInfo = ScoreInfo()


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
