"""Run an attack: the next query of every episode, made of the answers so far.

It is scored as a stress test is, trial by trial into a run folder. What is asked next is a function of the answers so
far, so that a stopped attack goes through its stored answers again and goes on where it was.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, get_args

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import locked
from rewardlab.core.trial import Trial, graded_name
from rewardlab.evaluation.attack_search import (
    LearnedPriors,
    Queries,
    Query,
    SearchState,
    Target,
    in_drawn_order,
    most_trials,
    random_queries,
    search,
    start_search,
)
from rewardlab.evaluation.breaking_points import (
    AttackResult,
    Attempt,
    EpisodeAttack,
    attack_result,
    save_attack,
    verdict_outcome,
)
from rewardlab.evaluation.evaluate import keep_names, open_plan, score_jobs, start_scoring
from rewardlab.evaluation.plan import (
    CLEAN_CONDITION,
    Condition,
    EpisodeTrials,
    Job,
    Plan,
    PlannedTrial,
    ScoringContext,
    definition_of,
    instructions_digest,
    planned_trial,
)
from rewardlab.perturbations.composition import severity_ladder
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

Strategy = Literal["search", "random"]
BLOCK = 32  # episodes that are searched side by side


@dataclass
class _Thread:
    """One strategy at work on one episode: what it wants to know next, and what it asked before."""

    episode: Episode
    strategy: str
    queries: Queries
    attempts: list[Attempt] = field(default_factory=list)
    asked: Query = ()


class AttackJobs(Iterator[Job]):
    """Gives a job while questions are open; none for now is StopIteration, and more may come after `take`."""

    def __init__(
        self,
        context: ScoringContext,
        targets: Sequence[Target],
        strategies: Sequence[str],
        budget: int,
        known: Mapping[str, Trial],
    ) -> None:
        self._context, self._targets, self._strategies, self._budget = context, targets, strategies, budget
        (self._model,) = context.models.values()
        self._instructions = instructions_digest(context)
        self._condition = cache(self._make_condition)
        self._known = dict(known)
        self._clean: dict[str, Trial] = {}
        self._threads: list[_Thread] = []
        self._waiting: dict[str, list[_Thread]] = {}  # by the trial whose answer they wait for
        self._clean_trials: dict[str, Episode] = {}
        self._open: deque[tuple[Episode, PlannedTrial]] = deque()
        # The search goes over blocks of episodes in a drawn order; what finished blocks taught are the priors of later
        # ones. Successes and failures are broken by different changes.
        episodes = list(context.dataset)
        order = rng_for(context.seed, "blocks of an attack").permutation(len(episodes)).tolist()
        starts = range(0, len(order), BLOCK) if "search" in strategies else ()
        self._blocks = deque([episodes[place] for place in order[start : start + BLOCK]] for start in starts)
        self._block: list[Episode] = []
        self._searched: set[str] = set()  # episodes of the block that are not done
        self._states: dict[str, SearchState] = {}
        self._priors = {True: LearnedPriors(), False: LearnedPriors()}
        for episode in episodes:
            trial = planned_trial(context, episode, self._model, CLEAN_CONDITION)
            if trial.id in self._known:
                self._take_clean(episode, self._known[trial.id])
            else:
                self._clean_trials[trial.id] = episode
                self._open.append((episode, trial))
        self._search_on()

    def __next__(self) -> Job:
        if not self._open:
            raise StopIteration
        by_episode: dict[str, tuple[Episode, list[PlannedTrial]]] = {}
        for _ in range(min(self._context.batch, len(self._open))):
            episode, trial = self._open.popleft()
            by_episode.setdefault(episode.id, (episode, []))[1].append(trial)
        return Job(tuple(EpisodeTrials(episode, tuple(trials)) for episode, trials in by_episode.values()))

    def take(self, trials: Sequence[Trial]) -> None:
        """Hand the answers to those who wait for them, which opens their next questions."""
        for trial in trials:
            self._known[trial.id] = trial
            if trial.id in self._clean_trials:
                self._take_clean(self._clean_trials.pop(trial.id), trial)
            for thread in self._waiting.pop(trial.id, []):
                self._ask(thread, self._next_query(thread, trial))
        self._search_on()

    def attacks(self) -> list[EpisodeAttack]:
        """Return what every strategy asked about every episode whose clean verdict is right."""
        return [EpisodeAttack(t.strategy, t.episode.id, tuple(t.attempts)) for t in self._threads]

    def wrong_when_clean(self) -> int:
        """Return how many episodes were not attacked: their clean verdict is wrong, or there is none."""
        return len(self._context.dataset) - len({thread.episode.id for thread in self._threads})

    def _take_clean(self, episode: Episode, clean: Trial) -> None:
        self._clean[episode.id] = clean
        if "random" in self._strategies and verdict_outcome(clean) == "holds":
            rng = rng_for(self._context.seed, "random attack", episode.id)
            self._start("random", episode, random_queries(self._targets, self._budget, rng))

    def _search_on(self) -> None:
        """Search the episodes of the block whose clean trial is known; go on to the next block while one is done."""
        while True:
            for episode in self._block:
                if episode.id in self._searched and episode.id in self._clean and episode.id not in self._states:
                    self._search(episode, self._clean[episode.id])
            if self._searched or not self._blocks:
                return
            for episode in self._block:  # it is finished: learn from it
                state = self._states.pop(episode.id, None)
                priors = self._priors[bool(self._clean[episode.id].truth_success)]
                for probed in state.probed if state else ():
                    priors.learn(probed.target.name, probed.target.ladder, probed.threshold)
            self._block = self._blocks.popleft()
            self._searched = {episode.id for episode in self._block}

    def _search(self, episode: Episode, clean: Trial) -> None:
        """Begin to search an episode, unless its clean verdict is wrong."""
        if verdict_outcome(clean) != "holds":
            self._searched.discard(episode.id)
            return
        targets = in_drawn_order(self._targets, self._context.seed, episode.id)
        state = start_search(targets, self._budget, self._priors[bool(clean.truth_success)])
        self._states[episode.id] = state
        self._start("search", episode, search(state))

    def _start(self, strategy: str, episode: Episode, queries: Queries) -> None:
        thread = _Thread(episode, strategy, queries)
        self._threads.append(thread)
        first = next(queries, None)
        if first is None:
            self._finish(thread)
        self._ask(thread, first)

    def _finish(self, thread: _Thread) -> None:
        if thread.strategy == "search":
            self._searched.discard(thread.episode.id)

    def _ask(self, thread: _Thread, query: Query | None) -> None:
        """Open the question, unless its answer is known: then go on to the next."""
        while query is not None:
            thread.asked = query
            trial = planned_trial(self._context, thread.episode, self._model, self._condition(query))
            if trial.id not in self._known:
                if trial.id not in self._waiting:
                    self._open.append((thread.episode, trial))
                self._waiting.setdefault(trial.id, []).append(thread)
                return
            query = self._next_query(thread, self._known[trial.id])

    def _next_query(self, thread: _Thread, trial: Trial) -> Query | None:
        outcome = verdict_outcome(trial)
        thread.attempts.append(Attempt(thread.asked, trial.category, outcome, trial.id))
        try:
            return thread.queries.send(outcome)
        except StopIteration:
            self._finish(thread)
            return None

    def _make_condition(self, query: Query) -> Condition:
        name = graded_name(query)
        definition = definition_of(self._context.perturbation(name), self._instructions)
        return name, math.ceil(max(severity for _, severity in query)), definition


@dataclass(frozen=True)
class AttackRun:
    """An attack: what was found, and the run that holds every answer."""

    run: Run
    result: AttackResult


def run_attack(plan: Plan, queries: int, strategy: str) -> AttackRun:
    """Ask what the strategies want to know until they are done, and write down what broke.

    `queries` are those per episode and strategy, beside the clean one; the strategy `both` follows one after the other.
    """
    if queries < 1:
        raise PlanError(f"queries must be at least 1 per episode, got {queries}")
    strategies = tuple(name for name in get_args(Strategy) if strategy in (name, "both"))
    if not strategies:
        raise PlanError(f"strategy must be search, random or both, got {strategy!r}")
    contents, context = open_plan(plan)
    targets = [
        Target(p.name, p.category, severity_ladder(p), redraws=p in WORLD_PERTURBATIONS)
        for p in context.perturbations.values()
        if p.label != "unknown" and p.expect != "lower"
    ]
    if not targets:
        raise PlanError("none of these perturbations has a known effect on the label; name others in --perturbations")
    trials = 1 + len(strategies) * most_trials(len(targets), queries)
    run = start_scoring(plan, context, contents, {"queries": queries, "strategy": strategy}, trials)
    with locked(run.folder):
        keep_names(run, plan, context)
        retry = plan.scoring.retry_failures
        known = {trial.id: trial for trial in run.trials().rows() if not (retry and trial.status == "failed")}
        jobs = AttackJobs(context, targets, strategies, queries, known)
        expected = len(contents.episodes) * (1 + len(strategies) * queries)
        score_jobs(run, jobs, context, plan, (len(known), expected), jobs.take)
        run.compact()
        result = attack_result(run, jobs.attacks(), jobs.wrong_when_clean(), queries)
        save_attack(run, result)
    return AttackRun(run, result)
