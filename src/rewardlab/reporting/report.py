"""Command `report`: page, figures (left out where matplotlib is missing), numbers, robustness card."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.records import record_to_json
from rewardlab.core.run import Run, open_run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.settings import Help, several
from rewardlab.core.storage import csv_text, write_file
from rewardlab.core.summary import Measurement, Summary, join_summaries, rename_models
from rewardlab.core.trial import CLEAN
from rewardlab.evaluation.display import (
    format_coverage,
    format_interval,
    format_number,
    format_threshold,
    markdown_text,
    names_of_run,
    run_names,
)
from rewardlab.evaluation.findings import verdict
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import metrics_shown
from rewardlab.reporting.findings_text import (
    best_control_text,
    ceiling_sentence,
    certified_text,
    data_sentences,
    findings,
    no_labels_sentence,
)
from rewardlab.reporting.page import page_path
from rewardlab.reporting.severity_curves import calibration_curves, metrics_with_values, severity_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AllowCode = Annotated[bool, Help("trust these runs: open the datasets and import the code that they name")]
SUFFIXES = (".svg", ".png")


def report(
    runs: Annotated[Run | str | Path | Sequence[Run | str | Path], Help("run folders", metavar="RUN")],
    *,
    out: Annotated[
        Path | str | None, Help("the page; default: report.html in the run folder, or here for several runs")
    ] = None,
    allow_code: AllowCode = False,
    figures: Annotated[bool, Help("also draw figures for papers (SVG, PNG), which takes some seconds")] = False,
) -> Path:
    """Write the report of a run, or of several runs side by side, and return the path of the page.

    A folder beside the page holds its numbers, a robustness card and, with `figures`, figures for papers.

    Examples:
        rewardlab report runs/pocket --figures
        rewardlab report runs/before runs/after --out both.html
    """
    opened = [run if isinstance(run, Run) else open_run(run) for run in several(runs)]
    if not opened:
        raise PlanError("name at least one run folder")
    page = opened[0].page if len(opened) == 1 else Path("report.html")
    if out is not None:
        page = page_path(out)
    written = write_report(opened, page, allow_code=allow_code, figures=figures)
    if written == opened[0].page:
        opened[0].publish()
    return written


def write_report(runs: Sequence[Run], page: Path, *, allow_code: bool = False, figures: bool = False) -> Path:
    """Write the page and, in a folder beside it, its numbers (CSV, JSON, Parquet), card and figures (SVG, PNG).

    Only with `allow_code`, for runs of your own, it opens the dataset and imports the code that a run names.
    """
    from rewardlab.reporting.run_page import render_page

    summaries = [load_summary(run) for run in runs]
    names = [names_of_run(run.record, own.models) for run, own in zip(runs, summaries, strict=True)]
    summary = join_summaries(list(zip(run_names(runs), summaries, strict=True)))
    shown = join_summaries(list(zip(run_names(runs), map(rename_models, summaries, names), strict=True)))
    folder = page.with_suffix("")
    if folder.is_symlink():
        raise RunError(f"{folder} is a link to another place, where nothing is written; remove it")
    if folder.is_file():
        raise RunError(f"{folder} is a file, but the numbers of {page} need a folder of that name; name another --out")
    write_file(page, render_page(runs, summaries, allow_code=allow_code))
    _write_numbers(summary, folder)
    if figures:
        write_figures(folder, lambda: _figures(shown))
    write_file(folder / "card.md", robustness_card(shown, [run.record for run in runs]))
    return page


def write_figures(folder: Path, draw: Callable[[], Mapping[str, "Figure"]]) -> list[Path]:
    """Save what `draw` returns by file name, as SVG and as PNG, and return the paths.

    `draw` imports what it draws with. If that is not installed, nothing is written and stderr says so.
    """
    try:
        from rewardlab.reporting.figures import fix_layout, save_figure

        figures = {name: fix_layout(figure) for name, figure in draw().items()}
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print(f"no figures in {folder}: they need matplotlib, pip install 'rewardlab[figures]'", file=sys.stderr)
        return []
    paths = [folder / f"{name}{suffix}" for name in figures for suffix in SUFFIXES]
    for path in paths:
        save_figure(figures[path.stem], path)
    return paths


def _write_numbers(summary: Summary, folder: Path) -> None:
    rows = [record_to_json(row) for row in summary.measurements]
    columns = [field.name for field in fields(Measurement)]
    write_file(folder / "numbers.csv", csv_text([columns, *([row[name] for name in columns] for row in rows)]))


def _figures(summary: Summary) -> "dict[str, Figure]":
    from rewardlab.reporting.figures import draw_severity_curves

    drawn = {f"{curves.metric}-{curves.category}": draw_severity_curves(curves) for curves in severity_curves(summary)}
    for place, model in enumerate(summary.evaluated, 1):
        for curves in calibration_curves(summary, model):
            drawn[f"{curves.metric}-{curves.category}-model-{place}"] = draw_severity_curves(curves)
    return drawn


def robustness_card(summary: Summary, records: Sequence[RunRecord]) -> str:
    """Return the Markdown to paste into a model card: findings, numbers with intervals, thresholds, command."""
    parts = ["## Robustness", "", *(f"> {markdown_text(line)}\n" for line in verdict(summary))]
    if not summary.labelled:
        parts.append(f"{no_labels_sentence(list(dict.fromkeys(record.settings.data for record in records)))}\n")
    parts += [*(f"{markdown_text(sentence)}\n" for sentence in data_sentences(summary))]
    for model in summary.evaluated:
        parts += [f"**{markdown_text(model)}**", ""]
        parts += [*(f"- {markdown_text(sentence)}" for sentence in findings(summary, model)), ""]
        metrics = metrics_with_values(summary, metrics_shown(lambda display: display.headline), {CLEAN})
        parts += (
            []
            if not metrics
            else ["| clean | value | 95 % interval | best control | scored/asked |", "|---|---|---|---|---|"]
        )
        for metric in metrics:
            row, best = summary.clean(model, metric.name), markdown_text(best_control_text(summary, model, metric))
            number = f"{format_number(row.value)} | {format_interval(row)} | {best}"
            parts.append(f"| {metric.heading} | {number} | {format_coverage(row)} |")
        parts += ["", *_threshold_table(summary, model), ""]
    parts += [f"{ceiling}\n"] if (ceiling := ceiling_sentence(summary)) else []
    parts += ["Measured with:", ""]
    for record in records:
        # A fence that is longer than any in the command, so that nothing in it ends the block.
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", record.command)), default=0))
        parts += [fence, record.command, fence, f"rewardlab {markdown_text(record.version)}", ""]
    return "\n".join(parts)


def _threshold_table(summary: Summary, model: str) -> list[str]:
    top = summary.highest_severity
    lines = [f"| category | success at severity {top} | certified up to | measured up to |", "|---|---|---|---|"]
    for category in summary.categories:
        row = summary.measurement(model, category, top, "success_accuracy")
        threshold = summary.threshold(model, category)
        certified, measured = certified_text(summary, model, category), format_threshold(threshold.measured)
        success = f"{format_number(row.value)} {format_interval(row)}"
        lines.append(f"| {markdown_text(category)} | {success} | {certified} | {measured} |")
    return lines
