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
    _leases: dict[str, dict[str, float]] = field(default_factory=dict)  # row, person, until when
    _verdicts_wanted: dict[str, int] = field(default_factory=dict)  # where nobody disagrees; filled as it is asked for

    def __post_init__(self) -> None:
        self.by_key = {row.key: row for row in self.rows}
        shuffled = [self.rows[place] for place in rng_for(self.seed, "order of rows").permutation(len(self.rows))]
        self._order = [row.key for row in sorted(shuffled, key=lambda row: not row.provenance.doubted)]

    def reset(self, standing: Iterable[Verdict]) -> None:
        """Take these as all verdicts that stand; those on rows that are not here are left alone."""
        self.verdicts = {}
        for verdict in standing:
            self.record(verdict)

    def record(self, verdict: Verdict) -> None:
        """Note a verdict, in place of an earlier one of the same person."""
        if verdict.item in self.by_key:
            self.verdicts.setdefault(verdict.item, {})[verdict.annotator] = verdict
            self._leases.get(verdict.item, {}).pop(verdict.annotator, None)

    def remove(self, verdict: Verdict) -> None:
        """Forget a verdict that was undone, and keep its row for the person who judged it."""
        given = self.verdicts.get(verdict.item, {})
        given.pop(verdict.annotator, None)
        if not given:
            self.verdicts.pop(verdict.item, None)
        if verdict.item in self.by_key:
            self._lease(verdict.item, verdict.annotator)

    def next_rows(self, annotator: str, count: int) -> list[ListedRow]:
        """Return the rows for a person to judge, first those that they were shown already; others do not get them."""
        chosen: list[str] = []
        for key in self._candidates(annotator):
            if len(chosen) == count:
                break
            if key not in chosen:
                chosen.append(key)
                self._lease(key, annotator)
        return [self.by_key[key] for key in chosen]

    def last_of(self, annotator: str) -> Verdict | None:
        """Return the newest verdict of a person that stands."""
        mine = (given[annotator] for given in self.verdicts.values() if annotator in given)
        return max(mine, key=lambda verdict: verdict.id, default=None)

    def progress(self, annotator: str) -> Progress:
        """Return how far it is."""
        mine = sum(annotator in given for given in self.verdicts.values())
        unfinished = [key for key in self.verdicts if self._wanted(key) > len(self.verdicts[key])]
        done = len(self.verdicts) - len(unfinished)
        left = len(self.rows) - done - sum(annotator in self.verdicts[key] for key in unfinished)
        disputed = sum(is_disputed(given.values()) for given in self.verdicts.values())
        return Progress(len(self.rows), mine, left, done, disputed)

    def _candidates(self, annotator: str) -> Iterator[str]:
        """Yield the rows that a person may be given, the most useful first."""
        begun = list(self.verdicts)
        disputed = [key for key in begun if is_disputed(self.verdicts[key].values())]
        for keys in (self._leased_to(annotator), disputed, begun, self._order):
            yield from (key for key in keys if self._is_open(key, annotator))

    def _is_open(self, key: str, annotator: str) -> bool:
        given = self.verdicts.get(key, {})
        return annotator not in given and len(given) + self._leased_to_others(key, annotator) < self._wanted(key)

    def _wanted(self, key: str) -> int:
        """Return how many verdicts a row needs: one, two for a share of them, and one more while they disagree."""
        given = self.verdicts.get(key, {})
        if is_disputed(given.values()):
            return len(given) + 1
        if key not in self._verdicts_wanted:
            chosen = int(digest(self.seed, "overlap", key), 16) < self.overlap * 2**64
            self._verdicts_wanted[key] = 2 if chosen else 1
        return self._verdicts_wanted[key]

    def _lease(self, key: str, annotator: str) -> None:
        self._leases.setdefault(key, {})[annotator] = self.clock() + _LEASE_SECONDS

    def _leased_to(self, annotator: str) -> list[str]:
        now = self.clock()
        mine = [(held[annotator], key) for key, held in self._leases.items() if held.get(annotator, 0) > now]
        return [key for _, key in sorted(mine, key=lambda lease: lease[0])]

    def _leased_to_others(self, key: str, annotator: str) -> int:
        now = self.clock()
        return sum(until > now for name, until in self._leases.get(key, {}).items() if name != annotator)
