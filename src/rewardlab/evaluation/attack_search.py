"""The search over one episode and its threshold posterior; the random baseline.

`search` looks for the smallest change that breaks the verdict in every category; `random_queries` is its baseline.
Both are functions of the outcomes and of what earlier episodes taught, so that a stopped attack is gone through again
and goes on where it was.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest

import numpy as np
from numpy.random import Generator as Rng
from numpy.typing import NDArray

from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.trial import GradedPart
from rewardlab.evaluation.breaking_points import MOST, UNBROKEN, Outcome

Floats = NDArray[np.float64]

_BREAKS_ABOVE, _BREAKS_BELOW = 0.9, 0.02  # chance of a wrong verdict from the breaking point on, and before it
_NEVER = 0.6  # chance that a change of which nothing is known breaks at no severity
_PRIOR_WEIGHT, _POOL_WEIGHT = 10.0, 2.0  # in episodes: of knowing nothing, and of what is known of all changes together
_BINS = 16  # of the range of severities, in which ladders of different length are compared


@dataclass(eq=False)
class ThresholdPosterior:
    """Where one change breaks one episode: a probability for each place of its ladder, the last for none of them."""

    probs: Floats
    asked: bool = False

    def chances(self) -> Floats:
        """Return for each place of the ladder the chance that the verdict breaks there."""
        reached: Floats = _BREAKS_BELOW + (_BREAKS_ABOVE - _BREAKS_BELOW) * self.probs[:-1].cumsum()
        return reached

    def update(self, place: int, *, broke: bool) -> None:
        """Learn from one answer."""
        chance = np.where(np.arange(len(self.probs)) <= place, _BREAKS_ABOVE, _BREAKS_BELOW)
        posterior = self.probs * (chance if broke else 1 - chance)
        self.probs, self.asked = posterior / posterior.sum(), True


@dataclass(eq=False)
class LearnedPriors:
    """What the episodes so far say of each change, and of all changes together where little is known of one."""

    counts: dict[str, Floats] = field(default_factory=dict)  # in episodes: by change, for each bin and for never

    def prior(self, name: str, ladder: tuple[float, ...]) -> ThresholdPosterior:
        """Return what is expected of a change before the first answer."""
        own = self.counts.get(name, np.zeros(_BINS + 1))
        nothing_known = np.append(np.full(_BINS, (1 - _NEVER) / _BINS), _NEVER)
        pool = sum(self.counts.values(), _PRIOR_WEIGHT * nothing_known)
        mixed = own + _POOL_WEIGHT * pool / pool.sum()
        binned = mixed / mixed.sum()
        # What lies between two places of the ladder breaks first at the higher one.
        reached = np.interp(ladder, np.linspace(0, MOST, _BINS + 1), np.append(0.0, binned[:-1].cumsum()))
        return ThresholdPosterior(np.append(np.diff(reached, prepend=0.0), 1 - reached[-1]))

    def learn(self, name: str, ladder: tuple[float, ...], posterior: ThresholdPosterior) -> None:
        """Add what the answers about an episode say of a change, if it was asked about."""
        if posterior.asked:
            bins = np.ceil(np.array(ladder) / MOST * _BINS).astype(np.int64) - 1
            binned = np.bincount(bins, weights=posterior.probs[:-1], minlength=_BINS)
            self.counts.setdefault(name, np.zeros(_BINS + 1))[:] += np.append(binned, posterior.probs[-1])


Query = tuple[GradedPart, ...]  # one change at its severity, or two
Queries = Generator[Query, Outcome, None]
_SCAN, _SINGLE = 0.6, 0.8  # fractions of the budget before the best are narrowed, and for single changes
_NEAR = 0.25  # severities this close answer alike
_MAX_DROPS = 2  # severities at which a change does not apply before it is left aside


@dataclass(frozen=True)
class Target:
    """A perturbation to attack with and its severities; one that redraws the scene would undo a change before it."""

    name: str
    category: str
    ladder: tuple[float, ...]
    redraws: bool = False


@dataclass(eq=False)
class Probed:
    """What a search knows of one change: its threshold, and the places of its ladder that are open, held and broke."""

    target: Target
    threshold: ThresholdPosterior
    open: Floats  # 0 where it was asked, little beside a place that held, 1 far from every answer
    held: set[int] = field(default_factory=set)
    high: int | None = None  # the lowest place that broke
    drops: int = 0

    @property
    def low(self) -> int:
        """Return the highest place that held below all that broke; -1 is clean."""
        return max((place for place in self.held if self.high is None or place < self.high), default=-1)

    def severity(self, place: int) -> float:
        """Return the severity at a place."""
        return self.target.ladder[place]


@dataclass(eq=False)
class SearchState:
    """What a search knows: the queries it spent, every change, and the lowest severity that broke, by category."""

    budget: int
    probed: list[Probed]
    spent: int = 0
    best: dict[str, float] = field(default_factory=dict)

    def values(self, probed: Probed) -> Floats:
        """Return what asking at each place is worth: the chance of a break times what it would lower.

        It lowers the breaking point of all, and of the category. Rounded, so that ties are ties on every processor.
        """
        severities = np.array(probed.target.ladder)
        lowest = min(self.best.values(), default=UNBROKEN)
        own = self.best.get(probed.target.category, UNBROKEN)
        gains = (lowest - severities).clip(0) + (own - severities).clip(0)
        values: Floats = (probed.threshold.chances() * gains * probed.open).round(9)
        return values


def start_search(targets: Sequence[Target], budget: int, priors: LearnedPriors) -> SearchState:
    """Return what a search knows before its first question."""
    probed = [Probed(t, priors.prior(t.name, t.ladder), np.ones(len(t.ladder))) for t in targets]
    return SearchState(budget, probed)


def search(state: SearchState) -> Queries:
    """Ask where the expected gain is highest, narrow the best of each category to one step, then try pairs."""
    for fraction in (_SCAN, _SINGLE):
        yield from _ask_singles(state, fraction * state.budget)
        broken = [(probed.severity(probed.high), probed) for probed in state.probed if probed.high is not None]
        best: dict[str, Probed] = {}
        for _, probed in sorted(broken, key=lambda each: each[0]):
            best.setdefault(probed.target.category, probed)
        for probed in best.values():
            yield from _bisect(state, probed)
    yield from _ask_pairs(state)
    yield from _ask_singles(state, state.budget)


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


def most_trials(targets: int, budget: int) -> int:
    """Return how many trials a strategy can ask of one episode, those that do not apply included."""
    return 2 * budget + _MAX_DROPS * targets


def in_drawn_order(targets: Sequence[Target], seed: int, episode: str) -> list[Target]:
    """Return the targets in an order drawn for the episode, the categories taking turns."""
    rng = rng_for(seed, "order of an attack", episode)
    by_category: dict[str, list[Target]] = {}
    for place in rng.permutation(len(targets)):
        by_category.setdefault(targets[place].category, []).append(targets[place])
    return [target for turn in zip_longest(*by_category.values()) for target in turn if target is not None]


def _ask_singles(state: SearchState, until: float) -> Queries:
    """Ask about single changes, each time where chance times gain is highest, until so many queries are spent."""
    while state.spent < until:
        values = [state.values(probed) for probed in state.probed]
        best = int(np.argmax([float(each.max()) for each in values]))
        if values[best].max() <= 0:
            return
        yield from _ask(state, state.probed[best], int(np.argmax(values[best])))


def _ask(state: SearchState, probed: Probed, place: int) -> Queries:
    """Ask about one change at one place and learn from the outcome."""
    probed.open[place] = 0
    outcome = yield ((probed.target.name, probed.severity(place)),)
    if outcome == "dropped":
        probed.drops += 1
        probed.open[place if probed.drops < _MAX_DROPS else 0 :] = 0  # it may only apply where it is small
        return
    state.spent += 1
    if outcome == "unknown":
        return
    probed.threshold.update(place, broke=outcome == "breaks")
    if outcome == "holds":
        probed.open *= 1 - np.exp(-np.abs(np.array(probed.target.ladder) - probed.severity(place)) / _NEAR)
        probed.held.add(place)
    elif probed.high is None or place < probed.high:
        probed.high = place
        category, severity = probed.target.category, probed.severity(place)
        state.best[category] = min(severity, state.best.get(category, UNBROKEN))


def _bisect(state: SearchState, probed: Probed) -> Queries:
    """Halve the bracket of a change that breaks to one step of its ladder."""
    while probed.high is not None and probed.high - probed.low > 1 and state.spent < state.budget:
        middle = (probed.high + probed.low) // 2
        if not probed.open[middle]:
            return  # asked before, against the order of severities
        yield from _ask(state, probed, middle)


def _ask_pairs(state: SearchState) -> Queries:
    """Ask about pairs of changes that hold alone, the likeliest to gain first, until one breaks."""

    def value(pair: tuple[Probed, Probed]) -> float:
        chances = [float(each.threshold.chances()[each.low]) for each in pair]
        return sum(chances) * (UNBROKEN - max(each.severity(each.low) for each in pair))

    held = [probed for probed in state.probed if probed.low >= 0]
    pairs = [(a, b) for a, b in combinations(held, 2) if not (a.target.redraws and b.target.redraws)]
    pairs.sort(key=lambda pair: -value(pair))
    for first, second in pairs[: state.budget]:  # those that do not apply cost no query, but their number must end
        if state.spent >= state.budget:
            return
        ordered = (second, first) if second.target.redraws else (first, second)
        outcome = yield tuple((each.target.name, each.severity(each.low)) for each in ordered)
        state.spent += outcome != "dropped"
        if outcome == "breaks":
            return
