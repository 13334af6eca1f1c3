"""`Plan` and its checks, shards; planned trials with their content ids, jobs; the forecast of a run."""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Episode, FramePolicy
from rewardlab.core.errors import NoServerError, PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Budget, Execution, Scoring, Sharding, all_arguments, as_command, recorded, several
from rewardlab.core.summary import CONTROL_ORDER
from rewardlab.core.terminal import counted, loading, time_text
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.core.trial_table import TrialTable
from rewardlab.data import DATASETS
from rewardlab.data.video import frame_policy
from rewardlab.evaluation.display import FITS
from rewardlab.models import MODELS, name_model
from rewardlab.models.contract import CONNECT_SECONDS, AnyModel, NamedModel
from rewardlab.models.contract import Budget as ModelBudget
from rewardlab.models.ledger import Spent, spent_by_model
from rewardlab.perturbations import choose_perturbations
from rewardlab.perturbations.composition import graded_perturbation
from rewardlab.perturbations.contract import Perturbation

ACCURACY_THRESHOLD = 0.70  # success accuracy below which a model counts as unreliable
MOST_REPEATS = 100
MOST_DESCRIBED = 12  # wrong rewards shown of each model, and described


@dataclass(frozen=True)
class Plan:
    """What a run scores and how: the function of a command makes one, and `evaluate` carries it out."""

    kind: str  # of run: stress, bench, attack, calibrate, guard or relabel
    models: tuple[NamedModel, ...]  # those that are evaluated
    controls: tuple[NamedModel, ...]  # those that are scored beside them
    data: str
    perturbations: tuple[str, ...]
    severities: tuple[int, ...]
    frames: str
    seed: int
    limit: int | None
    accuracy_threshold: float
    demonstrations: bool
    skip_invalid: bool
    repeats: int  # how often each model is asked about each trial
    stages: bool  # whether every stage of an episode is asked about by its own instruction too
    names: tuple[str, ...]  # short names of the models, in their order
    shard: str
    describe_failures: int
    out: Path | None
    execution: Execution
    scoring: Scoring
    budget: Budget
    settings: Mapping[str, Any]  # of the command, as the run records them
    command: str

    def __post_init__(self) -> None:
        if not self.models:
            raise PlanError("name at least one model, e.g. `rewardlab stress pocket sample`")
        require_limit(self.limit)
        require_selection(self.perturbations, self.severities)
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise PlanError(f"repeats must be from 1 to {MOST_REPEATS}, got {self.repeats}")
        if not 0 <= self.accuracy_threshold <= 1:
            raise PlanError(f"accuracy-threshold must be from 0 to 1, got {self.accuracy_threshold}")
        if not 0 <= self.describe_failures <= MOST_DESCRIBED:
            raise PlanError(f"describe-failures must be from 0 to {MOST_DESCRIBED}, got {self.describe_failures}")
        shard_of((), self.shard)
        _require_names(self.names, self.models, [model.name for model in self.every_model])

    @property
    def every_model(self) -> tuple[NamedModel, ...]:
        """Return the models and the controls, each once."""
        found: dict[str, NamedModel] = {}
        for model in (*self.models, *self.controls):
            found.setdefault(model.fingerprint, model)  # one that is written twice is one
        return tuple(found.values())

    def model_budget(self, folder: Path) -> ModelBudget:
        """Return what models may spend; what they paid for is written down in the run folder."""
        wait = self.scoring.load_timeout or CONNECT_SECONDS
        return ModelBudget(self.budget.max_requests, self.budget.max_cost, folder, wait)


def make_plan(command: str, function: Callable[..., Any], given: Mapping[str, Any], **changes: Any) -> Plan:
    """Return the plan of a command whose function was called with these arguments; `changes` replace some of them.

    What the function has no argument for is as it is for a run of clean episodes without controls.
    """
    arguments = all_arguments(function, given)
    key, given = "models" if "models" in arguments else "model", {**_CLEAN_ONLY, **arguments, **changes}
    asked = several(arguments[key])
    _require_order(asked, str(given["data"]))
    with loading(f"looking up {', '.join(map(str, asked))}", quiet=given["execution"].quiet):
        named = _name_models(asked, given["scoring"].load_timeout)
        controls = tuple(map(name_model, CONTROL_ORDER)) if given["controls"] else ()
    spelled = [model.spec for model in named]
    settings = recorded(function, {**arguments, key: spelled if key == "models" else spelled[0]})
    made = {
        "kind": changes.get("kind", command),
        "models": changes.get("models", named),
        "controls": controls,
        "data": str(given["data"]),
        "perturbations": several(given["perturbations"]),
        "severities": several(given["severities"]),
        "names": several(given["name"]),
        "shard": given["sharding"].shard,
        "out": None if given["out"] is None else Path(given["out"]),
        "settings": settings,
        "command": as_command(command, function, settings),
    }
    return Plan(**({field.name: given[field.name] for field in fields(Plan) if field.name in given} | made))


