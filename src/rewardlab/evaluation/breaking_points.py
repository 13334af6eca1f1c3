"""Smallest changes that break a verdict, their spread, search against random; attack.json.

What was found is an upper bound: a smaller change may exist that was not tried, for answers need not be monotone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.records import none_if_nan
from rewardlab.core.run import ATTACK, Run
from rewardlab.core.storage import csv_text, write_file
from rewardlab.core.trial import CATEGORIES, CLEAN, GradedPart, Trial, graded_name
from rewardlab.metrics.accuracy import rounded
from rewardlab.metrics.clustered_bootstrap import (
    Draws,
    cluster_sums,
    draw_clusters,
    percentile_interval,
    proportion_interval,
)
from rewardlab.metrics.estimates import clusters_of, with_clusters
from rewardlab.metrics.paired_differences import PairedDifference, paired_means

Outcome = Literal["holds", "breaks", "unknown", "dropped"]
Numbers = NDArray[np.float64]
ANY = "any"  # any single change, whatever its category
MOST = 4.0  # the highest severity
UNBROKEN = 5.0  # stands for an episode that was not broken: beyond every severity that was tried
QUANTILES = (0.1, 0.25, 0.5)
DRAWS = 2_000


@dataclass(frozen=True)
class Attempt:
    """One question of an attack: one or two changes, each at its severity, and what became of the verdict."""

    parts: tuple[GradedPart, ...]
    category: str
    outcome: Outcome
    trial: str

    @property
    def severity(self) -> float:
        """Return the severity; of a pair, the higher one."""
        return max(severity for _, severity in self.parts)

    @property
    def changes(self) -> tuple[str, ...]:
        """Return the names of the changes."""
        return tuple(name for name, _ in self.parts)


@dataclass(frozen=True)
class EpisodeAttack:
    """All that one strategy asked about an episode whose clean verdict is right."""

    strategy: str
    episode: str
    attempts: tuple[Attempt, ...]

    @property
    def queries(self) -> int:
        """Return how often the model was asked; a change that does not apply costs nothing."""
        return sum(attempt.outcome != "dropped" for attempt in self.attempts)

    @property
    def evaluated(self) -> list[Attempt]:
        """Return the attempts after which the verdict is known to be right or wrong."""
        return [attempt for attempt in self.attempts if attempt.outcome in ("holds", "breaks")]


@dataclass(frozen=True)
class BreakingPoint:
    """The smallest change of a category that broke an episode, in the bracket (holds_at, breaks_at]; None: none found.

    `tried` counts the changes that were asked about, `highest` is the highest severity among them.
    """

    strategy: str
    episode: str
    category: str
    perturbation: str | None
    holds_at: float | None
    breaks_at: float | None
    trial: str | None
    tried: int
    highest: float


@dataclass(frozen=True)
class BoundedEstimate:
    """A number and its 95 % interval from the clustered bootstrap."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Distribution:
    """How the breaking points of a category are spread over the episodes that were attacked in it."""

    strategy: str
    category: str
    episodes: int
    broken: int
    share: BoundedEstimate  # of the episodes that is broken
    quantiles: tuple[BoundedEstimate, ...]  # at QUANTILES; above 4 where so many episodes were not broken


def verdict_outcome(trial: Trial) -> Outcome:
    """Return whether the verdict, success (level 5 after rounding) or not, is right for what the trial shows."""
    if trial.status == "dropped":
        return "dropped"
    if trial.level is None or trial.truth_success is None:
        return "unknown"
    verdict = bool(rounded(np.array([trial.level]))[0] == 5)
    return "holds" if verdict == trial.truth_success else "breaks"


def breaking_points(attack: EpisodeAttack) -> list[BreakingPoint]:
    """Return the breaking point of an episode in each category that was tried, and by any single change."""
    evaluated = attack.evaluated
    single = [attempt for attempt in evaluated if attempt.category != "pair"]
    groups = {ANY: single} | {name: [a for a in evaluated if a.category == name] for name in CATEGORIES}
    return [_breaking_point(attack, category, tried) for category, tried in groups.items() if tried]


