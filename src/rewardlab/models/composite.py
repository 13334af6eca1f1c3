"""Models made of other models: a process builds each member once, and asks it about the same episode once."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import ModelError, PlanError, RewardlabError, StopRun, WorkerFailed, WrongAnswerCount
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, failure_of, validate_answer
from rewardlab.models.contract import Budget, NamedModel, RewardModel

MAX_CACHED = 4096  # answers cached per model: far more than are asked for between two models of a batch


@dataclass(frozen=True, eq=False)
class CachedModel:
    """A model that several others ask: the same content gets the answer it got before."""

    model: RewardModel
    cache: dict[str, Answer] = field(default_factory=dict)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one answer per episode; only those not in the cache are judged."""
        hashes = [episode.hash for episode in episodes]
        new = {key: episode for key, episode in zip(hashes, episodes, strict=True) if key not in self.cache}
        if new:
            self.cache.update(zip(new, _one_answer_each(self.model, list(new.values())), strict=True))
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
    name: str, identity: str, members: Sequence[NamedModel], combine: Callable[[Sequence[RewardModel]], RewardModel]
) -> NamedModel:
    """Name a model made of others: it sees the truth, or is exclusive, where one of them does.

    `identity` is what else, beside the members, its answers depend on.
    """
    see = tuple(member.sees_truth for member in members)
    sees_truth = any(see)

    def combined(built: Sequence[RewardModel]) -> RewardModel:
        shown = [m if sees == sees_truth else WithoutLabels(m) for sees, m in zip(see, built, strict=True)]
        return combine(shown)

    return NamedModel(
        name,
        digest(identity, *(member.fingerprint for member in members)),
        sees_truth,
        None,
        exclusive=any(member.exclusive for member in members),
        members=tuple(members),
        combine=combined,
        trained_tasks=tuple(sorted({task for member in members for task in member.trained_tasks})),
        server=any(member.server for member in members),
    )


def require_fitted_for(model: NamedModel, path: Path, fingerprint: str, name: str, command: str) -> None:
    """Check that what lies in a file was fitted for this very model."""
    if fingerprint == model.fingerprint:
        return
    other = "another version of it" if name == model.name else name
    raise PlanError(
        f"{path} was not fitted for {model.name} but for {other}; run `rewardlab fit {command} {model.name} DATA`"
    )


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
        made = build(model, budget) if model.combine is None else model.combine(members)
        if uses[model.fingerprint] > 1:
            shared[model.fingerprint] = made = CachedModel(made)
        return made

    return {name: built(model) for name, model in models.items()}


def build_model(model: NamedModel, budget: Budget) -> RewardModel:
    """Build a model; whatever code from outside raises becomes one sentence with its name."""
    try:
        return model.build(budget)
    except RewardlabError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise ModelError(f"{model.name} raised {type(error).__name__}{': ' * bool(said)}{said}") from error


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


def _one_answer_each(model: RewardModel, episodes: Sequence[Episode]) -> list[Answer]:
    answers = list(model.score(episodes))
    if len(answers) != len(episodes):
        raise WrongAnswerCount(wrong_count(len(episodes), len(answers)))
    return answers


def _with_members(model: NamedModel) -> Iterator[NamedModel]:
    yield model
    for member in model.members:
        yield from _with_members(member)
