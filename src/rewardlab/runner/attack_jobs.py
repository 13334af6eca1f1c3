"""The jobs of an attack: the next question about each episode, bundled over episodes, made of the answers so far.

Random changes are asked about all episodes at once. The search goes through them block by block, each with what the
blocks before have taught it, so that its questions do not depend on the order in which answers come.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from rewardlab.analysis.breaking_points import Attempt, EpisodeAttack, judge
from rewardlab.core.episode import Episode
from rewardlab.core.graded_name import graded_name
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial
from rewardlab.runner.attack_search import (
    Queries,
    Query,
    SearchState,
    Target,
    in_drawn_order,
    random_queries,
    search,
    start_search,
)
from rewardlab.runner.breaking_beliefs import LearnedPriors
from rewardlab.runner.cell_planning import (
    CLEAN_CONDITION,
    Condition,
    definition_of,
    instructions_digest,
    planned_cell,
)
from rewardlab.runner.cell_scoring import Cell, EpisodeCells, Job, ScoringContext

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


@dataclass
class _Searches:
    """The search over blocks of episodes: the block that is under way, and what the finished ones taught."""

    waiting: deque[list[Episode]]
    block: list[Episode] = field(default_factory=list)
    open: set[str] = field(default_factory=set)  # episodes of the block that are not done
    states: dict[str, SearchState] = field(default_factory=dict)
    priors: dict[bool, LearnedPriors] = field(default_factory=lambda: {True: LearnedPriors(), False: LearnedPriors()})


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
        self._waiting: dict[str, list[_Thread]] = {}  # by the cell whose answer they wait for
        self._clean_cells: dict[str, Episode] = {}
        self._open: deque[tuple[Episode, Cell]] = deque()
        self._searches = _Searches(_blocks(context) if "search" in strategies else deque())
        for episode in context.dataset:
            self._begin(episode)
        self._search_on()

    def __next__(self) -> Job:
        if not self._open:
            raise StopIteration
        by_episode: dict[str, tuple[Episode, list[Cell]]] = {}
        for _ in range(min(self._context.batch, len(self._open))):
            episode, cell = self._open.popleft()
            by_episode.setdefault(episode.id, (episode, []))[1].append(cell)
        return Job(tuple(EpisodeCells(episode, tuple(cells)) for episode, cells in by_episode.values()))

    def take(self, trials: Sequence[Trial]) -> None:
        """Hand the answers to those who wait for them, which opens their next questions."""
        for trial in trials:
            self._known[trial.id] = trial
            if trial.id in self._clean_cells:
                self._judge_clean(self._clean_cells.pop(trial.id), trial)
            for thread in self._waiting.pop(trial.id, []):
                self._ask(thread, self._next_query(thread, trial))
        self._search_on()

    def attacks(self) -> list[EpisodeAttack]:
        """Return what every strategy asked about every episode that was judged right when clean."""
        return [EpisodeAttack(t.strategy, t.episode.id, tuple(t.attempts)) for t in self._threads]

    def wrong_when_clean(self) -> int:
        """Return how many episodes were not attacked: judged wrong, or not at all, when clean."""
        return len(self._context.dataset) - len({thread.episode.id for thread in self._threads})

    def _begin(self, episode: Episode) -> None:
        cell = planned_cell(self._context, episode, self._model, CLEAN_CONDITION)
        if cell.id in self._known:
            self._judge_clean(episode, self._known[cell.id])
        else:
            self._clean_cells[cell.id] = episode
            self._open.append((episode, cell))

    def _judge_clean(self, episode: Episode, clean: Trial) -> None:
        self._clean[episode.id] = clean
        if "random" in self._strategies and judge(clean) == "holds":
            rng = rng_for(self._context.seed, "random attack", episode.id)
            self._start("random", episode, random_queries(self._targets, self._budget, rng))

    def _search_on(self) -> None:
        """Search what is judged when clean of the block under way; go on to the next while one is done."""
        searches = self._searches
        while True:
            for episode in searches.block:
                if episode.id in searches.open and episode.id in self._clean:
                    self._search(episode)
            if searches.open or not searches.waiting:
                return
            self._learn()
            searches.block = searches.waiting.popleft()
            searches.open = {episode.id for episode in searches.block}

    def _search(self, episode: Episode) -> None:
        """Begin to search an episode that was not begun, unless it is judged wrong when clean."""
        clean, searches = self._clean[episode.id], self._searches
        if episode.id in searches.states:
            return
        if judge(clean) != "holds":
            searches.open.discard(episode.id)
            return
        targets = in_drawn_order(self._targets, self._context.seed, episode.id)
        state = start_search(targets, self._budget, searches.priors[bool(clean.truth_success)])
        searches.states[episode.id] = state
        self._start("search", episode, search(state))

    def _learn(self) -> None:
        """Take in what the finished block says; successes and failures are broken by different changes."""
        for episode in self._searches.block:
            state = self._searches.states.pop(episode.id, None)
            priors = self._searches.priors[bool(self._clean[episode.id].truth_success)]
            for probed in state.probed if state else ():
                priors.learn(probed.target.name, probed.target.ladder, probed.belief)

    def _start(self, strategy: str, episode: Episode, queries: Queries) -> None:
        thread = _Thread(episode, strategy, queries)
        self._threads.append(thread)
        first = next(queries, None)
        if first is None:
            self._finish(thread)
        self._ask(thread, first)

    def _finish(self, thread: _Thread) -> None:
        if thread.strategy == "search":
            self._searches.open.discard(thread.episode.id)

    def _ask(self, thread: _Thread, query: Query | None) -> None:
        """Open the question, unless its answer is known: then go on to the next."""
        while query is not None:
            thread.asked = query
            cell = planned_cell(self._context, thread.episode, self._model, self._condition(query))
            if cell.id not in self._known:
                if cell.id not in self._waiting:
                    self._open.append((thread.episode, cell))
                self._waiting.setdefault(cell.id, []).append(thread)
                return
            query = self._next_query(thread, self._known[cell.id])

    def _next_query(self, thread: _Thread, trial: Trial) -> Query | None:
        outcome = judge(trial)
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


def _blocks(context: ScoringContext) -> deque[list[Episode]]:
    """Return the episodes in a drawn order, block by block."""
    episodes = list(context.dataset)
    order = rng_for(context.seed, "blocks of an attack").permutation(len(episodes)).tolist()
    return deque([episodes[place] for place in order[start : start + BLOCK]] for start in range(0, len(order), BLOCK))
