"""Ensembles of models: by vote, median or mean; where members disagree, the answer says so."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.records import read_checksummed_json
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.composite import name_composite, validated_answers
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.models.external import identity, options_of, read_arguments, shown_options
from rewardlab.models.model_string import ModelString, leave_to_members, option_text, with_options

WEIGHTS = "weights.json"  # {"weights": {member: number}}, as `rewardlab fit calibration ensemble:...` writes it
_TIE = 1e-9  # shares of votes closer than this are a tie

Numbers = NDArray[np.float64]
Rule = Literal["vote", "median", "mean"]
Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True)
class Ensemble:
    """Asks every member and combines the answers of those that give one."""

    names: tuple[str, ...]
    members: tuple[RewardModel, ...]
    by: Rule
    weights: tuple[float, ...]

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one combined answer per episode; a Failure only where no member answers."""
        by_member = [validated_answers(member, episodes) for member in self.members]
        return [self._combined(answers) for answers in zip(*by_member, strict=True)]

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


def ensemble_settings(
    names: Sequence[str],
    *,
    by: Annotated[Rule, Help("vote, median or mean of what the members say")] = "vote",
    weights: Annotated[str, Help("JSON file, or folder with a weights.json, of the weight of each member")] = "",
) -> tuple[Rule, tuple[float, ...]]:
    """Return how the members are combined, and the weight of each."""
    return by, _weights(weights, names) if weights else (1.0,) * len(names)


ENSEMBLE_SETTINGS = partial(ensemble_settings, ())


def name_ensemble(string: ModelString, name_model: Callable[[str], NamedModel]) -> NamedModel:
    """Name `ensemble:MEMBER,MEMBER,...?by=vote&weights=FILE`."""
    string = leave_to_members(string, options_of(ENSEMBLE_SETTINGS))
    text = string.argument
    written = [name.strip() for name in text.split(",")]
    if any(name.partition(":")[0] == "ensemble" for name in written):
        raise PlanError(f"the members of an ensemble are single models and no ensembles, got {text!r}")
    if len(written) < 2 or not all(written):
        raise PlanError(f"an ensemble needs two or more members, such as ensemble:pocket,length, got {text!r}")
    given: dict[str, Any] = read_arguments(string.name, ENSEMBLE_SETTINGS, string.options)
    members = [name_model(name) for name in written]
    names = tuple(member.name for member in members)
    if len({member.fingerprint for member in members}) < len(members):
        raise PlanError(f"the members of an ensemble are different models, got {text!r}")
    by, weights = ensemble_settings(names, **given)
    shown = shown_options(ENSEMBLE_SETTINGS, given)
    if "?" in names[-1] and not shown:  # else the options of the last member would be read as those of the ensemble
        shown = (("by", option_text(by)),)
    return name_composite(
        with_options(f"{string.name}:{','.join(names)}", shown),
        identity("ensemble", {"by": by, "weights": weights}),
        members,
        lambda built: Ensemble(names, tuple(built), by, weights),
    )


def _weights(text: str, names: Sequence[str]) -> tuple[float, ...]:
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
