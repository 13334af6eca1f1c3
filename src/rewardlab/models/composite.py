"""Models made of other models, and ensembles by vote, median or mean.

A process builds each member once, and asks it about the same episode once.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS, Episode, strip_labels
from rewardlab.core.errors import ModelError, PlanError, RewardlabError, StopRun, WorkerFailed, WrongAnswerCount
from rewardlab.core.records import read_checksummed_json, record_from_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo, error_traceback, failure_of, validate_answer
from rewardlab.models.contract import (
    Budget,
    ModelString,
    NamedModel,
    RewardModel,
    identity,
    leave_to_members,
    option_text,
    options_of,
    question_key,
    read_arguments,
    shown_options,
    with_options,
)

Fitted = TypeVar("Fitted")

_SHOWN_TRACEBACK = 1_500  # characters of the traceback of a model that cannot be built
MAX_CACHED = 4096  # answers cached per model: far more than are asked for between two models of a batch


@dataclass(frozen=True, eq=False)
class CachedModel:
    """A model that several others ask: the same content gets the answer it got before."""

    model: RewardModel
    cache: dict[str, Answer] = field(default_factory=dict)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one answer per episode; only those not in the cache are judged."""
        hashes = [question_key(episode.hash) for episode in episodes]
        new = {key: episode for key, episode in zip(hashes, episodes, strict=True) if key not in self.cache}
        if new:
            answers = list(self.model.score(list(new.values())))
            if len(answers) != len(new):
                raise WrongAnswerCount(wrong_count(len(new), len(answers)))
            self.cache.update(zip(new, answers, strict=True))
        found = [self.cache[key] for key in hashes]
        for oldest in list(self.cache)[: len(self.cache) - MAX_CACHED]:
            del self.cache[oldest]
        return found


