"""The report page: one self-contained HTML file about one run, or about several side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from rewardlab.analysis.format import format_number, format_p_value
from rewardlab.analysis.run_labels import run_names
from rewardlab.core.run import Run, atomic_write
from rewardlab.core.summary import Summary, join_summaries
from rewardlab.metrics import metrics_shown
from rewardlab.reporting.benchmark_tables import PROTOCOL, error_text, load_benchmark, short_name, unread_text
from rewardlab.reporting.failure_clips import ClipCard, clip_cards
from rewardlab.reporting.page_model import (
    curve_figures,
    model_views,
    perturbation_summaries,
    perturbation_views,
    unscored_cells,
)


def write_page(runs: Sequence[Run], path: Path, summaries: Sequence[Summary]) -> Path:
    """Write the page of these runs, of which the summaries are given, and return its path."""
    html = render_page(runs, summaries)
    with atomic_write(path) as partial:
        partial.write_text(html, encoding="utf-8")
    return path


def render_page(runs: Sequence[Run], summaries: Sequence[Summary]) -> str:
    """Return the page as text; every string from outside is escaped."""
    summary = join_summaries(list(zip(run_names(runs), summaries)))
    records: list[Any] = [run.record for run in runs]
    tables = [run.trials() for run in runs]
    planned = dict.fromkeys(name for record in records for name in record["settings"].get("perturbations", ()))
    cards: list[ClipCard] = []
    missing: list[str] = []
    for run, trials, own in zip(runs, tables, summaries):
        found, reason = clip_cards(run, trials, own.worst)
        cards += found
        missing += [reason] if reason else []
    return (
        environment()
        .get_template("page.html")
        .render(
            title=f"{', '.join(summary.judged)} on {', '.join(dict.fromkeys(r['settings']['data'] for r in records))}",
            records=records,
            summary=summary,
            benchmarks=[benchmark for run in runs if (benchmark := load_benchmark(run)) is not None],
            protocol=PROTOCOL,
            models=model_views(summary),
            curves=curve_figures(summary),
            perturbation_headings=[m.heading for m in metrics_shown(lambda display: display.perturbation_table)],
            perturbations=perturbation_views(summary, tables, perturbation_summaries(planned)),
            cards=cards,
            missing=missing,
            unfinished=sum(int(record["cells"]) - len(table) for record, table in zip(records, tables)),
            unscored=unscored_cells(tables),
        )
    )


def environment() -> Environment:
    """Return the templates of this package, with escaping on."""
    made = Environment(loader=PackageLoader("rewardlab.reporting", "."), autoescape=True, trim_blocks=True)
    made.globals |= {"format_number": format_number, "format_p_value": format_p_value}
    made.globals |= {"error_text": error_text, "short_name": short_name, "unread_text": unread_text}
    return made
