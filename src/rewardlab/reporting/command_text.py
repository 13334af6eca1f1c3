"""What `score`, `attack`, `compare`, `data rank` and `runs` print, one section each."""

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewardlab.core.episode import is_success
from rewardlab.core.errors import RunError
from rewardlab.core.records import none_if_nan
from rewardlab.core.terminal import counted, one_line, safe_markup
from rewardlab.core.trial import Failure, describe_info, familiarity_sentence, info_to_json
from rewardlab.evaluation.breaking_points import MOST, QUANTILES, AttackResult
from rewardlab.evaluation.compare import OVERALL, Comparison, PairedTest, finding
from rewardlab.evaluation.display import format_number, format_p_value, format_percent_interval, markdown_text
from rewardlab.evaluation.rank import Ranking
from rewardlab.evaluation.runs import RunEntry
from rewardlab.evaluation.score import ScoredClip, ScoreReport
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS
from rewardlab.reporting.findings_text import spent_text

if TYPE_CHECKING:
    import pyarrow

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 78
_NAME = len("familiarity")  # the longest name of a line
_BARS_SHOWN = 48


def score_lines(asked: ScoreReport, *, every: bool = False) -> Iterator[str]:
    """Yield the lines that explain every answer; the traceback of the first failure, or of `every` one."""
    untold = True
    for clip in asked.clips:
        yield f"{clip.clip}: {clip.shown} of {clip.count} frames shown, {clip.duration:.1f} s"
        yield from (f"  {line}" for line in _answer_lines(clip))
        if isinstance(clip.answer, Failure) and clip.answer.traceback and (every or untold):
            untold = False
            yield from (f"    {line}" for line in clip.answer.traceback.splitlines())
    if asked.prompt:
        yield "prompt:"
        for line in asked.prompt.strip().splitlines():
            yield from textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="  ") or [""]
    cost = f"; {spent_text(asked.spent)}" if asked.spent else ""
    yield f"{asked.model} took {asked.seconds:.2f} s for {len(asked.clips)} clip{'s' * (len(asked.clips) > 1)}{cost}"


def score_json(asked: ScoreReport) -> str:
    """Return everything as one JSON object."""
    record: dict[str, Any] = {
        "model": asked.model,
        "instruction": asked.instruction,
        "prompt": asked.prompt or None,
        "seconds": asked.seconds,
        "spent": vars(asked.spent) if asked.spent else None,
        "clips": [_clip_json(clip) for clip in asked.clips],
    }
    return json.dumps(record, indent=2)


def sparkline(values: Sequence[float]) -> str:
    """Return numbers from 0 to 1 as a line of bars; what lies outside counts as the end."""
    return "".join(_BARS[min(len(_BARS) - 1, int(min(max(value, 0.0), 1.0) * len(_BARS)))] for value in values)


def _answer_lines(clip: ScoredClip) -> Iterator[str]:
    answer = clip.answer
    if isinstance(answer, Failure):
        yield from _field("no answer", answer.reason)
    else:
        success = "a success" if is_success(answer.level) else "not a success"
        yield _line("level", f"{answer.level:.2f} of 5, {success}")
        if answer.probabilities:
            each = (f"{level}: {p:.2f}" for level, p in enumerate(answer.probabilities, start=1))
            yield _line("levels", "  ".join(each))
        if answer.progress:
            values, last = answer.progress, len(answer.progress) - 1
            if last >= _BARS_SHOWN:  # as many as a line has room for, the first and the last among them
                values = tuple(values[round(n * last / (_BARS_SHOWN - 1))] for n in range(_BARS_SHOWN))
            ends = f"{answer.progress[0]:.2f} to {answer.progress[-1]:.2f}"
            yield _line("progress", f"{sparkline(values)}  {ends}")
    if answer.raw:
        yield from _field("answer", answer.raw)
    if familiarity := familiarity_sentence(answer.info):
        yield from _field("familiarity", familiarity)
    if known := describe_info(answer.info):
        yield from _field("info", known)


def _clip_json(clip: ScoredClip) -> dict[str, Any]:
    answer = clip.answer
    record: dict[str, Any] = {"clip": str(clip.clip), "shown": clip.shown, "frames": clip.count, "raw": answer.raw}
    record |= {"familiarity": familiarity_sentence(answer.info) or None, "info": info_to_json(answer.info)}
    if isinstance(answer, Failure):
        return record | {"failure": answer.reason, "traceback": answer.traceback}
    record |= {"level": answer.level, "success": is_success(answer.level)}
    return record | {"probabilities": answer.probabilities, "progress": answer.progress}


def _line(name: str, text: str) -> str:
    return f"{name:{_NAME}} {text}"


def _field(name: str, text: str) -> Iterator[str]:
    """Yield a text of any length under its name, with lines that fit the terminal."""
    head = _line(name, "")
    yield from textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


# The result of an attack as people read it: how early verdicts break, search against random, and certificates.

_CHEAPEST = 5  # counterexamples that are named


