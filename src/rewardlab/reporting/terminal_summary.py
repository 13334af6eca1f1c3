"""A stress test in 80 columns, as headline JSON, and why models failed."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from shlex import quote
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rewardlab.core.errors import GATE_FAILED, MODEL_FAILED, PlanError
from rewardlab.core.run import Run
from rewardlab.core.summary import AccuracyDrop, Measurement, Summary
from rewardlab.core.terminal import safe_markup
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.display import (
    display_names,
    failure_reasons,
    format_coverage,
    format_number,
    model_meant,
    names_of_run,
)
from rewardlab.evaluation.findings import contrast, verdict
from rewardlab.evaluation.gates import Gate, GateResult, parse_gate, silent_models
from rewardlab.metrics import metrics_shown
from rewardlab.metrics.accuracy import macro_mae, success_accuracy
from rewardlab.metrics.contract import Metric
from rewardlab.models.contract import NamedModel
from rewardlab.models.ledger import spent_by_model
from rewardlab.reporting.findings_text import (
    abstention_sentence,
    ceiling_sentence,
    certified_text,
    control_sentences,
    data_sentences,
    findings,
    noise_sentence,
    stage_metrics,
)

NAME_WIDTH = 24  # characters of a line; a longer name goes on in the next
_ROOM = 16  # characters beside three numbers with their intervals in a line

_HEADLINES: tuple[tuple[Metric | None, str], ...] = (  # the first for which the data has labels
    (macro_mae, "Mean error in levels (0 is perfect)"),
    (success_accuracy, "Share of clips classified correctly as success or failure"),
    (None, "No clip has a label, so accuracy is unknown. Share of expectations kept"),
)
_MOST_REASONS = 3  # of a model; the others are counted


def print_summary(summary: Summary, console: Console, *, every: bool = False) -> None:
    """Print one table of how each model does clean and changed, beside the best control; or every table and finding."""
    if every:
        _print_everything(summary, console)
        return
    found = contrast(summary)
    for sentence in verdict(summary) if found is None else (found.sentence,):
        console.print(safe_markup(sentence), highlight=False)
    metric, title = _headline(summary)
    clean = ["clean with 95 % interval"] if metric is not None else []
    changed = [f"at severity {summary.highest_severity}"] if summary.categories else []
    console.print(f"{title}, {' and '.join(clean + changed)}", highlight=False)
    console.print(_headline_table(summary))
    _print_noise(summary, console)
    _print_stages(summary, console)


def next_command(run: Run, summary: Summary) -> str:
    """Return the command that most users type after this run."""
    data = quote(run.record.settings.data)
    if _headline(summary)[0] is None:
        return f"rewardlab data verify {data}  (label the clips on a local page)"
    if all(":" not in model for model in summary.evaluated):  # these models ship with rewardlab
        return f"rewardlab stress package.module:MODEL {data}  (your own model)"
    return f"rewardlab view {quote(str(run.folder.parent))}  (compare runs)"


def _headline(summary: Summary) -> tuple[Metric | None, str]:
    """Return the first headline metric that the labels of the data allow, with the title of its table."""
    return next(pair for pair in _HEADLINES if pair[0] is None or _is_measured(summary, pair[0].name))


_BEST = " (best baseline)"  # behind the name of a control


def _headline_table(summary: Summary) -> Table:
    """Return one metric of each evaluated model and of the best control: clean, then changed by each category."""
    metric, _ = _headline(summary)
    top = summary.highest_severity
    table = _table(summary, "")
    table.columns[0].max_width = NAME_WIDTH + len(_BEST)
    if metric is not None:
        table.add_column("clean", justify="right")
    for category in summary.categories:
        table.add_column(safe_markup(category), justify="right")
    name = metric.name if metric is not None else "expectation_kept"
    best = summary.best_control(summary.evaluated[0], name, metric.better) if metric is not None else None
    rows = {model: _name(summary, model) for model in summary.evaluated}
    rows |= {best.model: f"{best.model}{_BEST}"} if best is not None else {}
    for model, shown in rows.items():
        clean = summary.clean(model, name)
        ends = "" if clean.low is None or clean.high is None else f" [dim]{clean.low:.2f}..{clean.high:.2f}[/dim]"
        changed = [summary.measurement(model, category, top, name) for category in summary.categories]
        own = [f"{format_number(clean.value)}{ends}[dim]{_unanswered(clean)}[/dim]"] if metric is not None else []
        table.add_row(shown, *own, *(f"{format_number(row.value)}[dim]{_unanswered(row)}[/dim]" for row in changed))
        if metric is not None and model in summary.evaluated:
            _add_noise_row(table, summary, model, metric.name, clean=True)
    return table


def _add_noise_row(table: Table, summary: Summary, model: str, metric: str, *, clean: bool) -> None:
    """Add, below a model, what asking again alone can make of each number's difference from clean."""
    noise = summary.noise_of(model)
    if noise is not None:
        own = [noise.macro_mae if metric == macro_mae.name else noise.success_accuracy] if clean else []
        top = summary.highest_severity
        floors = [summary.paired_reference_of(model, c, top, metric).noise_floor for c in summary.categories]
        table.add_row("[dim]  noise floor[/dim]", *(f"[dim]{format_number(floor)}[/dim]" for floor in (*own, *floors)))


