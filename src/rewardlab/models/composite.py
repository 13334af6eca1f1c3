"""Models that ask other models: a process builds each member once, and asks it the same question once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import ModelError, RewardlabError, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, validate_answer
from rewardlab.core.version import __version__
from rewardlab.models.contract import Budget, NamedModel, Recipe, RewardModel

KEPT = 4096  # answers remembered per model: far more than are asked for between two models of a batch


@dataclass(frozen=True, eq=False)
class Remembering:
    """A model that several others ask: the same content gets the answer it got before."""

    model: RewardModel
    kept: dict[str, Answer] = field(default_factory=dict)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one answer per episode; only those not seen lately are judged."""
        names = [episode.hash for episode in episodes]
        new = {name: episode for name, episode in zip(names, episodes) if name not in self.kept}
        if new:
            answers = list(self.model.score(list(new.values())))
            if len(answers) != len(new):
                raise ModelError(f"expected {len(new)} answers, got {len(answers)}")
            self.kept.update(zip(new, answers))
        found = [self.kept[name] for name in names]
        for oldest in list(self.kept)[: len(self.kept) - KEPT]:
            del self.kept[oldest]
        return found


@dataclass(frozen=True)
class Blindfolded:
    """A member that may not see the truth, among members that do."""

    model: RewardModel

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return what the model says of the episodes without their truth."""
        return self.model.score([strip_labels(episode) for episode in episodes])


def name_compound(name: str, recipe: Recipe, members: Sequence[NamedModel]) -> NamedModel:
    """Name a model that asks others: it sees the truth, or must be one copy, where one of them does."""
    sees_truth = any(member.sees_truth for member in members)

    def join(built: Sequence[RewardModel]) -> RewardModel:
        shielded = [
            model if member.sees_truth == sees_truth else Blindfolded(model) for member, model in zip(members, built)
        ]
        return recipe.join(shielded)

    def make(budget: Budget) -> RewardModel:
        return join([member.build(budget) for member in members])

    identity = digest(__version__, name, recipe.identity, *(member.fingerprint for member in members))
    one_copy = any(member.one_copy for member in members)
    return NamedModel(name, identity, sees_truth, make, one_copy, tuple(members), join)


def build_all(models: Mapping[str, NamedModel], budget: Budget) -> dict[str, RewardModel]:
    """Build the models of a run; one that is asked by several is built once and remembers what it said."""
    uses = Counter(model.fingerprint for top in models.values() for model in _with_members(top))
    shared: dict[str, RewardModel] = {}

    def built(model: NamedModel) -> RewardModel:
        if model.fingerprint in shared:
            return shared[model.fingerprint]
        made = _made(model, budget) if model.join is None else model.join([built(member) for member in model.members])
        if uses[model.fingerprint] > 1:
            shared[model.fingerprint] = made = Remembering(made)
        return made

    return {name: built(model) for name, model in models.items()}


def _made(model: NamedModel, budget: Budget) -> RewardModel:
    """Build a model; whatever code from outside raises becomes one sentence with its name."""
    try:
        return model.build(budget)
    except RewardlabError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise ModelError(f"{model.name} raised {type(error).__name__}{': ' * bool(said)}{said}") from error


def ask(model: RewardModel, episodes: Sequence[Episode]) -> list[Answer]:
    """Return one checked answer per episode; where a batch fails as a whole, each episode is asked alone."""
    try:
        answers = list(model.score(episodes))
        if len(answers) != len(episodes):
            raise ModelError(f"expected {len(episodes)} answers, got {len(answers)}")
    except StopRun:
        raise
    except Exception as error:  # whatever a member does becomes its own Failure
        if len(episodes) > 1:
            return [answer for episode in episodes for answer in ask(model, [episode])]
        return [validate_answer(Failure(f"{type(error).__name__}: {error}"), 0)]
    return [validate_answer(answer, len(episode.clip)) for answer, episode in zip(answers, episodes)]


def _with_members(model: NamedModel) -> Iterator[NamedModel]:
    yield model
    for member in model.members:
        yield from _with_members(member)