@dataclass(frozen=True)
class WithoutLabels:
    """A member that may not see the truth, among members that do."""

    model: RewardModel

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return what the model says of the episodes without their truth."""
        return self.model.score([strip_labels(episode) for episode in episodes])


def name_composite(
    name: str,
    identity: str,
    members: Sequence[NamedModel],
    combine: Callable[[Sequence[RewardModel], Budget], RewardModel],
) -> NamedModel:
    """Name a model made of others; `identity` is what else, beside the members, its answers depend on."""
    see = tuple(member.sees_truth for member in members)
    sees_truth = any(see)

    def combined(built: Sequence[RewardModel], budget: Budget) -> RewardModel:
        shown = [m if sees == sees_truth else WithoutLabels(m) for sees, m in zip(see, built, strict=True)]
        return combine(shown, budget)

    return NamedModel(
        name,
        digest(identity, *(member.fingerprint for member in members)),
        sees_truth,
        None,
        exclusive=any(member.exclusive for member in members),
        members=tuple(members),
        combine=combined,
        trained_tasks=tuple(sorted({task for member in members for task in member.trained_tasks})),
        trained_on=tuple(dict.fromkeys(name for member in members for name in member.trained_on))
        if all(member.trained_on for member in members)
        else (),
        server=next((member.server for member in members if member.server), ""),
        deterministic=all(member.deterministic for member in members),
    )


def read_fitted(
    path: Path, what: str, model: NamedModel, kind: Callable[..., Fitted], key: str, *others: str
) -> tuple[Fitted, dict[str, Any]]:
    """Return the calibration or guard under `key` that was fitted for this very model, and the whole record."""
    again = f"run `rewardlab fit {what}` again"
    try:
        record, _ = read_checksummed_json(path)
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} cannot be read as a {what} ({error}); {again}") from error
    if not {"model", "fingerprint", key, *others} <= record.keys():
        raise PlanError(f"{path} is no {what}; `rewardlab fit {what} MODEL DATA` writes one")
    if record["fingerprint"] != model.fingerprint:
        other = "another version of it" if record["model"] == model.name else record["model"]
        raise PlanError(
            f"{path} was not fitted for {model.name} but for {other}; run `rewardlab fit {what} {model.name} DATA`"
        )
    try:
        return record_from_json(kind, record[key]), record
    except ValueError as error:
        raise PlanError(f"{path} holds another kind of {what} ({error}); {again}") from error


def build_all(
    models: Mapping[str, NamedModel], budget: Budget, build: Callable[[NamedModel, Budget], RewardModel]
) -> dict[str, RewardModel]:
    """Build the models of a run; one that is asked by several is built once and its answers are cached."""
    uses = Counter(model.fingerprint for top in models.values() for model in _with_members(top))
    shared: dict[str, RewardModel] = {}

    def built(model: NamedModel) -> RewardModel:
        if model.fingerprint in shared:
            return shared[model.fingerprint]
        members = [built(member) for member in model.members]
        made = build(model, budget) if model.combine is None else model.combine(members, budget)
        if uses[model.fingerprint] > 1:
            shared[model.fingerprint] = made = CachedModel(made)
        return made

    return {name: built(model) for name, model in models.items()}


def has_outside_code(model: NamedModel) -> bool:
    """Tell whether a model, or a member of it, is code from outside this package."""
    return any(each.isolated for each in _with_members(model))


def build_model(model: NamedModel, budget: Budget) -> RewardModel:
    """Build a model; whatever code from outside raises becomes a sentence with its name, and the traceback below it."""
    try:
        return model.build(budget)
    except RewardlabError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        trace = f"\n{error_traceback(error) or ''}"[-_SHOWN_TRACEBACK:]
        raise ModelError(f"{model.name} raised {type(error).__name__}{': ' * bool(said)}{said}{trace}") from error


def validated_answers(model: RewardModel, episodes: Sequence[Episode]) -> list[Answer]:
    """Return one checked answer per episode; where a batch fails as a whole, each episode is asked alone."""
    try:
        given: Sequence[Answer] | Exception = list(model.score(episodes))
    except (StopRun, WorkerFailed):
        raise
    except Exception as error:  # whatever a user's model does becomes a counted Failure
        given = error
    answers = checked_answers(given, episodes)
    if isinstance(answers, list):
        return answers
    if len(episodes) == 1:
        return [answers]
    return [answer for episode in episodes for answer in validated_answers(model, [episode])]


def checked_answers(given: Sequence[Answer] | Exception, episodes: Sequence[Episode]) -> list[Answer] | Failure:
    """Return one checked answer per episode, or the one Failure of a model that raised.

    A wrong number of answers is the Failure of every episode: it would come again, and nobody would be told.
    """
    if isinstance(given, Exception) and not isinstance(given, WrongAnswerCount):
        return failure_of(given)
    if isinstance(given, Exception) or len(given) != len(episodes):
        said = str(given) if isinstance(given, Exception) else wrong_count(len(episodes), len(given))
        return [Failure(said)] * len(episodes)
    return [validate_answer(answer, len(episode.clip)) for answer, episode in zip(given, episodes, strict=True)]


def wrong_count(asked: int, got: object) -> str:
    """Return what a model is told that gives more or fewer answers than it was shown episodes."""
    return f"{got} answers to a batch of {asked}: score(episodes) must return one per episode, in order"


def _with_members(model: NamedModel) -> Iterator[NamedModel]:
    yield model
    for member in model.members:
        yield from _with_members(member)


# Ensembles; where members disagree, the answer says so.

WEIGHTS = "weights.json"  # {"weights": {member: number}}, as `rewardlab fit calibration ensemble:...` writes it
_TIE = 1e-9  # shares of votes closer than this are a tie

Numbers = NDArray[np.float64]
Rule = Literal["vote", "median", "mean"]
_SPENT = ("input_tokens", "output_tokens", "cost")  # of an answer, in its info


@dataclass(frozen=True)
class Ensemble:
    """Asks every member and combines the answers of those that give one.

    With `early_exit` the others are not asked where the first two give the same level.
    """

    names: tuple[str, ...]
    members: tuple[RewardModel, ...]
    by: Rule
    weights: tuple[float, ...]
    early_exit: bool = False

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one combined answer per episode; a Failure only where no member answers."""
        first = 2 if self.early_exit else len(self.members)
        asked = [validated_answers(member, episodes) for member in self.members[:first]]
        answers = [list(given) for given in zip(*asked, strict=True)]
        open_places = [place for place, given in enumerate(answers) if not _agree(given)] if self.early_exit else []
        for member in self.members[first:] if open_places else ():
            more = validated_answers(member, [episodes[place] for place in open_places])
            for place, answer in zip(open_places, more, strict=True):
                answers[place].append(answer)
        return [self._combined(given) for given in answers]

    def _combined(self, answers: Sequence[Answer]) -> Answer:
        named = dict(zip(self.names, answers, strict=False))  # fewer answers where the first two agreed
        failed = {name: answer.reason for name, answer in named.items() if isinstance(answer, Failure)}
        scored = {name: answer for name, answer in named.items() if isinstance(answer, Score)}
        if not scored:
            return Failure("no member answered: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
        scores = list(scored.values())
        kept = np.array([weight for name, weight in zip(self.names, self.weights, strict=True) if name in scored])
        weights: Numbers = kept / kept.sum()
        levels = np.array([score.level for score in scores])
        if self.by == "mean":
            probs: Numbers = weights @ np.array([_probs(score) for score in scores])
            level = float(np.clip(probs @ np.array(LEVELS), 1, 5))
        else:
            probs = vote_shares(levels, weights)
            level = weighted_median(levels, weights) if self.by == "median" else majority(levels, weights)
        progress = [score.progress for score in scores if score.progress is not None]
        flagged = [score.info for score in scores if score.info.unfamiliar is not None]
        nearest = next((info for info in flagged if info.unfamiliar), flagged[0] if flagged else ScoreInfo())
        info = ScoreInfo(
            unfamiliar=nearest.unfamiliar,
            training_distance=nearest.training_distance,
            distance_limit=nearest.distance_limit,
            unfamiliar_because=nearest.unfamiliar_because,
            disagreement=round(float(levels.std()), 4),
            member_levels={name: score.level for name, score in scored.items()},
            member_failures=failed,
            skipped_members=len(self.names) - len(answers) if self.early_exit else None,
            **spent_together([answer.info for answer in answers]),
        )
        mean_progress = tuple(np.mean(progress, axis=0).tolist()) if progress else None
        return Score(level, tuple(probs.tolist()), mean_progress, info=info)


def _agree(answers: Sequence[Answer]) -> bool:
    """Tell whether all of them are scores of the same level, rounded half up."""
    levels = [math.floor(answer.level + 0.5) for answer in answers if isinstance(answer, Score)]
    return len(levels) == len(answers) and len(set(levels)) == 1


def spent_together(infos: Sequence[ScoreInfo]) -> dict[str, Any]:
    """Return the tokens and the cost of several answers: the sum of what is known of each, None where nothing is."""
    known = {name: [vars(info)[name] for info in infos if vars(info)[name] is not None] for name in _SPENT}
    return {name: sum(values[1:], values[0]) if values else None for name, values in known.items()}


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


def ensemble_settings(
    names: Sequence[str],
    *,
    by: Annotated[Rule, Help("vote, median or mean of the members' answers")] = "vote",
    weights: Annotated[str, Help("JSON file, or folder with a weights.json, of the weight of each member")] = "",
    early_exit: Annotated[bool, Help("skip the other members if the first two give the same level")] = False,
) -> tuple[Rule, tuple[float, ...], bool]:
    """Return how the members are combined, the weight of each, and whether two that agree are enough."""
    return by, _weights(weights, names) if weights else (1.0,) * len(names), early_exit


ENSEMBLE_SETTINGS = partial(ensemble_settings, ())


def read_wrapper(
    string: ModelString, maker: Callable[..., object], name_model: Callable[[str], NamedModel], needs: str
) -> tuple[dict[str, Any], NamedModel, str]:
    """Return the options of a model around one other, that model, and the canonical name of both.

    `maker` takes the options; others are the model's. `needs` says in an error which model is missing.
    """
    own = options_of(maker)
    if any(key not in own for key, _ in string.options):
        string = replace(string, argument=string.text.partition(":")[2], options=())
    if not string.argument:
        raise PlanError(f"{string.name} needs {needs}")
    given: dict[str, Any] = read_arguments(string.name, maker, string.options)
    model, shown = name_model(string.argument), shown_options(maker, given)
    if "?" in model.name and not shown:  # else the options of the model would be read as those of its wrapper
        first = next(iter(own.values()))
        shown = ((first.name, option_text(first.default)),)
    return given, model, with_options(f"{string.name}:{model.name}", shown)


def name_ensemble(string: ModelString, name_model: Callable[[str], NamedModel]) -> NamedModel:
    """Name `ensemble:MEMBER,MEMBER,...?by=vote&weights=FILE&early_exit=yes`."""
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
    by, weights, early_exit = ensemble_settings(names, **given)
    if early_exit and len(names) < 3:
        raise PlanError(f"early_exit saves the third member and those after it, got the two members {text!r}; add one")
    shown = shown_options(ENSEMBLE_SETTINGS, given)
    if "?" in names[-1] and not shown:  # else the options of the last member would be read as those of the ensemble
        shown = (("by", option_text(by)),)
    return name_composite(
        with_options(f"{string.name}:{','.join(names)}", shown),
        identity("ensemble", {"by": by, "weights": weights} | ({"early_exit": True} if early_exit else {})),
        members,
        lambda built, _: Ensemble(names, tuple(built), by, weights, early_exit),
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