def _print_noise(summary: Summary, console: Console) -> None:
    """Print how far each evaluated model moves when it is asked again, and how often it abstains, where it can."""
    for model in summary.evaluated:
        if said := " ".join(filter(None, (noise_sentence(summary, model), abstention_sentence(summary, model)))):
            console.print(f"[bold]{safe_markup(model)}[/bold]: {safe_markup(said)}", highlight=False)


def _is_measured(summary: Summary, metric: str) -> bool:
    return any(summary.clean(model, metric).asked for model in summary.evaluated)


def _unanswered(row: Measurement) -> str:
    return "" if row.scored == row.asked else f" {format_coverage(row)}"


def _print_everything(summary: Summary, console: Console) -> None:
    console.print(_clean_table(summary))
    if ceiling := ceiling_sentence(summary):
        console.print(safe_markup(ceiling), highlight=False)
    _print_stages(summary, console)
    if summary.relabelled:
        console.print(_stress_table(summary, "expectation_kept", "Expectations kept"))
    if summary.categories:
        console.print(_stress_table(summary, "success_accuracy", "Success accuracy"))
    if len(summary.categories) > len(summary.too_small) + len(summary.unlabelled):
        least = f"{summary.accuracy_threshold:.2f}"
        table = _category_table(summary, f"Certified at a success accuracy of {least} up to severity")
        for model in summary.models:
            table.add_row(_name(summary, model), *(certified_text(summary, model, c) for c in summary.categories))
        console.print(table)
    for sentence in data_sentences(summary):
        console.print(safe_markup(sentence), highlight=False)
    for model in summary.evaluated:
        said = safe_markup(" ".join(findings(summary, model)))
        console.print(f"[bold]{safe_markup(model)}[/bold]: {said}", highlight=False)


def print_beside(summary: Summary, console: Console) -> None:
    """Print what stands beside a benchmark: each evaluated model against the controls, and whether it reads words."""
    _print_stages(summary, console)
    _print_noise(summary, console)
    for model in summary.evaluated:
        if said := safe_markup(" ".join(control_sentences(summary, model))):
            console.print(f"[bold]{safe_markup(model)}[/bold]: {said}", highlight=False)


def _print_stages(summary: Summary, console: Console) -> None:
    """Print the metrics of long tasks where the data has stages."""
    metrics = stage_metrics(summary)
    if metrics:
        table = _table(summary, "Stages of long tasks on clean episodes, with 95 % intervals")
        for metric in metrics:
            table.add_column(metric.heading, justify="right", max_width=10)  # the interval goes below
        for model in summary.models:
            rows = [summary.clean(model, metric.name) for metric in metrics]
            ends = ["" if r.low is None or r.high is None else f"{r.low:.2f}..{r.high:.2f}" for r in rows]
            values = [f"{format_number(r.value)} [dim]{end}[/dim]" for r, end in zip(rows, ends, strict=True)]
            table.add_row(_name(summary, model), *values)
        console.print(table)


def failure_lines(trials: TrialTable, names: Mapping[str, str], *, every: bool = False) -> list[str]:
    """Return the most frequent reasons why models failed with their counts, one line each, or every reason."""
    reasons = sorted(failure_reasons(trials), key=lambda found: found.model)  # stable: the most frequent stay first
    lines: list[str] = []
    for model, group in groupby(reasons, key=lambda found: found.model):
        found = list(group)
        shown = found if every else found[:_MOST_REASONS]
        for each in shown:
            member = f"its member {each.member}: " if each.member else ""
            lines.append(f"failed: {each.count:,} x {names[model]}: {member}{each.reason}")
        others = [each.count for each in found[len(shown) :]]
        if others:
            lines.append(f"failed: {sum(others):,} x {names[model]}: {len(others)} other reasons; -v shows them")
    return lines


def _table(summary: Summary, title: str) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold", min_width=_name_width(summary), max_width=NAME_WIDTH)
    return table


def _name_width(summary: Summary) -> int:
    return min(NAME_WIDTH, max(map(len, summary.models)))


def _clean_table(summary: Summary) -> Table:
    table = _table(summary, "Clean episodes, with 95 % intervals")
    metrics = metrics_shown(lambda display: display.terminal)
    some_failed = any(counts.failed for counts in summary.counts)
    narrow = some_failed or _name_width(summary) > _ROOM
    for metric in metrics:
        table.add_column(metric.heading, justify="right", max_width=11 if narrow else None)  # the interval goes below
    for heading in ("trials", "failed")[: 2 if some_failed else 1]:
        table.add_column(heading, justify="right", no_wrap=True)
    for model in summary.models:
        rows = [summary.clean(model, metric.name) for metric in metrics]
        usual = format_coverage(summary.clean(model, "success_accuracy"))
        ends = ["" if r.low is None or r.high is None else f"{r.low:.2f}..{r.high:.2f}" for r in rows]
        values = [
            f"{format_number(row.value)} [dim]{interval}{_unusual(row, usual)}[/dim]"
            for row, interval in zip(rows, ends, strict=True)
        ]
        failed = [str(summary.outcomes(model).failed)] if some_failed else []
        table.add_row(_name(summary, model), *values, usual, *failed)
    return table


