"""A guarded model: it says how far each answer may be trusted, and withholds successes that are too doubtful.

The guard estimates the probability that a claimed success is true from what the model says (probability of success,
size of its prediction set, novelty, disagreement of members) and from how far the clip is from reference data (frame
quality, instruction). A success whose risk is above the threshold is handled by the policy; other answers pass, for
they claim nothing. The threshold is fitted by conformal risk control (Angelopoulos et al., 2024).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import RewardModel
from rewardlab.models.guard.clip_quality import episode_quality
from rewardlab.models.guard.instruction_distance import nearest_distance
from rewardlab.models.trust import SUCCESS_LEVEL, trust_of

POLICIES = ("pass", "hold", "fallback", "abstain")
QUALITY = ("sharpness", "noise", "exposure", "contrast", "saturation", "freeze", "jump")

Numbers = NDArray[np.float64]

_FARTHEST = 6.0  # standard deviations; beyond, farther counts no more
_LEAST_PROB = 1e-4
_SUCCESS_FROM = SUCCESS_LEVEL - 0.5  # a level rounds to a success from here on


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
        whole = len(lengths) == 1 and len(self.weights) == inputs_of(self.names)
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
        return dict(zip(self.names, values.tolist()))


def risk_inputs(names: Sequence[str], standardised: Numbers) -> Numbers:
    """Return what the risk is computed from, (n, k): every feature but frame quality, which counts as one distance.

    Seven numbers of frame quality would each learn the few perturbations that a guard is fitted on.
    """
    bounded = np.clip(standardised, -_FARTHEST, _FARTHEST)
    quality = np.isin(names, QUALITY)
    distance = np.sqrt((bounded[:, quality] ** 2).mean(axis=1)) if quality.any() else np.empty((len(bounded), 0))
    return np.column_stack([bounded[:, ~quality], distance])


def inputs_of(names: Sequence[str]) -> int:
    """Return how many numbers `risk_inputs` makes of these features."""
    return sum(name not in QUALITY for name in names) + any(name in QUALITY for name in names)


def claims_success(score: Score) -> bool:
    """Tell whether a score rounds to a success."""
    return score.level >= _SUCCESS_FROM


def answer_features(score: Score) -> dict[str, float]:
    """Return what the answer itself says about how far it may be trusted; only what this model can say."""
    trust, found = trust_of(score), dict[str, float]()
    if "success_probability" in trust:
        p = min(max(float(trust["success_probability"]), _LEAST_PROB), 1 - _LEAST_PROB)
        found["success_logit"] = math.log(p / (1 - p))
    if isinstance(trust.get("set"), list):
        found["set_size"] = float(len(trust["set"]))
    if "novelty" in trust:
        found["log_novelty"] = math.log(max(float(trust["novelty"]), _LEAST_PROB))
    if "disagreement" in trust:
        found["disagreement"] = float(trust["disagreement"])
    return found


@dataclass(frozen=True)
class Probe:
    """A model whose answers note the frame quality of the clip, from which a guard is fitted."""

    model: RewardModel

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the model's answers with what a guard would read of them."""
        answers = validated_answers(self.model, episodes)
        return [_noted(answer, episode) for answer, episode in zip(answers, episodes)]


def _noted(answer: Answer, episode: Episode) -> Answer:
    if isinstance(answer, Failure):
        return answer
    features = episode_quality(episode) | answer_features(answer)
    return replace(answer, raw=json.dumps({"features": features}))


@dataclass(frozen=True)
class Guarded:
    """A model behind its guard; `fallback` answers in its place where the policy says so."""

    model: RewardModel
    guard: Guard
    fallback: RewardModel | None = None

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the answers, each with its trust; a doubtful success is held back, replaced or refused."""
        answers = validated_answers(self.model, episodes)
        judged = [self._judged(answer, episode) for answer, episode in zip(answers, episodes)]
        doubtful = [index for index, (_, passes) in enumerate(judged) if not passes]
        found = [answer for answer, _ in judged]
        if self.fallback is not None and doubtful:
            others = validated_answers(self.fallback, [episodes[index] for index in doubtful])
            for index, other in zip(doubtful, others):
                found[index] = _replaced(found[index], other)
        return found

    def _judged(self, answer: Answer, episode: Episode) -> tuple[Answer, bool]:
        """Return the answer with its trust, as the policy leaves it, and whether it passes."""
        if isinstance(answer, Failure):
            return answer, True
        distance = nearest_distance(episode.instruction, self.guard.instructions)
        features = episode_quality(episode) | answer_features(answer) | {"instruction_distance": distance}
        risk = self.guard.risk(features)
        passes = not claims_success(answer) or self.guard.passes(risk)
        verdict = "pass" if passes or self.guard.policy == "pass" else self.guard.policy
        trust = trust_of(answer) | {"verdict": verdict, "risk": round(risk, 4), "shift": self._shift(features)}
        noted = replace(answer, raw=json.dumps({"trust": trust, "raw": answer.raw}, ensure_ascii=False))
        return _by_policy(noted, verdict, risk), passes

    def _shift(self, features: Mapping[str, float]) -> dict[str, float]:
        known = {name for name in self.guard.names if math.isfinite(features.get(name, math.nan))}
        if known != set(self.guard.names):
            return {}
        moved = self.guard.standardised(features)
        return {
            name: round(moved[name], 2) for name in (*QUALITY, "log_novelty", "instruction_distance") if name in moved
        }


def _by_policy(score: Score, verdict: str, risk: float) -> Answer:
    if verdict == "hold":  # not done yet: nothing is paid for a success that is in doubt
        return replace(score, level=SUCCESS_LEVEL - 1.0, probabilities=None)
    if verdict == "abstain":
        return Failure(
            f"the guard abstains: this success is false with an estimated probability of {risk:.2f}", score.raw
        )
    return score


def _replaced(guarded: Answer, other: Answer) -> Answer:
    note = json.dumps({"trust": trust_of(guarded), "raw": other.raw}, ensure_ascii=False)
    return replace(other, raw=note)


def require_policy(policy: str, fallback: str) -> None:
    """Check a policy and the model that it falls back to."""
    if policy not in POLICIES:
        raise PlanError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if (policy == "fallback") != bool(fallback):
        raise PlanError("policy fallback needs the model to fall back to in --fallback, and no other policy does")
