"""Who judges what next: rows that people disagree on first, then second opinions, then rows that nobody has seen."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rewardlab.core.seeding import digest, rng_for
from rewardlab.data.row_listing import ListedRow
from rewardlab.verification.verdicts import Verdict, is_disputed

_LEASE_SECONDS = 15 * 60  # so long a row that somebody was shown is kept for them


@dataclass(frozen=True)
class Progress:
    """How far one person and all together are."""

    rows: int
    mine: int  # rows that this person judged
    left: int  # rows that still wait for this person
    done: int  # rows that need no further verdict
    disputed: int


@dataclass(eq=False)
class Assignments:
    """The verdicts that stand, by row and person, and who is looking at what."""

    rows: Sequence[ListedRow]
    overlap: float
    seed: int
    clock: Callable[[], float] = time.monotonic
    verdicts: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _by_person: dict[str, dict[str, Verdict]] = field(default_factory=dict)  # the newest last
    _unfinished: dict[str, bool] = field(default_factory=dict)  # begun rows that need more, and whether disputed
    _leases: dict[str, dict[str, float]] = field(default_factory=dict)  # person, row, until when

    def __post_init__(self) -> None:
        self.by_key = {row.key: row for row in self.rows}
        shuffled = [self.rows[place] for place in rng_for(self.seed, "order of rows").permutation(len(self.rows))]
        self._order = [row.key for row in sorted(shuffled, key=lambda row: not row.provenance.doubted)]

    def reset(self, standing: Iterable[Verdict]) -> None:
        """Take these as all verdicts that stand; those on rows that are not here are left alone."""
        self.verdicts, self._by_person, self._unfinished = {}, {}, {}
        for verdict in standing:
            self.record(verdict)

    def record(self, verdict: Verdict) -> None:
        """Note a verdict, in place of an earlier one of the same person."""
        if verdict.item not in self.by_key:
            return
        self._forget(verdict)
        self.verdicts.setdefault(verdict.item, {})[verdict.annotator] = verdict
        self._by_person.setdefault(verdict.annotator, {})[verdict.item] = verdict
        self._leases.get(verdict.annotator, {}).pop(verdict.item, None)
        self._weigh(verdict.item)

    def remove(self, verdict: Verdict) -> None:
        """Forget a verdict that was undone, and keep its row for the person who judged it."""
        if verdict.item not in self.by_key:
            return
        self._forget(verdict)
        self._weigh(verdict.item)
        self._lease(verdict.item, verdict.annotator)

    def next_rows(self, annotator: str, count: int) -> list[ListedRow]:
        """Return the rows for a person to judge, first those that they were shown already; others do not get them."""
        chosen: dict[str, ListedRow] = {}
        for key in self._candidates(annotator):
            if len(chosen) == count:
                break
            if key not in chosen and self._is_open(key, annotator):
                chosen[key] = self.by_key[key]
        for key in chosen:
            self._lease(key, annotator)
        return list(chosen.values())

    def last_of(self, annotator: str) -> Verdict | None:
        """Return the newest verdict of a person that stands."""
        return next(reversed(self._by_person.get(annotator, {}).values()), None)

    def progress(self, annotator: str) -> Progress:
        """Return how far it is."""
        mine = self._by_person.get(annotator, {})
        done = len(self.verdicts) - len(self._unfinished)
        left = len(self.rows) - done - sum(key in mine for key in self._unfinished)
        return Progress(len(self.rows), len(mine), left, done, sum(self._unfinished.values()))

    def _candidates(self, annotator: str) -> Iterator[str]:
        """Yield rows that a person may be given, the most useful first."""
        now = self.clock()
        yield from [key for key, until in self._leases.get(annotator, {}).items() if until > now]
        yield from [key for key, disputed in self._unfinished.items() if disputed]
        yield from list(self._unfinished)
        yield from (key for key in self._order if key not in self.verdicts)

    def _is_open(self, key: str, annotator: str) -> bool:
        given = self.verdicts.get(key, {})
        return annotator not in given and len(given) + self._others_looking(key, annotator) < self._wanted(key)

    def _wanted(self, key: str) -> int:
        """Return how many verdicts a row needs: one, two for a share of them, and one more while they disagree."""
        given = self.verdicts.get(key, {})
        if is_disputed(given.values()):
            return len(given) + 1
        return 2 if int(digest(self.seed, "overlap", key), 16) < self.overlap * 2**64 else 1

    def _weigh(self, key: str) -> None:
        """Note whether a row that somebody has judged needs another verdict."""
        given = self.verdicts.get(key, {})
        self._unfinished.pop(key, None)
        if given and len(given) < self._wanted(key):
            self._unfinished[key] = is_disputed(given.values())

    def _forget(self, verdict: Verdict) -> None:
        given = self.verdicts.get(verdict.item, {})
        given.pop(verdict.annotator, None)
        self._by_person.get(verdict.annotator, {}).pop(verdict.item, None)
        if not given:
            self.verdicts.pop(verdict.item, None)

    def _lease(self, key: str, annotator: str) -> None:
        self._leases.setdefault(annotator, {}).setdefault(key, 0.0)  # a row that was shown keeps its place
        self._leases[annotator][key] = self.clock() + _LEASE_SECONDS

    def _others_looking(self, key: str, annotator: str) -> int:
        now = self.clock()
        return sum(held.get(key, 0.0) > now for name, held in self._leases.items() if name != annotator)