def _unusual(row: Measurement, usual: str) -> str:
    return "" if format_coverage(row) == usual else f" {format_coverage(row)}"


def _stress_table(summary: Summary, metric: str, title: str) -> Table:
    """Return a metric at the highest severity; a number names its trials where they are not those of the last line."""
    severity = summary.highest_severity
    table = _category_table(summary, f"{title} at severity {severity}")
    rows = {m: {c: summary.measurement(m, c, severity, metric) for c in summary.categories} for m in summary.models}
    coverage = {c: Counter(format_coverage(own[c]) for own in rows.values()) for c in summary.categories}
    usual = {c: counts.most_common(1)[0][0] for c, counts in coverage.items()}  # only the others name theirs
    for model, own in rows.items():
        numbers = [f"{format_number(row.value)}[dim]{_unusual(row, usual[c])}[/dim]" for c, row in own.items()]
        table.add_row(_name(summary, model), *numbers)
        if model in summary.evaluated and metric == success_accuracy.name:
            _add_noise_row(table, summary, model, metric, clean=False)
    table.add_row("[dim]trials scored/asked[/dim]", *(f"[dim]{usual[c]}[/dim]" for c in summary.categories))
    if summary.relabelled and metric == "success_accuracy":
        blind = [summary.paired_reference_of(summary.models[0], c, severity, metric).blind for c in summary.categories]
        table.add_row("[dim]best constant there[/dim]", *(f"[dim]{format_number(value)}[/dim]" for value in blind))
    return table


def _category_table(summary: Summary, title: str) -> Table:
    table = _table(summary, title)
    for category in summary.categories:
        table.add_column(safe_markup(category), justify="right")
    return table


def _name(summary: Summary, model: str) -> str:
    return f"[bold]{safe_markup(model)}[/bold]" if model in summary.evaluated else safe_markup(model)


def required_gates(texts: Sequence[str], models: Sequence[NamedModel], chosen: Sequence[str]) -> list[Gate]:
    """Return what is required of models with these chosen names; a gate for one that is not evaluated is refused."""
    evaluated = [model.name for model in models]
    names = display_names(evaluated, dict(zip(evaluated, chosen, strict=False)))
    gates = []
    for gate in map(parse_gate, texts):
        found = model_meant(gate.model, names) if gate.model else ""
        if found is None:
            raise PlanError(f"gate {gate.text!r}: the run evaluates {', '.join(names.values())}, not {gate.model!r}")
        gates.append(replace(gate, model=found))
    return gates


def exit_code(summary: Summary, gates: Sequence[GateResult]) -> int:
    """Return 3 if an evaluated model returned no score at all, 1 if a gate failed, else 0."""
    if silent_models(summary):
        return MODEL_FAILED
    return 0 if all(result.passed for result in gates) else GATE_FAILED


def headline_json(run: Run, summary: Summary, gates: Sequence[GateResult], code: int) -> str:
    """Return the headline of a run as JSON: clean metrics, certified severities, counts, gates and what was spent.

    Models go by their whole strings, each with its short name.
    """
    names = names_of_run(run.record, summary.models)
    content = {
        "run": run.place,
        "report": str(run.page),
        "exit_code": code,
        "models": {model: {"name": names[model], **_model(summary, model)} for model in summary.models},
        "gates": [{**asdict(result), "name": names.get(result.model, result.model)} for result in gates],
        "spent": {model: asdict(spent) for model, spent in spent_by_model(run.folder).items()},
    }
    return json.dumps(content, indent=2, allow_nan=False)


def drop_lines(summary: Summary) -> list[str]:
    """Return the drop of each evaluated model in each category, one line each."""
    return [
        f"{drop.model}: {drop.category} changes at severity {drop.severity} cost {drop.drop:.2f} of {drop.metric}; "
        f"{drop.note}{_noise_note(drop)}"
        for drop in summary.drops
    ]


def _noise_note(drop: AccuracyDrop) -> str:
    if drop.noise_floor is None:
        return ""
    return f"; the noise floor is {drop.noise_floor:.2f}{', so this is no drop' if drop.is_noise else ''}"


def _model(summary: Summary, model: str) -> dict[str, Any]:
    metrics = metrics_shown(lambda display: display.terminal)
    clean = {metric.name: asdict(summary.clean(model, metric.name)) for metric in metrics}
    counts = asdict(summary.outcomes(model))
    certified = {name: summary.threshold(model, name).certified for name in summary.categories}
    noise = summary.noise_of(model)
    found = {"evaluated": model in summary.evaluated, "clean": clean, "certified": certified, "counts": counts}
    return found | ({"noise": asdict(noise)} if noise is not None else {})