def _breaking_point(attack: EpisodeAttack, category: str, tried: Sequence[Attempt]) -> BreakingPoint:
    broken = [attempt for attempt in tried if attempt.outcome == "breaks"]
    scope = len({attempt.changes for attempt in tried}), max(attempt.severity for attempt in tried)
    if not broken:
        return BreakingPoint(attack.strategy, attack.episode, category, None, None, None, None, *scope)
    least = min(broken, key=lambda attempt: attempt.severity)  # of equals, the first that was found
    same = [a.severity for a in tried if a.outcome == "holds" and a.changes == least.changes]
    holds = max((severity for severity in same if severity < least.severity), default=0.0)  # 0 is clean
    found = graded_name(least.parts), holds, least.severity, least.trial
    return BreakingPoint(attack.strategy, attack.episode, category, *found, *scope)


def distribution(points: Sequence[BreakingPoint], clusters: Mapping[str, int], seed: int = 0) -> Distribution:
    """Return the spread of the breaking points of one category and strategy."""
    values = np.array([UNBROKEN if p.breaks_at is None else p.breaks_at for p in points])
    cluster, draws = _drawn(points, clusters, seed)
    broken = (values <= MOST).astype(np.float64)
    return Distribution(
        strategy=points[0].strategy,
        category=points[0].category,
        episodes=len(points),
        broken=int(broken.sum()),
        share=_broken_proportion(broken, cluster, draws),
        quantiles=tuple(_quantile(values, cluster, draws, fraction) for fraction in QUANTILES),
    )


def compare_strategies(
    search: Sequence[BreakingPoint], other: Sequence[BreakingPoint], clusters: Mapping[str, int], seed: int = 0
) -> PairedDifference:
    """Return how much lower the search breaks the same episodes; one that is not broken counts as severity 4.

    So restricted, the mean is known although some breaking points are not; a is the other strategy, b the search.
    """
    found = {point.episode: point for point in other}
    both = [point for point in search if point.episode in found]
    cluster, draws = _drawn(both, clusters, seed)
    a, b = (
        np.array([MOST if p.breaks_at is None else p.breaks_at for p in points], dtype=np.float64)
        for points in ([found[p.episode] for p in both], both)
    )
    return paired_means(a, b, cluster, draws, (0.0, MOST))


def _drawn(points: Sequence[BreakingPoint], clusters: Mapping[str, int], seed: int) -> tuple[NDArray[np.int64], Draws]:
    cluster = np.array([clusters[point.episode] for point in points], dtype=np.int64)
    return cluster, draw_clusters(max(clusters.values(), default=-1) + 1, DRAWS, seed)


def _broken_proportion(broken: Numbers, cluster: NDArray[np.int64], draws: Draws) -> BoundedEstimate:
    above, below = cluster_sums(broken, cluster, draws.clusters)
    drawn = draws.ratios(above[None, :], below[None, :])
    behind = np.array([float((below > 0).sum())])
    rate = np.array([broken.mean()])
    low, high = proportion_interval(rate, drawn, np.array([float(len(broken))]), behind)
    return BoundedEstimate(float(rate[0]), float(low[0]), float(high[0]))