def _name_models(asked: Sequence[AnyModel], seconds: float | None) -> tuple[NamedModel, ...]:
    """Return the named models; a server that one asks for its name may take so long to start."""
    deadline = time.monotonic() + (seconds or 0)
    while True:
        try:
            return tuple(map(name_model, asked))
        except NoServerError:
            if time.monotonic() >= deadline:
                raise


_CLEAN_ONLY: Mapping[str, Any] = {
    "controls": False,
    "perturbations": ("none",),
    "severities": (0,),
    "seed": 0,
    "accuracy_threshold": ACCURACY_THRESHOLD,
    "demonstrations": False,
    "skip_invalid": False,
    "repeats": 1,
    "stages": False,
    "name": (),
    "sharding": Sharding(),
    "describe_failures": 0,
}


def _require_order(models: Sequence[Any], data: str) -> None:
    """Say where a dataset stands in the place of a model and a model in that of the dataset."""
    swapped = [each for each in models if isinstance(each, str) and (each in DATASETS or os.path.isdir(each))]
    if swapped and re.split(r"[:?+]", data)[0] in MODELS and data not in DATASETS and not Path(data).exists():
        raise PlanError(f"{swapped[0]} is a dataset and {data} is a model; name the models first, then the dataset")


def require_limit(limit: int | None) -> None:
    """Check the number of episodes to use."""
    if limit is not None and limit < 1:
        raise PlanError(f"limit must be at least 1, got {limit}")


def require_selection(perturbations: tuple[str, ...], severities: tuple[int, ...]) -> None:
    """Check that perturbations are named and that the severities exist."""
    if not perturbations:
        raise PlanError("name at least one perturbation, a category, or all")
    wrong = [severity for severity in severities if severity not in SEVERITIES]
    if wrong or not severities:
        raise PlanError(f"severities must be among 0, 1, 2, 3, 4, got {wrong[0] if wrong else 'none'}")


def _require_names(names: Sequence[str], given: Sequence[NamedModel], every: Sequence[str]) -> None:
    """Check the short names: one per model at most, each of its own and of a length that fits a table."""
    models = [model.name for model in given]
    if len(names) > len(models):
        raise PlanError(f"name has {len(names)} names for {len(models)} models; give one for each, in their order")
    prints = [model.fingerprint for model in given]
    again = next((at for at, each in enumerate(prints) if each in prints[:at]), None)
    if names and again is not None:  # it is asked once, so the names after it would stand for other models
        raise PlanError(f"{models[again]} is the same model as {models[prints.index(prints[again])]}: name it once")
    for model, name in zip(models, names, strict=False):
        chosen = [other for each, other in zip(models, names, strict=False) if each != model]
        if not name.strip() or not name.isprintable() or len(name) > FITS:
            raise PlanError(f"a short name has 1 to {FITS} printable characters, got {name[:80]!r}; shorten it")
        if name in (*(other for other in every if other != model), *chosen):
            raise PlanError(f"two models of this run would be called {name!r}; choose another name")


def shard_of(episodes: Sequence[Episode], shard: str) -> Sequence[Episode]:
    """Return the episodes of part I of N, which is every N-th one; all where no part is named."""
    if not shard:
        return episodes
    part, _, parts = shard.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and len(parts) < 7 and 1 <= int(part) <= int(parts)):
        raise PlanError(f"shard must be I/N with I from 1 to N, such as 1/4, got {shard[:40]!r}")
    return episodes[int(part) - 1 :: int(parts)]


Condition = tuple[str, int, str]  # perturbation, severity, and what identifies its definition
CLEAN_CONDITION: Condition = (CLEAN, 0, "")


