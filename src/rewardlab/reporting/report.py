"""Command `report`: page, figures (left out where matplotlib is missing), numbers, robustness card."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.errors import RunError
from rewardlab.core.old_settings import setting
from rewardlab.core.records import record_to_json
from rewardlab.core.run import Run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.storage import atomic_write, csv_text, writable, write_parquet
from rewardlab.core.summary import Measurement, Summary, join_summaries, rename_models
from rewardlab.evaluation.display import (
    format_coverage,
    format_interval,
    format_number,
    format_threshold,
    markdown_text,
    names_of_run,
    run_names,
)
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import metrics_shown
from rewardlab.reporting.findings_text import ceiling_sentence, certified_text, data_sentences, findings
from rewardlab.reporting.run_page import write_page
from rewardlab.reporting.severity_curves import calibration_curves, severity_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SUFFIXES = (".svg", ".png")


def write_figures(folder: Path, draw: Callable[[], Mapping[str, "Figure"]]) -> list[Path]:
    """Save what `draw` returns by file name, as SVG and as PNG, and return the paths.

    `draw` imports what it draws with. Where that is not installed nothing is written, and stderr says so.
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


_FIGURES = "REWARDLAB_FIGURES"  # environment variable; 0 leaves the figures of a report out


@dataclass(frozen=True)
class ReportPlan:
    """Write the report of a run, or one report of several runs side by side."""

    runs: tuple[Path, ...] = setting("run folders", positional=True)
    out: Path | None = setting("the page; by default report.html in the run folder, or here for several runs", None)
    trust: bool = setting("the run is yours: open the dataset and import the code that it names", False)


def write_report(runs: Sequence[Run], page: Path, *, trust: bool = False) -> Path:
    """Write the page and, in a folder beside it, its figures (SVG, PNG), numbers (CSV, JSON, Parquet) and card.

    REWARDLAB_FIGURES=0 leaves the figures out, which take some seconds and nobody looks at where a gate is all.
    Only with `trust`, for runs of one's own, is the dataset opened and the code imported that a run names.
    """
    summaries = [load_summary(run) for run in runs]
    summary = join_summaries(list(zip(run_names(runs), summaries)))
    short = [rename_models(own, names_of_run(run.record, own.models)) for run, own in zip(runs, summaries)]
    shown = join_summaries(list(zip(run_names(runs), short)))
    with writable(page.parent):
        page.parent.mkdir(parents=True, exist_ok=True)
    write_page(runs, page, summaries, trust=trust)
    folder = page.with_suffix("")
    if folder.is_symlink():
        raise RunError(f"{folder} is a link to another place, where nothing is written; remove it")
    with writable(folder):
        folder.mkdir(exist_ok=True)
    _write_numbers(summary, folder)
    if os.environ.get(_FIGURES) != "0":
        write_figures(folder, lambda: _figures(shown))
    _write(folder / "card.md", robustness_card(shown, [run.record for run in runs]))
    return page


def _write(path: Path, content: str | bytes) -> None:
    with atomic_write(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def _write_numbers(summary: Summary, folder: Path) -> None:
    import pyarrow as pa

    rows = [record_to_json(row) for row in summary.measurements]
    columns = [field.name for field in fields(Measurement)]
    _write(folder / "numbers.csv", csv_text([columns, *([row[name] for name in columns] for row in rows)]))
    _write(folder / "numbers.json", "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")  # one measurement per line
    if rows:
        write_parquet(pa.Table.from_pylist(rows), folder / "numbers.parquet")


def _figures(summary: Summary) -> "dict[str, Figure]":
    from rewardlab.reporting.figures import draw_severity_curves

    drawn = {f"{curves.metric}-{curves.category}": draw_severity_curves(curves) for curves in severity_curves(summary)}
    for place, model in enumerate(summary.evaluated, 1):
        for curves in calibration_curves(summary, model):
            drawn[f"{curves.metric}-{curves.category}-model-{place}"] = draw_severity_curves(curves)
    return drawn


def robustness_card(summary: Summary, records: Sequence[RunRecord]) -> str:
    """Return the Markdown to paste into a model card: findings, numbers with intervals, thresholds, command."""
    parts = ["## Robustness", "", *(f"{markdown_text(sentence)}\n" for sentence in data_sentences(summary))]
    for model in summary.evaluated:
        parts += [f"**{markdown_text(model)}**", ""]
        parts += [*(f"- {markdown_text(sentence)}" for sentence in findings(summary, model)), ""]
        parts += ["| clean | value | 95 % interval | scored/asked |", "|---|---|---|---|"]
        for metric in metrics_shown(lambda display: display.headline):
            row = summary.clean(model, metric.name)
            parts.append(
                f"| {metric.heading} | {format_number(row.value)} | {format_interval(row)} | {format_coverage(row)} |"
            )
        parts += ["", *_threshold_table(summary, model), ""]
    parts += [f"{ceiling}\n"] if (ceiling := ceiling_sentence(summary)) else []
    parts += ["Measured with:", ""]
    for record in records:
        parts += [*_code_block(record.command), f"rewardlab {markdown_text(record.version)}", ""]
    return "\n".join(parts)


def _code_block(text: str) -> list[str]:
    """Return text in a fence that is longer than any in it, so that nothing in it ends the block."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [fence, text, fence]


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
