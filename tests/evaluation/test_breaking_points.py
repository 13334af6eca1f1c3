"""Breaking points by hand."""

from dataclasses import replace

import pytest

from rewardlab.evaluation.breaking_points import (
    UNBROKEN,
    Attempt,
    BreakingPoint,
    EpisodeAttack,
    breaking_points,
    compare_strategies,
    distribution,
)


def attempt(name: str, severity: float, outcome: str, category: str = "visual") -> Attempt:
    return Attempt(((name, severity),), category, outcome, f"{name}-{severity}")  # type: ignore[arg-type]


def point(number: int, breaks_at: float | None) -> BreakingPoint:
    return BreakingPoint("search", f"e{number}", "any", None, 0.0, breaks_at, None, 1, 4.0)


def test_the_bracket_is_that_of_the_change_that_breaks_first() -> None:
    tried = (
        attempt("fog", 4, "breaks"),
        attempt("fog", 2, "holds"),
        attempt("fog", 3, "breaks"),
        attempt("tilt", 2.75, "holds"),
        attempt("latency", 4, "dropped", "temporal"),
        attempt("reverse", 3.5, "holds", "temporal"),
    )
    found = {p.category: p for p in breaking_points(EpisodeAttack("search", "e", tried))}
    assert (found["visual"].perturbation, found["visual"].holds_at, found["visual"].breaks_at) == ("fog", 2, 3)
    assert found["any"] == replace(found["visual"], category="any", tried=3)
    assert found["temporal"].breaks_at is None
    assert found["temporal"].tried == 1  # what does not apply was not tried
    assert EpisodeAttack("search", "e", tried).queries == 5


def test_quantiles_count_unbroken_episodes_as_beyond_every_severity() -> None:
    points = [
        point(n, severity) for n, severity in enumerate((0.5, 1.0, 2.0, None, None, None, None, None, None, None))
    ]
    clusters = {p.episode: n for n, p in enumerate(points)}
    found = distribution(points, clusters)
    assert (found.broken, found.episodes) == (3, 10)
    assert found.share.value == pytest.approx(0.3)
    assert [q.value for q in found.quantiles] == [0.5, 2.0, UNBROKEN]
    assert found.quantiles[0].low <= 0.5 <= found.quantiles[0].high <= UNBROKEN


def test_strategies_are_compared_on_the_same_episodes_up_to_severity_four() -> None:
    search = [point(n, 1.0) for n in range(12)]
    random = [point(n, None if n < 6 else 2.0) for n in range(12)]
    found = compare_strategies(search, random, {p.episode: n for n, p in enumerate(search)})
    assert (found.a, found.b, found.difference) == (3.0, 1.0, 2.0)
    assert 1 <= found.low <= 2 <= found.high <= 3
