"""The result of an attack as people read it: how early verdicts break, search against random, and certificates."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from rewardlab.analysis.attack_result import AttackResult, StrategyComparison
from rewardlab.analysis.breaking_points import MOST, QUANTILES, BoundedEstimate, Distribution
from rewardlab.analysis.format import format_number, format_p_value
from rewardlab.core.terminal_console import safe_markup

_CHEAPEST = 5  # counterexamples that are named


def print_attack(result: AttackResult, console: Console) -> None:
    """Print the whole result within 80 columns."""
    for strategy in result.queries:
        console.print(_table(result, strategy))
    for sentence in attack_sentences(result):
        console.print(safe_markup(sentence))


def attack_sentences(result: AttackResult) -> Iterator[str]:
    """Yield what the tables do not say: the cheapest counterexamples, certificates, the comparison, and caveats."""
    yield (
        f"{result.attacked} episodes were judged right when clean and attacked; {result.wrong_when_clean} were not, "
        "and are left out."
    )
    for strategy, queries in result.queries.items():
        yield from _cheapest(result, strategy)
        yield from _certificates(result, strategy, queries)
    yield from map(_comparison, result.comparisons)
    yield (
        "A breaking point is one that was found: answers need not be monotone, so that a smaller change may break "
        "the verdict too. >4: fewer episodes than that were broken within the budget."
    )


def _table(result: AttackResult, strategy: str) -> Table:
    title = f"{strategy}: severity by which a share of episodes is broken (budget {result.budget})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("changes")
    for heading in ("episodes", "broken", *(f"{share:.0%}" for share in QUANTILES)):
        table.add_column(heading, justify="right")
    for row in (d for d in result.distributions if d.strategy == strategy):
        table.add_row(*_cells(row))
    return table


def _cells(row: Distribution) -> list[str]:
    share = f"{row.share.value:.0%} [dim]{safe_markup(_interval(row.share))}[/dim]"
    found = [f"{_severity(q.value)} [dim]{safe_markup(_severities(q))}[/dim]" for q in row.quantiles]
    name = "any single" if row.category == "any" else row.category
    return [safe_markup(name), str(row.episodes), share, *found]


def _severity(value: float) -> str:
    """Return a severity; so many episodes were not broken where it is above the highest one."""
    return "-" if value != value else ">4" if value > MOST else f"{value:.1f}"


def _severities(measured: BoundedEstimate) -> str:
    return "" if measured.low != measured.low else f"[{_severity(measured.low)},{_severity(measured.high)}]"


def _interval(measured: BoundedEstimate) -> str:
    return "" if measured.low != measured.low else f"[{100 * measured.low:.0f},{100 * measured.high:.0f}]"


def _cheapest(result: AttackResult, strategy: str) -> Iterator[str]:
    for point in result.cheapest(strategy)[:_CHEAPEST]:
        assert point.breaks_at is not None
        bracket = f"holds at {point.holds_at:g}, breaks at {point.breaks_at:g}"
        yield f"{strategy}: {point.episode}: {point.perturbation}: {bracket}"


def _certificates(result: AttackResult, strategy: str, queries: int) -> Iterator[str]:
    own = [each for each in result.certificates if each.strategy == strategy]
    if not own:
        yield f"{strategy}: every attacked episode was broken, with {queries:,} queries in all."
        return
    tried = f"{_range([c.perturbations for c in own])} changes, {_range([c.pairs for c in own])} pairs"
    asked, highest = sum(c.queries for c in own), _range([c.highest for c in own])
    yield (
        f"{strategy}: no counterexample was found for {len(own)} of {result.attacked} episodes: on each {tried} tried, "
        f"up to severity {highest}; {asked:,} queries in all. None found is not none exists."
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _comparison(found: StrategyComparison) -> str:
    by, name = found.difference, "any single change" if found.category == "any" else found.category
    p = format_p_value(by.p, by.p_at_floor)
    interval = f"[{format_number(by.low)}, {format_number(by.high)}]"
    return (
        f"{name}: search breaks at {by.b:.2f} on average, random at {by.a:.2f} (unbroken counts as 4): "
        f"{by.difference:.2f} lower {interval}, {p}, {by.trials} episodes in {by.clusters} clusters"
    )
