"""The jobs of an attack: the next question about each episode, bundled over episodes, made of the answers so far."""

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
from rewardlab.runner.attack_search import Queries, Query, Target, in_drawn_order, random_queries, search
from rewardlab.runner.cell_planning import (
    CLEAN_CONDITION,
    Condition,
    definition_of,
    instructions_digest,
    planned_cell,
)
from rewardlab.runner.cell_scoring import Cell, EpisodeCells, Job, ScoringContext

Strategy = Literal["search", "random"]


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
        self._waiting: dict[str, list[_Thread]] = {}  # by the cell whose answer they wait for
        self._clean_cells: dict[str, Episode] = {}
        self._open: deque[tuple[Episode, Cell]] = deque()
        for episode in context.dataset:
            self._begin(episode)

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
                self._attack(self._clean_cells.pop(trial.id), trial)
            for thread in self._waiting.pop(trial.id, []):
                self._advance(thread, trial)

    def attacks(self) -> list[EpisodeAttack]:
        """Return what every strategy asked about every episode that was judged right when clean."""
        return [EpisodeAttack(t.strategy, t.episode.id, tuple(t.attempts)) for t in self._threads]

    def wrong_when_clean(self) -> int:
        """Return how many episodes were not attacked: judged wrong, or not at all, when clean."""
        return len(self._context.dataset) - len({thread.episode.id for thread in self._threads})

    def _begin(self, episode: Episode) -> None:
        cell = planned_cell(self._context, episode, self._model, CLEAN_CONDITION)
        if cell.id in self._known:
            self._attack(episode, self._known[cell.id])
        else:
            self._clean_cells[cell.id] = episode
            self._open.append((episode, cell))

    def _attack(self, episode: Episode, clean: Trial) -> None:
        if judge(clean) != "holds":
            return
        for strategy in self._strategies:
            thread = _Thread(episode, strategy, self._queries(strategy, episode))
            self._threads.append(thread)
            self._ask(thread, next(thread.queries, None))

    def _queries(self, strategy: str, episode: Episode) -> Queries:
        seed = self._context.seed
        if strategy == "random":
            return random_queries(self._targets, self._budget, rng_for(seed, "random attack", episode.id))
        return search(in_drawn_order(self._targets, seed, episode.id), self._budget)

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

    def _advance(self, thread: _Thread, trial: Trial) -> None:
        self._ask(thread, self._next_query(thread, trial))

    def _next_query(self, thread: _Thread, trial: Trial) -> Query | None:
        outcome = judge(trial)
        thread.attempts.append(Attempt(thread.asked, trial.category, outcome, trial.id))
        try:
            return thread.queries.send(outcome)
        except StopIteration:
            return None

    def _make_condition(self, query: Query) -> Condition:
        name = graded_name(query)
        definition = definition_of(self._context.perturbation(name), self._instructions)
        return name, math.ceil(max(severity for _, severity in query)), definition
