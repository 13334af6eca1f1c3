"""The report page: one self-contained HTML file about one run, or about several side by side."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from jinja2 import Environment, PackageLoader

from rewardlab.analysis.format import format_number, format_p_value
from rewardlab.analysis.run_labels import run_names
from rewardlab.core.run import Run, atomic_write
from rewardlab.core.summary import Summary, join_summaries
from rewardlab.metrics import metrics_shown
from rewardlab.reporting.benchmark_tables import PROTOCOL, error_text, load_benchmark, short_name, unread_text
from rewardlab.reporting.failure_clips import ClipCard, ShownCell, clip_cards
from rewardlab.reporting.page_model import (
    curve_figures,
    model_views,
    perturbation_summaries,
    perturbation_views,
    unscored_cells,
)

_COLUMNS = (*(field.name for field in fields(ShownCell)), "status", "reason")  # of the trials; the page says no more


def write_page(runs: Sequence[Run], path: Path, summaries: Sequence[Summary], *, trust: bool = False) -> Path:
    """Write the page of these runs, of which the summaries are given, and return its path.

    Only with `trust`, for runs of one's own, is the dataset opened and the code imported that a run names.
    """
    html = render_page(runs, summaries, trust=trust)
    with atomic_write(path) as partial:
        partial.write_text(html, encoding="utf-8")
    return path


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], *, trust: bool = False) -> str:
    """Return the page as text; every string from outside is escaped."""
    summary = join_summaries(list(zip(run_names(runs), summaries)))
    records = [run.record for run in runs]
    tables = [run.trials(_COLUMNS) for run in runs]
    data = dict.fromkeys(record.settings.data for record in records)
    planned = dict.fromkeys(name for record in records for name in record.settings.perturbations)
    cards: list[ClipCard] = []
    missing: list[str] = []
    for run, trials, own in zip(runs, tables, summaries):
        found, reasons = clip_cards(run, trials, own.worst, trust=trust)
        cards += found
        missing += reasons
    return (
        environment()
        .get_template("page.html")
        .render(
            title=f"{', '.join(summary.judged)} on {', '.join(data)}",
            records=records,
            summary=summary,
            benchmarks=[benchmark for run in runs if (benchmark := load_benchmark(run)) is not None],
            protocol=PROTOCOL,
            models=model_views(summary),
            curves=curve_figures(summary),
            perturbation_headings=[m.heading for m in metrics_shown(lambda display: display.perturbation_table)],
            perturbations=perturbation_views(summary, tables, perturbation_summaries(planned, trust=trust)),
            cards=cards,
            missing=missing,
            unfinished=sum(record.cells - len(table) for record, table in zip(records, tables)),
            unscored=unscored_cells(tables),
        )
    )


def environment() -> Environment:
    """Return the templates of this package, with escaping on."""
    made = Environment(loader=PackageLoader("rewardlab.reporting", "."), autoescape=True, trim_blocks=True)
    made.globals |= {"format_number": format_number, "format_p_value": format_p_value}
    made.globals |= {"error_text": error_text, "short_name": short_name, "unread_text": unread_text}
    return made
