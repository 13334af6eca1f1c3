"""Two models compared, as people read it: one verdict, then a table of every test; on the terminal or in a file."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rewardlab.analysis.format import format_number, format_p_value, markdown_text
from rewardlab.analysis.model_comparison import OVERALL, Comparison, PairedTest, finding
from rewardlab.core.errors import RunError
from rewardlab.core.terminal_console import safe_markup
from rewardlab.core.terminal_text import one_line
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS

_HEAD = ("on", "metric", "A", "B", "A - B [95 %]", "p (Holm)", "better")


def verdict(comparison: Comparison) -> str:
    """Return what all tests say together: which model is better, in how many of them, or that none can be claimed."""
    a, b = comparison.model_a, comparison.model_b
    wins = {side: [test for test in comparison.tests if test.better == side] for side in ("a", "b")}
    of = f"of {len(comparison.tests)} tests"
    if not wins["a"] and not wins["b"]:
        return f"no difference can be claimed between {a} and {b} in any {of}"
    if wins["a"] and wins["b"]:
        return f"mixed: {a} is better in {len(wins['a'])}, {b} in {len(wins['b'])} {of}"
    better, worse, won = (a, b, wins["a"]) if wins["a"] else (b, a, wins["b"])
    overall = ", overall among them" if any(test.group == OVERALL for test in won) else ", but in none overall"
    return f"{better} is better than {worse} in {len(won)} {of}{overall}"


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the verdict, which model is A and which B, the table, and what must be known of it."""
    for line in (verdict(comparison), *_who(comparison)):
        console.print(safe_markup(line), soft_wrap=True)
    table = Table(*_HEAD, box=None, pad_edge=False)
    for test in comparison.tests:
        table.add_row(*map(safe_markup, _cells(test)))
    console.print(table)
    for note in _notes(comparison):
        console.print(safe_markup(note), soft_wrap=True)


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the comparison as Markdown or, for a name that ends in .json, as JSON; return the path."""
    text = _as_json(comparison) if path.suffix == ".json" else _as_markdown(comparison)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; name a file in a folder that exists") from error
    return path


def _who(comparison: Comparison) -> tuple[str, str]:
    """Return which model is A and which B, each with its whole string where it is called otherwise."""
    named = ((comparison.model_a, comparison.string_a), (comparison.model_b, comparison.string_b))
    a, b = (name if name.startswith(string) else f"{name}, which is {string}" for name, string in named)
    return f"A: {a}", f"B: {b}"


def _cells(test: PairedTest) -> tuple[str, ...]:
    paired = test.paired
    gap = "-"
    if not math.isnan(paired.difference):
        gap = f"{paired.difference:+.2f} [{paired.low:+.2f}, {paired.high:+.2f}]"
    p = format_p_value(test.p_holm, paired.p_at_floor).removeprefix("p ").removeprefix("= ")
    title = METRICS[test.metric].title
    return test.group, title, format_number(paired.a), format_number(paired.b), gap, p, (test.better or "-").upper()


def _notes(comparison: Comparison) -> list[str]:
    few = [test.group for test in comparison.tests if test.paired.clusters < FEW_CLUSTERS]
    notes = [f"too few clusters to rely on the intervals: {', '.join(dict.fromkeys(few))}"] if few else []
    return notes + list(comparison.notes)


def _as_markdown(comparison: Comparison) -> str:
    lines = [f"**{_plain(verdict(comparison))}**", "", *(f"- {_plain(who)}" for who in _who(comparison)), ""]
    lines += [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    lines += [f"| {' | '.join(_cells(test))} |" for test in comparison.tests]
    lines += ["", *(f"- {_plain(finding(comparison, test))}" for test in comparison.tests)]
    lines += [f"- {_plain(note)}" for note in _notes(comparison)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return markdown_text(one_line(text))


def _as_json(comparison: Comparison) -> str:
    record: dict[str, Any] = {
        "verdict": verdict(comparison),
        "a": comparison.model_a,
        "b": comparison.model_b,
        "string_a": comparison.string_a,
        "string_b": comparison.string_b,
        "draws": comparison.draws,
        "seed": comparison.seed,
        "notes": _notes(comparison),
        "tests": [_test_json(comparison, test) for test in comparison.tests],
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def _test_json(comparison: Comparison, test: PairedTest) -> dict[str, Any]:
    numbers = vars(test.paired) | {"p_holm": test.p_holm, "mcnemar": test.mcnemar}
    defined = {
        name: None if isinstance(value, float) and math.isnan(value) else value for name, value in numbers.items()
    }
    return {
        "group": test.group,
        "metric": test.metric,
        "better": test.better,
        **defined,
        "episodes": test.episodes,
        "tasks": test.tasks,
        "finding": finding(comparison, test),
    }
