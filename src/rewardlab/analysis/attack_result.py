"""The result of an attack: breaking points, their spread per category, search against random, and certificates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rewardlab.analysis.breaking_points import (
    ANY,
    BreakingPoint,
    Distribution,
    EpisodeAttack,
    breaking_points,
    compare_strategies,
    distribution,
    episode_clusters,
)
from rewardlab.core.csv_export import csv_text
from rewardlab.core.dataclass_json import none_if_nan
from rewardlab.core.run import Run, atomic_write
from rewardlab.core.trial import CATEGORIES
from rewardlab.metrics.paired_differences import PairedDifference

ATTACK, POINTS = "attack.json", "breaking_points.csv"
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
    clusters = episode_clusters(run.trials())
    points = tuple(point for attack in ordered for point in breaking_points(attack))
    strategies = sorted({attack.strategy for attack in ordered}, reverse=True)  # search first
    groups = [_of(points, strategy, category) for strategy in strategies for category in (ANY, *CATEGORIES)]
    return AttackResult(
        model=run.record.judged[0],
        budget=budget,
        attacked=len({attack.episode for attack in ordered}),
        wrong_when_clean=wrong_when_clean,
        queries={name: sum(a.queries for a in ordered if a.strategy == name) for name in strategies},
        points=points,
        distributions=tuple(distribution(group, clusters) for group in groups if group),
        comparisons=_comparisons(points, clusters) if len(strategies) > 1 else (),
        certificates=tuple(found for attack in ordered if (found := _certificate(attack))),
    )


def save_attack(run: Run, result: AttackResult) -> None:
    """Write the result as JSON, and every breaking point as a row of a CSV file."""
    run.save(ATTACK, _without_nan(asdict(result)))
    rows = [asdict(point) for point in result.points]
    with atomic_write(run.folder / POINTS) as partial:
        content = csv_text([_COLUMNS, *([row[name] for name in _COLUMNS] for row in rows)])
        partial.write_text(content, encoding="utf-8")


def _of(points: Sequence[BreakingPoint], strategy: str, category: str) -> list[BreakingPoint]:
    return [point for point in points if point.strategy == strategy and point.category == category]


def _comparisons(points: Sequence[BreakingPoint], clusters: Mapping[str, int]) -> tuple[StrategyComparison, ...]:
    pairs = [(c, _of(points, "search", c), _of(points, "random", c)) for c in (ANY, *CATEGORIES)]
    return tuple(StrategyComparison(c, compare_strategies(a, b, clusters)) for c, a, b in pairs if a and b)


def _certificate(attack: EpisodeAttack) -> Certificate | None:
    judged = [attempt for attempt in attack.attempts if attempt.outcome in ("holds", "breaks")]
    if not judged or any(attempt.outcome == "breaks" for attempt in judged):
        return None
    tried = {tuple(name for name, _ in attempt.parts) for attempt in judged}
    singles = sum(len(names) == 1 for names in tried)
    highest = max(attempt.severity for attempt in judged)
    return Certificate(attack.strategy, attack.episode, singles, len(tried) - singles, attack.queries, highest)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return none_if_nan(value) if isinstance(value, float) else value