def print_attack(result: AttackResult, console: Console) -> None:
    """Print the whole result within 80 columns."""
    for strategy in result.queries:
        console.print(_table(result, strategy))
    for sentence in attack_sentences(result):
        console.print(safe_markup(sentence))


def attack_sentences(result: AttackResult) -> Iterator[str]:
    """Yield what the tables leave out: the cheapest counterexamples, certificates, the comparison, and caveats."""
    yield (
        f"{result.attacked} episodes were attacked; {result.wrong_when_clean} were left out: "
        "the clean verdict was already wrong."
    )
    for strategy, queries in result.queries.items():
        for point in result.cheapest(strategy)[:_CHEAPEST]:
            bracket = f"holds at {point.holds_at:g}, breaks at {point.breaks_at:g}"
            yield f"{strategy}: {point.episode}: {point.perturbation}: {bracket}"
        yield _certificates(result, strategy, queries)
    for found in result.comparisons:
        by, name = found.difference, "any single change" if found.category == "any" else found.category
        interval, p = f"[{format_number(by.low)}, {format_number(by.high)}]", format_p_value(by.p)
        yield (
            f"{name}: search breaks at {by.b:.2f} on average, random at {by.a:.2f} (unbroken counts as 4): "
            f"{by.difference:.2f} lower {interval}, {p}, {by.trials} episodes in {by.clusters} clusters"
        )
    yield (
        "A breaking point is an upper bound: answers need not be monotone, so a smaller change may flip the verdict "
        "too. >4: fewer episodes than that were broken within the budget."
    )


def _table(result: AttackResult, strategy: str) -> Table:
    title = f"{strategy}: severity at which a fraction of episodes is broken (budget {result.budget})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("changes")
    for heading in ("episodes", "broken", *(f"{fraction:.0%}" for fraction in QUANTILES)):
        table.add_column(heading, justify="right")
    for row in (d for d in result.distributions if d.strategy == strategy):
        broken = f"{row.share.value:.0%} [dim]{safe_markup(format_percent_interval(row.share))}[/dim]"
        found = []
        for q in row.quantiles:
            ends = "" if q.low != q.low else f"[{_severity(q.low)},{_severity(q.high)}]"
            found.append(f"{_severity(q.value)} [dim]{safe_markup(ends)}[/dim]")
        name = "any single" if row.category == "any" else row.category
        table.add_row(safe_markup(name), str(row.episodes), broken, *found)
    return table


def _severity(value: float) -> str:
    """Return a severity; so many episodes were not broken where it is above the highest one."""
    return "-" if value != value else ">4" if value > MOST else f"{value:.1f}"


def _certificates(result: AttackResult, strategy: str, queries: int) -> str:
    own = [each for each in result.certificates if each.strategy == strategy]
    if not own:
        return f"{strategy}: every attacked episode was broken, with {queries:,} queries in all."
    tried = f"{_range([c.perturbations for c in own])} changes, {_range([c.pairs for c in own])} pairs"
    asked, highest = sum(c.queries for c in own), _range([c.highest for c in own])
    return (
        f"{strategy}: no counterexample was found for {len(own)} of {result.attacked} episodes: on each {tried} tried, "
        f"up to severity {highest}; {asked:,} queries in all. Absence of a counterexample is not a proof."
    )


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


# Two models compared, as people read it: one verdict, then a table of every test; on the terminal or in a file.

COMPARISON_HEAD = ("on", "metric", "A", "B", "A - B [95 %]", "p (Holm)", "better")


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
    overall = overall if any(test.group == OVERALL for test in comparison.tests) else ""
    return f"{better} is better than {worse} in {len(won)} {of}{overall}"


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the verdict, which model is A and which B, the table, and what must be known of it."""
    for line in (verdict(comparison), *_who(comparison)):
        console.print(safe_markup(line), soft_wrap=True)
    table = Table(*COMPARISON_HEAD, box=None, pad_edge=False)
    for test in comparison.tests:
        table.add_row(*map(safe_markup, test_row(test)))
    console.print(table)
    for note in comparison_notes(comparison):
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


def test_row(test: PairedTest) -> tuple[str, ...]:
    """Return a test as a line of the table."""
    paired = test.paired
    gap = "-" if math.isnan(paired.difference) else test.gap
    p = format_p_value(test.p_holm).removeprefix("p ").removeprefix("= ")
    title = METRICS[test.metric].title
    return test.group, title, format_number(paired.a), format_number(paired.b), gap, p, (test.better or "-").upper()


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return what must be known of the tests, such as too few clusters."""
    few = [test.group for test in comparison.tests if test.paired.clusters < FEW_CLUSTERS]
    notes = [f"too few clusters to rely on the intervals: {', '.join(dict.fromkeys(few))}"] if few else []
    return notes + list(comparison.notes)