def _quantile(values: Numbers, cluster: NDArray[np.int64], draws: Draws, fraction: float) -> BoundedEstimate:
    """Return the severity by which this fraction of episodes was broken, with its interval over draws of clusters."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    weights = np.cumsum(draws.weights[cluster[order]], axis=0)
    place = (weights >= fraction * weights[-1]).argmax(axis=0)
    drawn = np.where(weights[-1] > 0, ordered[place], np.nan)
    behind = np.array([float(len(np.unique(cluster)))])
    low, high = percentile_interval(drawn[None, :], behind, bounds=(0.0, UNBROKEN))
    value = ordered[int(np.ceil(fraction * len(ordered))) - 1]
    return BoundedEstimate(float(value), float(low[0]), float(high[0]))


# The result of an attack: breaking points, their spread per category, search against random, and certificates.

POINTS = "breaking_points.csv"
_COLUMNS = ("strategy", "episode", "category", "perturbation", "holds_at", "breaks_at", "tried", "highest", "trial")


@dataclass(frozen=True)
class Certificate:
    """What was tried on an episode that nothing broke: no counterexample was found, which is no proof of none."""

    strategy: str
    episode: str
    perturbations: int
    pairs: int
    queries: int
    highest: float


@dataclass(frozen=True)
class StrategyComparison:
    """By how many severities the search breaks the same episodes lower than random; unbroken ones count as 4."""

    category: str
    difference: PairedDifference


@dataclass(frozen=True)
class AttackResult:
    """All that an attack found."""

    model: str
    budget: int
    attacked: int
    wrong_when_clean: int
    queries: Mapping[str, int]
    points: tuple[BreakingPoint, ...]
    distributions: tuple[Distribution, ...]
    comparisons: tuple[StrategyComparison, ...]
    certificates: tuple[Certificate, ...]

    def cheapest(self, strategy: str) -> list[BreakingPoint]:
        """Return the smallest single change that broke each episode, the smallest of all first."""
        own = [p for p in self.points if p.strategy == strategy and p.category == ANY and p.breaks_at is not None]
        return sorted(own, key=lambda point: (point.breaks_at or 0.0, point.episode))


def attack_result(run: Run, attacks: Sequence[EpisodeAttack], wrong_when_clean: int, budget: int) -> AttackResult:
    """Return what the attempts say, with intervals that draw whole tasks again."""
    ordered = sorted(attacks, key=lambda attack: (attack.strategy, attack.episode))
    trials = run.trials()
    clean = with_clusters(trials.where(trials.matches("perturbation", CLEAN)))
    clusters = dict(zip(clean.text("episode"), clusters_of(clean).tolist(), strict=True))
    points = tuple(point for attack in ordered for point in breaking_points(attack))
    strategies = sorted({attack.strategy for attack in ordered}, reverse=True)  # search first
    groups = {
        (strategy, category): [p for p in points if (p.strategy, p.category) == (strategy, category)]
        for strategy in strategies
        for category in (ANY, *CATEGORIES)
    }
    pairs = [(c, groups.get(("search", c)), groups.get(("random", c))) for c in (ANY, *CATEGORIES)]
    return AttackResult(
        model=run.record.evaluated[0],
        budget=budget,
        attacked=len({attack.episode for attack in ordered}),
        wrong_when_clean=wrong_when_clean,
        queries={name: sum(a.queries for a in ordered if a.strategy == name) for name in strategies},
        points=points,
        distributions=tuple(distribution(group, clusters) for group in groups.values() if group),
        comparisons=tuple(StrategyComparison(c, compare_strategies(a, b, clusters)) for c, a, b in pairs if a and b),
        certificates=tuple(found for attack in ordered if (found := _certificate(attack))),
    )


def save_attack(run: Run, result: AttackResult) -> None:
    """Write the result as JSON, and every breaking point as a row of a CSV file."""
    run.save(ATTACK, _without_nan(asdict(result)))
    rows = [[vars(point)[name] for name in _COLUMNS] for point in result.points]
    write_file(run.folder / POINTS, csv_text([_COLUMNS, *rows]))


def _certificate(attack: EpisodeAttack) -> Certificate | None:
    evaluated = attack.evaluated
    if not evaluated or any(attempt.outcome == "breaks" for attempt in evaluated):
        return None
    tried = {attempt.changes for attempt in evaluated}
    singles = sum(len(names) == 1 for names in tried)
    highest = max(attempt.severity for attempt in evaluated)
    return Certificate(attack.strategy, attack.episode, singles, len(tried) - singles, attack.queries, highest)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return none_if_nan(value) if isinstance(value, float) else value