@dataclass(frozen=True)
class ScoringContext:
    """What every job needs: the models to ask, the perturbations by name, and the protocol."""

    models: Mapping[str, NamedModel]
    names: tuple[str, ...]
    dataset: Sequence[Episode]
    frames: str
    seed: int
    batch: int
    budget: ModelBudget = ModelBudget()
    evaluated: tuple[str, ...] = ()  # the models that the run is about; the others are controls
    repeats: int = 1

    def askings(self, model: NamedModel) -> int:
        """Return how often the model is asked each question: once where it always answers alike."""
        return 1 if model.deterministic else self.repeats

    @cached_property
    def perturbations(self) -> Mapping[str, Perturbation]:
        """Return the perturbations that the names mean."""
        worlds = any(episode.sim_state is not None for episode in self.dataset)
        return {p.name: p for p in choose_perturbations(self.names, worlds=worlds)}

    def perturbation(self, name: str) -> Perturbation:
        """Return the perturbation of a trial, whose name may state severities between the whole ones."""
        known = self.perturbations
        return known[name] if name in known else graded_perturbation(name, known)

    @cached_property
    def policy(self) -> FramePolicy:
        """Return the choice of frames."""
        return frame_policy(self.frames)


def conditions(context: ScoringContext, severities: Sequence[int]) -> list[Condition]:
    """Return what is done to every episode; it is always shown clean too."""
    instructions = instructions_digest(context)
    found: list[Condition] = [CLEAN_CONDITION]
    for perturbation in context.perturbations.values():
        definition = definition_of(perturbation, instructions)
        found += [(perturbation.name, severity, definition) for severity in sorted({*severities} - {0})]
    return found


def instructions_digest(context: ScoringContext) -> str:
    """Identify the instructions of the whole dataset, which some perturbations borrow from."""
    return digest(*(episode.instruction for episode in context.dataset))


