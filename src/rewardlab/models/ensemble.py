"""Ensembles of models: by vote, median or mean; where members disagree, the answer says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.records import read_checksummed_json
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import CompositeEntry, Composition, RewardModel
from rewardlab.models.model_string import ModelString, one_of, option, read_options

WEIGHTS = "weights.json"  # {"weights": {member: number}}, as `rewardlab fit calibration ensemble:...` writes it
_TIE = 1e-9  # shares of votes closer than this are a tie

Numbers = NDArray[np.float64]
Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True)
class EnsembleOptions:
    """Options of `ensemble:`."""

    by: str = option("vote", "vote, median or mean of what the members say")
    weights: str = option("", "JSON file, or folder with a weights.json, of the weight of each member")

    def __post_init__(self) -> None:
        one_of("by", self.by, ("vote", "median", "mean"))


@dataclass(frozen=True)
class Ensemble:
    """Asks every member and combines the answers of those that give one."""

    names: tuple[str, ...]
    members: tuple[RewardModel, ...]
    by: str
    weights: tuple[float, ...]

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one combined answer per episode; a Failure only where no member answers."""
        by_member = [validated_answers(member, episodes) for member in self.members]
        return [self._combined(answers) for answers in zip(*by_member)]

    def _combined(self, answers: Sequence[Answer]) -> Answer:
        failed = {name: answer.reason for name, answer in zip(self.names, answers) if isinstance(answer, Failure)}
        scored = {name: answer for name, answer in zip(self.names, answers) if isinstance(answer, Score)}
        if not scored:
            return Failure("no member answered: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
        scores = list(scored.values())
        weights = np.array([weight for name, weight in zip(self.names, self.weights) if name in scored])
        levels = np.array([score.level for score in scores])
        level, probs = _combine(self.by, scores, weights / weights.sum())
        info = ScoreInfo(
            disagreement=round(float(levels.std()), 4),
            member_levels={name: score.level for name, score in scored.items()},
            member_failures=failed,
            input_tokens=_sum_of_known([answer.info.input_tokens for answer in answers]),
            output_tokens=_sum_of_known([answer.info.output_tokens for answer in answers]),
            cost=_sum_of_known([answer.info.cost for answer in answers]),
        )
        return Score(level, tuple(probs.tolist()), _mean_progress(scores), info=info)


def _sum_of_known(values: Sequence[Amount | None]) -> Amount | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _combine(by: str, scores: Sequence[Score], weights: Numbers) -> tuple[float, Numbers]:
    levels = np.array([score.level for score in scores])
    if by == "mean":
        probs = weights @ np.array([_probs(score) for score in scores])
        return float(np.clip(probs @ np.array(LEVELS), 1, 5)), probs
    shares = vote_shares(levels, weights)
    return (weighted_median(levels, weights) if by == "median" else majority(levels, weights)), shares


def vote_shares(levels: Numbers, weights: Numbers) -> Numbers:
    """Return the share of the votes for each level; a member votes for its level, rounded half up."""
    rounded = np.floor(levels + 0.5)
    shares: Numbers = np.array([weights[rounded == level].sum() for level in LEVELS]) / weights.sum()
    return shares


def majority(levels: Numbers, weights: Numbers) -> float:
    """Return the level with most votes, or the median of all members' levels where several have as many."""
    shares = vote_shares(levels, weights)
    winners = np.flatnonzero(shares >= shares.max() - _TIE)
    return float(LEVELS[winners[0]]) if len(winners) == 1 else weighted_median(levels, weights)


def weighted_median(levels: Numbers, weights: Numbers) -> float:
    """Return the level with half of the weight on either side; between two such levels, their middle."""
    order = np.argsort(levels, kind="stable")
    ordered, cumulative = levels[order], np.cumsum(weights[order]) / weights.sum()
    middle = int(np.searchsorted(cumulative, 0.5 - _TIE))
    if cumulative[middle] <= 0.5 + _TIE and middle + 1 < len(ordered):
        return float(ordered[middle] + ordered[middle + 1]) / 2
    return float(ordered[middle])


def _probs(score: Score) -> tuple[float, ...]:
    """Return a member's probabilities; one without is certain of its level, split over the two whole ones around it."""
    return score.probabilities or tuple(max(0.0, 1 - abs(score.level - level)) for level in LEVELS)


def _mean_progress(scores: Sequence[Score]) -> tuple[float, ...] | None:
    known = [score.progress for score in scores if score.progress is not None]
    return tuple(np.mean(known, axis=0).tolist()) if known else None


def _parse(string: ModelString) -> Composition:
    """Parse MEMBER,MEMBER,...?by=vote&weights=FILE."""
    text, options = string.argument, read_options(string.options, EnsembleOptions())
    names = tuple(name.strip() for name in text.split(","))
    if len(names) < 2 or not all(names):
        raise PlanError(f"an ensemble needs two or more members, such as ensemble:pocket,length, got {text!r}")
    if len(set(names)) < len(names) or any(name.partition(":")[0] == "ensemble" for name in names):
        raise PlanError(f"the members of an ensemble are different models and no ensembles, got {text!r}")
    weights = _weights(options.weights, names) if options.weights else (1.0,) * len(names)

    def combine(built: Sequence[RewardModel]) -> RewardModel:
        return Ensemble(names, tuple(built), options.by, weights)

    return Composition(names, digest(options.by, *weights), combine)


def _weights(text: str, names: tuple[str, ...]) -> tuple[float, ...]:
    path = Path(text) / WEIGHTS if Path(text).is_dir() else Path(text)
    try:
        found = read_checksummed_json(path)[0]["weights"]
        weights = tuple(float(found[name]) for name in names)
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise PlanError(
            f"weights={text}: expected a JSON file with a number for each of {', '.join(names)} under 'weights' "
            f"({type(error).__name__}: {error}); `rewardlab fit calibration ensemble:{','.join(names)} DATA` writes one"
        ) from error
    if not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise PlanError(f"weights={text}: every weight must be a number above 0, got {weights}")
    return weights


ENSEMBLE = CompositeEntry(
    "several models asked together; ensemble:pocket,length?by=vote, or by=median, mean; weights=FILE",
    _parse,
    options=(EnsembleOptions(),),
)
