"""`MODEL+FOLDER` with guard.json: the risk of a claimed success, and what is done about it.

The guard estimates the probability that a claimed success is true from what the model says (probability of success,
size of its prediction set, novelty, disagreement of members) and from how far the clip is from reference data (frame
quality, instruction). A success whose risk is above the threshold is handled by the policy; other answers pass, for
they claim nothing. The threshold is fitted by conformal risk control (Angelopoulos et al., 2024).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, Indices, is_success, show_only
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import SUCCESS_LEVEL, Answer, Decision, Failure, GuardVerdict, Score
from rewardlab.models.composite import name_composite, read_fitted, validated_answers
from rewardlab.models.contract import Budget, NamedModel, RewardModel, identity

_MOST_FRAMES = 16  # of a clip that are looked at
_SAME = 0.05  # mean absolute difference of grey values under which a frame is the one before it, frozen
_EPSILON = 1e-3

Numbers = NDArray[np.float64]


def episode_quality(episode: Episode) -> dict[str, float]:
    """Return the frame quality of an episode, of which only the frames that are looked at are read."""
    return clip_quality(show_only(episode, _picks(len(episode.clip))).frames)


def clip_quality(frames: Frames) -> dict[str, float]:
    """Return blur, noise, exposure, contrast and saturation of the frames, and how they freeze and jump."""
    import cv2

    shown = [np.ascontiguousarray(frames[index]) for index in _picks(len(frames))]
    greys = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in shown]
    residuals = [cv2.absdiff(grey, cv2.medianBlur(grey, 3)) for grey in greys]
    steps = np.array([cv2.absdiff(before, after).mean() for before, after in pairwise(greys)])
    by_frame = {
        "sharpness": [np.log(cv2.Laplacian(grey, cv2.CV_64F).var() + _EPSILON) for grey in greys],
        "noise": [np.log(residual.mean() + _EPSILON) for residual in residuals],
        "exposure": [grey.mean() for grey in greys],
        "contrast": [grey.std() for grey in greys],
        "saturation": [(frame.max(axis=-1) - frame.min(axis=-1)).mean() for frame in shown],
    }
    return {name: float(np.mean(values)) for name, values in by_frame.items()} | {
        "freeze": float((steps < _SAME).mean()) if len(steps) else 0.0,
        "jump": float(steps.max() / (np.median(steps) + 1)) if len(steps) else 0.0,
    }


def _picks(count: int) -> Indices:
    return np.linspace(0, count - 1, min(count, _MOST_FRAMES)).round().astype(np.int64)


# How far an instruction is from those of the reference data, by its letters: 0 is one of them, 1 shares nothing.

_LENGTH = 3  # letters that are counted together


def nearest_distance(instruction: str, known: Iterable[str]) -> float:
    """Return the cosine distance of letter trigrams to the nearest known instruction; 1 where none is known."""
    own = _trigrams(instruction)

    def distance(other: Counter[str]) -> float:
        product = sum(count * other[key] for key, count in own.items())
        lengths = sum(n * n for n in own.values()) * sum(n * n for n in other.values())
        return max(0.0, 1 - product / lengths**0.5) if lengths else 1.0

    return min((distance(_trigrams(each)) for each in known), default=1.0)


def distances(instructions: Sequence[str], groups: Sequence[str]) -> list[float]:
    """Return the distance of each instruction to the nearest one of another group: what it would be, were it new."""
    grouped = list(zip(groups, instructions, strict=True))
    known = set(grouped)
    found = {
        (group, instruction): nearest_distance(instruction, [other for g, other in known if g != group])
        for group, instruction in known
    }
    return [found[each] for each in grouped]


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.lower().split())} "
    return Counter(padded[start : start + _LENGTH] for start in range(len(padded) - _LENGTH + 1))


VERSION = 2  # of the behaviour: raise it whenever the same guard gives other answers
POLICIES: tuple[str, ...] = get_args(Decision)
QUALITY = ("sharpness", "noise", "exposure", "contrast", "saturation", "freeze", "jump")

_FARTHEST = 6.0  # standard deviations; beyond, farther counts no more
_LEAST_PROB = 1e-4
_HELD_LEVEL = SUCCESS_LEVEL - 1.0  # of a success that policy `hold` holds back
_HELD_PROGRESS = (_HELD_LEVEL - 1) / (SUCCESS_LEVEL - 1)  # the most that it leaves to any frame


@dataclass(frozen=True)
class Guard:
    """What was fitted; `threshold` is the highest risk at which a success passes, None where none may."""

    names: tuple[str, ...]  # of the features
    centers: tuple[float, ...]  # of each feature in the reference data, and its scale
    scales: tuple[float, ...]
    weights: tuple[float, ...]  # of what `risk_inputs` makes of the features
    bias: float
    threshold: float | None
    instructions: tuple[str, ...]  # of the reference data
    false_success: float  # the rate that the threshold was fitted for
    policy: str

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.names, self.centers, self.scales)}
        inputs = sum(name not in QUALITY for name in self.names) + any(name in QUALITY for name in self.names)
        whole = len(lengths) == 1 and len(self.weights) == inputs
        if not whole or self.policy not in POLICIES or not all(scale > 0 for scale in self.scales):
            raise ValueError("the parts of the guard do not belong together")

    def risk(self, features: Mapping[str, float]) -> float:
        """Return the estimated probability that a claimed success is none; 1 where a feature is missing."""
        if any(not math.isfinite(features.get(name, math.nan)) for name in self.names):
            return 1.0
        inputs = risk_inputs(self.names, np.array([list(self.standardised(features).values())]))
        logit = self.bias + float(inputs[0] @ np.array(self.weights))
        return float(1 / (1 + np.exp(np.clip(logit, -50, 50))))

    def passes(self, risk: float) -> bool:
        """Tell whether a claimed success of this risk passes."""
        return self.threshold is not None and risk <= self.threshold

    def standardised(self, features: Mapping[str, float]) -> dict[str, float]:
        """Return each feature in standard deviations from the reference data."""
        values = (np.array([features[name] for name in self.names]) - self.centers) / self.scales
        return dict(zip(self.names, values.tolist(), strict=True))


def risk_inputs(names: Sequence[str], standardised: Numbers) -> Numbers:
    """Return what the risk is computed from, (n, k): every feature but frame quality, which counts as one distance.

    Seven numbers of frame quality would each learn the few perturbations that a guard is fitted on.
    """
    bounded = np.clip(standardised, -_FARTHEST, _FARTHEST)
    quality = np.isin(names, QUALITY)
    distance = np.sqrt((bounded[:, quality] ** 2).mean(axis=1)) if quality.any() else np.empty((len(bounded), 0))
    return np.column_stack([bounded[:, ~quality], distance])


def answer_features(score: Score) -> dict[str, float]:
    """Return what the answer tells about its uncertainty; only what this model knows."""
    info, found = score.info, dict[str, float]()
    if score.probabilities is not None:
        p = min(max(score.probabilities[SUCCESS_LEVEL - 1], _LEAST_PROB), 1 - _LEAST_PROB)
        found["success_logit"] = math.log(p / (1 - p))
    if info.prediction_set is not None:
        found["set_size"] = float(len(info.prediction_set))
    if info.novelty is not None:
        found["log_novelty"] = math.log(max(info.novelty, _LEAST_PROB))
    if info.disagreement is not None:
        found["disagreement"] = info.disagreement
    return found


@dataclass(frozen=True)
class Probe:
    """A model whose answers hold the frame quality of the clip, from which a guard is fitted."""

    model: RewardModel

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the model's answers with the frame quality of each clip."""
        answers = validated_answers(self.model, episodes)
        return [
            replace(answer, info=replace(answer.info, frame_quality=episode_quality(episode)))
            for answer, episode in zip(answers, episodes, strict=True)
        ]


