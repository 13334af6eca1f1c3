"""Items through workers of an engine, results in order; workers start when there is work, and stay for more of it."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any, Generic, TypeVar

import cloudpickle

from rewardlab.core.errors import RunError
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines import open_engine
from rewardlab.evaluation.engines.contract import Engine, Worker
from rewardlab.evaluation.engines.worker_process import serve_items

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 64  # items begun before their turn, so that a slow one keeps no worker waiting
_MAX_WORKER_FAILURES = 3  # of workers that work on one item, before it is an error


class ItemWorkers(Generic[Item, Result]):
    """Workers that all do one thing; each is sent the function once, so it may carry what all items need.

    No more than `ahead` items more than there are workers are begun before their turn. Items of one `home` meet the
    same worker, which may have kept something for them, as long as it has a place.
    """

    def __init__(
        self,
        work: Callable[[Item], Result],
        workers: int,
        settings: Execution,
        *,
        ahead: int = AHEAD,
        home: Callable[[Item], int] | None = None,
    ) -> None:
        self._work, self._workers, self._settings = work, workers, settings
        self._ahead, self._home = ahead, home
        self._payload: bytes = b""
        self._pool: list[Worker] = []
        self._engine: Engine | None = None
        self._opened = ExitStack()

    def __enter__(self) -> "ItemWorkers[Item, Result]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            self._opened.close()

    def map(self, items: Iterable[Item], lost: Callable[[Item, str], Result] | None = None) -> Iterator[Result]:
        """Yield what the work makes of each item, in order, whichever worker makes it.

        An item whose worker exits is retried, and is an error after three exits. With `lost`, what that makes of the
        item and the exit reason is its result at the first exit. With one process, or one item, the work is done here,
        unless `lost` is given.
        """
        source = iter(items)
        if self._engine is None:
            self._engine = self._opened.enter_context(open_engine(self._settings))
        engine = self._engine
        first = list(islice(source, self._workers or engine.cores))
        if not first:
            return
        if self._settings.engine == "processes" and len(first) < 2 and not self._pool and lost is None:
            yield from map(self._work, chain(first, source))
            return
        # The same bytes each time, which a cluster keeps once.
        self._payload = self._payload or cloudpickle.dumps(partial(serve_items, self._work))
        start = partial(engine.start, self._payload, max(1, engine.cores // len(first)))
        self._pool += [start() for _ in first[len(self._pool) :]]  # all of them load at the same time
        ordered = _OrderedMap(engine, start, self._pool, len(self._pool) + self._ahead, lost, self._home)
        whole = False
        try:
            yield from ordered.results(chain(first, source))
            whole = True
        finally:
            if not whole:  # what they are still at is nobody's any more
                self._stop()

    def _stop(self) -> None:
        while self._pool:
            self._pool.pop().stop()


@dataclass(frozen=True)
class _Raised:
    """An error that is raised when the turn of its item comes."""

    error: Exception


@dataclass
class _OrderedMap:
    """Items on their way through workers: who is at what, what is finished, and how many workers exited on what."""

    engine: Engine
    start: Callable[[], Worker]
    pool: list[Worker]
    most: int  # begun and not yet yielded
    lost: Callable[[Any, str], Any] | None
    home: Callable[[Any], int] | None
    at: dict[int, tuple[int, Any]] = field(default_factory=dict)  # place in the pool: number and item
    waiting: deque[tuple[int, Any]] = field(default_factory=deque)
    finished: dict[int, Any] = field(default_factory=dict)
    exits: Counter[int] = field(default_factory=Counter)

    def results(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yield the results in the order of the items."""
        numbered, following = enumerate(items), 0
        while self._assign(numbered) or self.at or self.finished:
            if following not in self.finished:
                heard = [w for place, w in enumerate(self.pool) if place in self.at or not w.is_placed]
                self.engine.wait(heard, None)
            self._receive()
            self._assign(numbered)  # before the caller goes on, so that no worker waits for it
            if following in self.finished:
                result = self.finished.pop(following)
                if isinstance(result, _Raised):
                    raise result.error
                yield result
                following += 1

    def _assign(self, numbered: Iterator[tuple[int, Any]]) -> bool:
        """Give items to idle workers while there is room; tell whether there is one that nobody could be given."""
        for place in range(len(self.pool)):
            if place in self.at or not self.pool[place].is_placed:
                continue
            following = self._next_for(place, numbered)
            if following is not None:
                if self.pool[place].exit_reason is not None:  # it exited while it had nothing to do
                    self._restart(place)
                self.at[place] = following
                self.pool[place].send(cloudpickle.dumps(following[1]))
        return not self.at and self._fill(numbered, 1)  # all of them wait for a place

    def _restart(self, place: int) -> None:
        self.pool[place].stop()
        self.pool[place] = self.start()

    def _next_for(self, place: int, numbered: Iterator[tuple[int, Any]]) -> tuple[int, Any] | None:
        """Take the next item that a worker may have: one of its own, or one whose own worker has no place yet."""
        room = self.most - len(self.at) - len(self.finished)
        if room <= 0 or not self._fill(numbered, 1 if self.home is None else room):
            return None
        for index, (_, item) in enumerate(self.waiting):
            own = place if self.home is None else self.home(item) % len(self.pool)
            if own == place or not self.pool[own].is_placed:
                found = self.waiting[index]
                del self.waiting[index]
                return found
        return None

    def _fill(self, numbered: Iterator[tuple[int, Any]], count: int) -> bool:
        """Take so many items in, if there are; tell whether any waits."""
        self.waiting.extend(islice(numbered, max(0, count - len(self.waiting))))
        return bool(self.waiting)

    def _receive(self) -> None:
        for place, worker in enumerate(self.pool):
            for message in worker.receive():
                kind, content = cloudpickle.loads(message)
                if kind == "broken":
                    raise RunError(f"a worker process cannot load its work: {content}")
                number, _ = self.at.pop(place)
                self.finished[number] = _Raised(content) if kind == "raised" else content
            if place in self.at and worker.exit_reason is not None:
                self._recover(place, worker)

    def _recover(self, place: int, worker: Worker) -> None:
        """Replace a worker that exited; its item is retried, lost, or an error when too many exited on it."""
        number, item = self.at.pop(place)
        self.exits[number] += not worker.machine_lost
        reason = f"a worker process ended with {worker.exit_reason}"
        if self.lost is not None and self.exits[number]:
            self.finished[number] = self.lost(item, reason)
        elif self.exits[number] < _MAX_WORKER_FAILURES:
            self.waiting.appendleft((number, item))
        else:
            again = "run the same command again: what is finished is kept"
            self.finished[number] = _Raised(RunError(f"{reason}; {again}"))
        self._restart(place)


def map_items(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    settings: Execution = Execution(),
    *,
    ahead: int = AHEAD,
) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, whichever worker makes it (`ItemWorkers.map`); 0 workers are
    one per core.
    """
    with ItemWorkers(work, workers, settings, ahead=ahead) as pool:
        yield from pool.map(items)
