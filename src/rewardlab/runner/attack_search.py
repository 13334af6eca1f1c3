"""What an attack asks about one episode, one question after the other: coroutines that are sent each outcome.

`search` looks for the smallest change that breaks the verdict in every category; `random_queries` is its baseline.
Both are functions of the outcomes alone, so that a stopped attack is gone through again and goes on where it was.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest

from numpy.random import Generator as Rng

from rewardlab.analysis.breaking_points import Outcome
from rewardlab.core.graded_name import GradedPart
from rewardlab.core.seeding import pick, rng_for

Query = tuple[GradedPart, ...]  # one change at its severity, or two
Queries = Generator[Query, Outcome, None]
COARSE = 0.5  # width of a bracket while many changes are compared; the best are narrowed to one step afterwards
_SCAN, _SINGLE = 0.6, 0.8  # shares of the budget for finding which changes break at all, and for single changes
_BELOW = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8)  # of the severity at which a change held
_MAX_DROPS = 2  # severities at which a change does not apply before it is left aside


@dataclass(frozen=True)
class Target:
    """A perturbation to attack with and its severities; one that redraws the scene would undo a change before it."""

    name: str
    category: str
    ladder: tuple[float, ...]
    redraws: bool = False


@dataclass
class Bracket:
    """Where a change was seen to hold and to break, as places on its ladder; -1 is clean, None not broken."""

    target: Target
    low: int = -1
    high: int | None = None

    @property
    def width(self) -> float:
        """Return how far apart the ends are, in severity."""
        assert self.high is not None
        return self.target.ladder[self.high] - (self.target.ladder[self.low] if self.low >= 0 else 0.0)


@dataclass
class SearchState:
    """What a search knows: the queries it spent, its brackets, and the best of each category."""

    budget: int
    spent: int = 0
    brackets: list[Bracket] = field(default_factory=list)
    best: dict[str, Bracket] = field(default_factory=dict)
    asked: set[Query] = field(default_factory=set)

    def ceiling(self, category: str) -> float:
        """Return the severity that a change must break below to be of interest."""
        found = self.best.get(category)
        return float("inf") if found is None or found.high is None else found.target.ladder[found.high]


def search(targets: Sequence[Target], budget: int) -> Queries:
    """Ask about each change at the highest severity of interest, and bisect those that break; then try pairs.

    Before and after the pairs, changes that held are asked about at lower severities: answers need not be monotone.
    """
    state = SearchState(budget)
    for target in targets:
        if state.spent < _SCAN * budget:
            yield from _scan(state, target)
    for bracket in sorted(state.best.values(), key=lambda each: state.ceiling(each.target.category)):
        yield from _bisect(state, bracket, 0.0)
    yield from _look_below(state, _SINGLE * budget)
    yield from _pairs(state)
    yield from _look_below(state, budget)


def random_queries(targets: Sequence[Target], budget: int, rng: Rng) -> Queries:
    """Ask about a random change at a random severity, never the same twice, until the budget is spent."""
    left, spent = {target: list(target.ladder) for target in targets}, 0
    while left and spent < budget:
        target = pick(list(left), rng)
        severity = left[target].pop(int(rng.integers(len(left[target]))))
        outcome = yield ((target.name, severity),)
        spent += outcome != "dropped"
        if outcome == "dropped" or not left[target]:
            del left[target]


def most_cells(targets: int, budget: int) -> int:
    """Return how many cells a strategy can ask of one episode, those that do not apply included."""
    return 2 * budget + 2 * (_MAX_DROPS + len(_BELOW)) * targets


def in_drawn_order(targets: Sequence[Target], seed: int, episode: str) -> list[Target]:
    """Return the targets in an order drawn for the episode, the categories taking turns."""
    rng = rng_for(seed, "order of an attack", episode)
    by_category: dict[str, list[Target]] = {}
    for place in rng.permutation(len(targets)):
        by_category.setdefault(targets[place].category, []).append(targets[place])
    return [target for turn in zip_longest(*by_category.values()) for target in turn if target is not None]


def _ask(state: SearchState, query: Query) -> Generator[Query, Outcome, Outcome]:
    if state.spent >= state.budget:
        return "unjudged"
    state.asked.add(query)
    outcome = yield query
    state.spent += outcome != "dropped"
    return outcome


def _scan(state: SearchState, target: Target) -> Queries:
    """Ask about a change just below the best of its category; where it breaks, it is the best."""
    top = sum(severity < state.ceiling(target.category) for severity in target.ladder) - 1
    for _ in range(_MAX_DROPS):
        if top < 0:
            return
        outcome = yield from _ask(state, ((target.name, target.ladder[top]),))
        if outcome != "dropped":
            break
        top = (top + 1) // 2 - 1  # a change may only apply where it is small
    else:
        return
    if outcome == "breaks":
        bracket = state.best[target.category] = Bracket(target, high=top)
        state.brackets.append(bracket)
        yield from _bisect(state, bracket, COARSE)
    elif outcome == "holds":
        state.brackets.append(Bracket(target, low=top))


def _bisect(state: SearchState, bracket: Bracket, width: float) -> Queries:
    """Halve a bracket until it is that narrow, or one step of its ladder."""
    assert bracket.high is not None
    ladder = bracket.target.ladder
    while bracket.high - bracket.low > 1 and bracket.width > width:
        middle = (bracket.high + bracket.low) // 2
        outcome = yield from _ask(state, ((bracket.target.name, ladder[middle]),))
        if outcome == "breaks":
            bracket.high = middle
        elif outcome == "holds":
            bracket.low = middle
        else:
            return


def _pairs(state: SearchState) -> Queries:
    """Ask about pairs of changes that hold alone, the smallest first, until one breaks."""
    held = sorted((b for b in state.brackets if b.low >= 0), key=_held_severity)
    joined = [_pair(a, b) for a, b in combinations(held, 2) if not (a.target.redraws and b.target.redraws)]
    joined.sort(key=lambda parts: max(severity for _, severity in parts))
    for query in joined[: state.budget]:  # those that do not apply cost no query, but their number must end
        if state.spent >= state.budget:
            return
        outcome = yield from _ask(state, query)
        if outcome == "breaks":
            return


def _look_below(state: SearchState, until: float) -> Queries:
    """Ask about changes that held, at severities below; one that breaks there is bisected further down."""
    held = [bracket for bracket in state.brackets if bracket.high is None]
    for share, bracket in ((share, bracket) for share in _BELOW for bracket in held):
        target, place = bracket.target, int(share * (bracket.low + 1)) - 1
        query = ((target.name, target.ladder[place]),)
        if state.spent >= until:
            return
        if place < 0 or query in state.asked or target.ladder[place] >= state.ceiling(target.category):
            continue
        outcome = yield from _ask(state, query)
        if outcome == "breaks":
            found = state.best[target.category] = Bracket(target, high=place)
            yield from _bisect(state, found, 0.0)


def _held_severity(bracket: Bracket) -> float:
    return bracket.target.ladder[bracket.low]


def _pair(first: Bracket, second: Bracket) -> Query:
    ordered = (second, first) if second.target.redraws else (first, second)
    return tuple((each.target.name, _held_severity(each)) for each in ordered)