@dataclass(frozen=True)
class Guarded:
    """A model behind its guard; `fallback` answers in its place where the policy says so."""

    model: RewardModel
    guard: Guard
    fallback: RewardModel | None = None

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the answers, each with the guard's verdict; a doubtful success is held back, replaced or withheld."""
        answers = validated_answers(self.model, episodes)
        judged = [self._judged(answer, episode) for answer, episode in zip(answers, episodes, strict=True)]
        doubtful = [index for index, (_, passes) in enumerate(judged) if not passes]
        found = [answer for answer, _ in judged]
        if self.fallback is not None and doubtful:
            others = validated_answers(self.fallback, [episodes[index] for index in doubtful])
            for index, other in zip(doubtful, others, strict=True):
                found[index] = replace(other, info=replace(other.info, guard=found[index].info.guard))
        return found

    def _judged(self, answer: Answer, episode: Episode) -> tuple[Answer, bool]:
        """Return the answer with its verdict, as the policy leaves it, and whether it passes."""
        if isinstance(answer, Failure):
            return answer, True
        distance = nearest_distance(episode.instruction, self.guard.instructions)
        features = episode_quality(episode) | answer_features(answer) | {"instruction_distance": distance}
        risk = self.guard.risk(features)
        passes = not is_success(answer.level) or self.guard.passes(risk)
        success = None if answer.probabilities is None else answer.probabilities[SUCCESS_LEVEL - 1]
        decision = "pass" if passes else cast(Decision, self.guard.policy)  # checked when the guard was made
        verdict = GuardVerdict(decision, round(risk, 4), success, self._shift(features))
        score = replace(answer, info=replace(answer.info, guard=verdict))
        if decision == "hold":  # not done yet: no frame may be paid as a success that is in doubt
            progress = None if score.progress is None else tuple(min(value, _HELD_PROGRESS) for value in score.progress)
            return replace(score, level=_HELD_LEVEL, probabilities=None, progress=progress), passes
        if decision == "abstain":
            reason = f"the guard abstains: this success is false with an estimated probability of {risk:.2f}"
            return Failure(reason, score.raw, score.info), passes
        return score, passes

    def _shift(self, features: Mapping[str, float]) -> dict[str, float]:
        if not all(math.isfinite(features.get(name, math.nan)) for name in self.guard.names):
            return {}
        moved = self.guard.standardised(features)
        shown = (*QUALITY, "log_novelty", "instruction_distance")
        return {name: round(moved[name], 2) for name in shown if name in moved}


def require_policy(policy: str, fallback: str) -> None:
    """Check a policy and the model that it falls back to."""
    if policy not in POLICIES:
        raise PlanError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if (policy == "fallback") != bool(fallback):
        raise PlanError("policy fallback needs the model to fall back to in --fallback, and no other policy does")


def name_guarded(name: str, model: NamedModel, path: Path, name_fallback: Callable[[str], NamedModel]) -> NamedModel:
    """Name a model with the guard in this file, which must have been fitted for it."""
    guard, record = read_fitted(path, "guard", model, Guard, "guard", "fallback")
    fallback = str(record["fallback"])
    members = [model, *([name_fallback(fallback)] if fallback else [])]

    def combine(built: Sequence[RewardModel], _budget: Budget) -> RewardModel:
        return Guarded(built[0], guard, built[1] if len(built) > 1 else None)

    fitted = identity("guarded", {"version": VERSION, **asdict(guard)})
    return replace(name_composite(name, fitted, members, combine), prompt=model.prompt, caveat=model.caveat)