def definition_of(perturbation: Perturbation, instructions: str) -> str:
    """Identify what a perturbation does, in a dataset of these instructions."""
    return perturbation.fingerprint + (instructions if perturbation.uses_dataset else "")


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One thing to score: a perturbation at a severity, scored by a model."""

    id: str
    perturbation: str
    severity: int
    model: str
    repeat: int = 0  # 1, 2, ...: the same question once more


@dataclass(frozen=True)
class EpisodeTrials:
    """The open trials of one episode."""

    episode: Episode
    trials: tuple[PlannedTrial, ...]


def plan_trials(
    episodes: Iterable[Episode], context: ScoringContext, severities: Sequence[int], finished: Collection[str] = ()
) -> Iterator[EpisodeTrials]:
    """Yield each episode with its trials, less those that are finished; an episode without open trials is left out."""
    shown = conditions(context, severities)
    for episode in episodes:
        trials = (
            planned_trial(context, episode, model, each, repeat)
            for each in shown
            for model in context.models.values()
            for repeat in range(context.askings(model))
        )
        left = tuple(trial for trial in trials if trial.id not in finished)
        if left:
            yield EpisodeTrials(episode, left)


@dataclass(frozen=True)
class Job:
    """What a worker is given at once: one episode, or several where each has but a few trials, so that batches fill.

    The trials named in `alone` are given to their model one at a time. `exits` counts the workers that exited on it.
    """

    episodes: tuple[EpisodeTrials, ...]
    alone: frozenset[str] = frozenset()
    exits: int = 0

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """Return the trials of every episode."""
        return tuple(trial for planned in self.episodes for trial in planned.trials)

    def keep(self, open_trials: Sequence[PlannedTrial], exits: int) -> "Job":
        """Return the job with only these trials left, on which so many workers exited."""
        ids = {trial.id for trial in open_trials}
        left = [replace(each, trials=tuple(t for t in each.trials if t.id in ids)) for each in self.episodes]
        return Job(tuple(each for each in left if each.trials), self.alone, exits)


def bundle_jobs(planned: Iterable[EpisodeTrials], trials: int) -> Iterator[Job]:
    """Yield jobs of at least so many trials, so that a batch fills up where each episode has but a few."""
    waiting: list[EpisodeTrials] = []
    for episode_trials in planned:
        waiting.append(episode_trials)
        if sum(len(each.trials) for each in waiting) >= trials:
            yield Job(tuple(waiting))
            waiting = []
    if waiting:
        yield Job(tuple(waiting))


def planned_trial(
    context: ScoringContext, episode: Episode, model: NamedModel, condition: Condition, repeat: int = 0
) -> PlannedTrial:
    """Return the trial; its id is made of everything that its score depends on, and of which repeat it is."""
    name, severity, definition = condition
    identity = (model.fingerprint, episode.hash, episode.id, name, severity, definition, context.seed, context.frames)
    again = ("repeat", repeat) if repeat else ()
    return PlannedTrial(digest(*identity, *again), name, severity, model.name, repeat)


# What a run will ask, printed before it begins, and what that takes, estimated from earlier answers.

FORECAST_COLUMNS = ("id", "episode", "status", "model", "seconds", "abstained")  # of the trials that it is made of
_LATER = "known after the first answers"


@dataclass(frozen=True)
class RunForecast:
    """The trials of a run or its shard, those open per model, what they take; `seconds` is None where it is unknown."""

    episodes: int
    conditions: int
    open_trials: dict[str, int]
    repeats: int  # trials that ask once more what another one asks
    servers: tuple[str, ...]  # models that ask another machine, perhaps for money
    seconds: float | None
    spent: Spent

    @property
    def trials(self) -> int:
        """Return how many trials there are in all."""
        return self.episodes * self.conditions * len(self.open_trials) + self.repeats

    @property
    def sentence(self) -> str:
        """Return all of it in one line."""
        factors = {"episode": self.episodes, "condition": self.conditions, "model": len(self.open_trials)}
        scope = " x ".join(counted(count, noun) for noun, count in factors.items())
        scope += f", and {counted(self.repeats, 'repeat')}" if self.repeats else ""
        left = sum(self.open_trials.values())
        finished = f", {self.trials - left:,} of them finished" if left < self.trials else ""
        requests = {name: self.open_trials[name] for name in self.servers if self.open_trials[name]}
        asked = [f"{name}: {counted(count, 'request')} or more to a server" for name, count in requests.items()]
        if asked:
            asked.append(f"tokens and cost: {self._price(sum(requests.values()))}")
        time = _LATER if self.seconds is None else f"about {time_text(self.seconds)}"
        return "; ".join([f"{counted(self.trials, 'trial')} ({scope}){finished}", *asked, f"time: {time}"])

    def _price(self, requests: int) -> str:
        if not self.spent.replies:
            return _LATER
        tokens = (self.spent.input_tokens + self.spent.output_tokens) / self.spent.replies * requests
        cost = f"{self.spent.cost / self.spent.priced * requests:.4g}" if self.spent.priced else "unknown"
        return f"about {tokens:,.0f} tokens, cost {cost}"


def finished_trials(trials: TrialTable, plan: Plan, context: ScoringContext) -> TrialTable:
    """Return the trials of the plan, or of its shard, that are not asked again; failures are where it retries them."""
    failed = trials.matches("status", "failed") & (trials.number("abstained") != 1)  # to abstain is an answer
    kept = trials.where(~failed) if plan.scoring.retry_failures else trials
    rows, names = kept.codes("episode")
    mine = {episode.id for episode in shard_of(context.dataset, plan.shard)}
    return kept.where(np.array([name in mine for name in names], dtype=bool)[rows])


def forecast(folder: Path, trials: TrialTable | None, plan: Plan, context: ScoringContext, workers: int) -> RunForecast:
    """Return what is still to be asked in a run folder that holds these trials; None where there are none yet."""
    shown, episodes = len(conditions(context, plan.severities)), len(shard_of(context.dataset, plan.shard))
    finished = None if trials is None else finished_trials(trials, plan, context)
    done = {name: 0 if finished is None else int(finished.matches("model", name).sum()) for name in context.models}
    askings = {name: context.askings(model) for name, model in context.models.items()}
    open_trials = {name: episodes * shown * askings[name] - count for name, count in done.items()}
    repeats = episodes * shown * sum(times - 1 for times in askings.values())
    servers = tuple(name for name, model in context.models.items() if model.server)
    seconds = _seconds(trials, open_trials, workers) if trials is not None and len(trials) else None
    spent = spent_by_model(folder).values()
    summed = ("replies", "priced", "input_tokens", "output_tokens", "cost")
    total = Spent(**{name: sum(vars(each)[name] for each in spent) for name in summed})
    return RunForecast(episodes, shown, open_trials, repeats, servers, seconds, total)


def _seconds(trials: TrialTable, open_trials: dict[str, int], workers: int) -> float | None:
    """Return the time that the models take for what is open, by their answers so far; decoding comes on top."""
    total = 0.0
    for name, count in open_trials.items():
        mine = trials.where(trials.matches("model", name) & ~trials.matches("status", "dropped"))
        if count and not len(mine):
            return None
        total += count * float(mine.number("seconds").mean()) if count else 0.0
    return total / workers