def _as_markdown(comparison: Comparison) -> str:
    lines = [f"**{_plain(verdict(comparison))}**", "", *(f"- {_plain(who)}" for who in _who(comparison)), ""]
    lines += [f"| {' | '.join(COMPARISON_HEAD)} |", "|" + "---|" * len(COMPARISON_HEAD)]
    lines += [f"| {' | '.join(test_row(test))} |" for test in comparison.tests]
    lines += ["", *(f"- {_plain(finding(comparison, test))}" for test in comparison.tests)]
    lines += [f"- {_plain(note)}" for note in comparison_notes(comparison)]
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
        "notes": comparison_notes(comparison),
        "tests": [_test_json(comparison, test) for test in comparison.tests],
    }
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def _test_json(comparison: Comparison, test: PairedTest) -> dict[str, Any]:
    numbers = vars(test.paired) | {"p_holm": test.p_holm, "mcnemar": test.mcnemar, "noise_floor": test.noise_floor}
    defined = {name: none_if_nan(x) if isinstance(x, float) else x for name, x in numbers.items()}
    about = {"group": test.group, "metric": test.metric, "better": test.better}
    basis = {"episodes": test.episodes, "tasks": test.tasks, "finding": finding(comparison, test)}
    return about | defined | basis


# `data rank`: the worst episodes, what to know of them, and the command that leaves them out.


_WHOLE_NAME = 36  # characters of an episode's name that stay on one line


def print_ranking(ranking: Ranking, console: Console) -> None:
    """Print the table of the worst episodes, the notes, and the command that removes them."""
    lowest = sum(each.level is not None for each in ranking.worst)
    failed = sum(each.level is None for each in ranking.episodes)
    of = counted(len(ranking.episodes), "episode")
    found = f"the {lowest} to look at first, worst first" if lowest else "it gives no reason to look at any"
    none = f"; no answer for {failed}" if failed else ""
    console.print(safe_markup(f"{of} scored by {ranking.model}: {found}{none}"), soft_wrap=True)
    if ranking.worst:
        table = Table(box=None, pad_edge=False)
        longest = max(len(each.episode) for each in ranking.worst)
        table.add_column("episode", overflow="fold", no_wrap=longest <= _WHOLE_NAME)
        for heading in ("level", *ranking.baselines):
            table.add_column(heading, justify="right")
        table.add_column("why", overflow="fold")
        for each in ranking.worst:
            numbers = (format_number(level, 1) for level in (each.level, *map(each.baselines.get, ranking.baselines)))
            table.add_row(safe_markup(each.episode), *numbers, safe_markup(one_line("; ".join(each.reasons))))
        console.print(table)
    for note in ranking.notes:
        console.print(safe_markup(one_line(note)), soft_wrap=True)
    if ranking.remove:
        what = "To leave these episodes out of a copy, watch them first, then run with LeRobot installed:"
        console.print(safe_markup(what), soft_wrap=True)
        console.print(safe_markup(f"  {ranking.remove}"), soft_wrap=True)


# `runs list`, `runs sql`: the runs of a folder as a table, and the result of a query.

_LONGEST = 60  # characters of a value in a table
_ROWS = 200  # of a query's result on a terminal


def run_table(entries: Sequence[RunEntry]) -> Table:
    """Return the runs as a table, one line each; where it is narrow, models and data are cut short."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "trials", "created"):  # of columns, rich narrows first those that may wrap
        table.add_column(heading, justify="right" if heading == "trials" else "left", no_wrap=True, max_width=40)
    for heading in ("kind", "models", "data"):
        table.add_column(Text(heading, no_wrap=True, overflow="ellipsis"))
    for entry in entries:
        whole, cut = (entry.name, entry.state), [text[:_LONGEST] for text in _run_facts(entry)]
        cells = [_run_cell(text, fold=True) for text in (*whole, *cut[:2])]
        table.add_row(*cells, *(_run_cell(text, fold=False) for text in cut[2:]))
    return table


def _run_cell(text: str, *, fold: bool) -> Text:
    cell = Text.from_markup(safe_markup(text), overflow="fold" if fold else "ellipsis")
    cell.no_wrap = not fold
    return cell


def _run_facts(entry: RunEntry) -> tuple[str, str, str, str, str]:
    if entry.state == "unreadable":
        return "", "", "", entry.problem, ""
    trials = f"{entry.trials:,}" + (f"/{entry.planned:,}" if entry.trials != entry.planned else "")
    return trials, entry.created[:10], entry.kind, ", ".join(entry.models), entry.data


def query_table(answer: "pyarrow.Table") -> Table:
    """Return the result of a query as a table of its first rows."""
    table = Table(box=None, pad_edge=False)
    for name in answer.column_names:
        table.add_column(safe_markup(name))
    for row in answer.slice(0, _ROWS).to_pylist():
        table.add_row(*(safe_markup(_shown(value)) for value in row.values()))
    if answer.num_rows > _ROWS:
        table.caption = f"{answer.num_rows - _ROWS:,} more rows; --json prints all"
    return table


def rows_json(rows: Sequence[Any]) -> str:
    """Return rows as JSON lines; values that JSON lacks as text."""
    return "\n".join(json.dumps(row, default=str, ensure_ascii=False) for row in rows)


def entry_row(entry: RunEntry) -> dict[str, object]:
    """Return a run as JSON holds it."""
    return {name: str(value.folder) if name == "run" else value for name, value in vars(entry).items()}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)[:_LONGEST]
