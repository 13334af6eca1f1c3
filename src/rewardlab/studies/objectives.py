"""`study_objectives`: every objective of a plan, compared on one page: table, findings, learning curves, traces."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rewardlab.core.settings import Help, read_plan
from rewardlab.core.storage import write_file
from rewardlab.evaluation.display import format_interval, format_number, format_p_value
from rewardlab.evaluation.frame_rewards import MEASURES
from rewardlab.evaluation.objective_comparison import (
    Comparison,
    ObjectiveCell,
    ObjectiveContrast,
    RewardTrace,
    read_comparison,
)
from rewardlab.reporting.page import templates
from rewardlab.reporting.svg_charts import SMALL, Axes, Line, TitledChart, line_chart
from rewardlab.training.objectives import objective_settings, train_objective

PAGE = "index.html"
_LEVEL = 0.05  # of a test after Holm's correction
_HEADLINE = ("within", "across", "voc", "success_auc", "mae", "robustness_auc")
_CONTROLLED = ("within", "across", "success_auc", "mae")  # by the others the length baseline is best by definition


def study_objectives(
    plan: Annotated[Path | str, Help("TOML file with settings of `train objective`", metavar="PLAN")],
    *,
    objective: Annotated[str | None, Help("objectives, separated by commas, instead of the plan's")] = None,
    backbone: Annotated[
        str | Sequence[str] | None, Help("backbones, instead of the plan's", metavar="BACKBONE")
    ] = None,
    data: Annotated[str | Sequence[str] | None, Help("datasets, instead of the plan's", metavar="DATA")] = None,
    seeds: Annotated[int | Sequence[int] | None, Help("seeds, instead of the plan's")] = None,
    steps: Annotated[int | None, Help("training steps, instead of the plan's")] = None,
    out: Annotated[Path | str | None, Help("folder of everything, instead of the plan's")] = None,
    stop_after: Annotated[str | None, Help("the last step to do, instead of the plan's", metavar="STEP")] = None,
    device: Annotated[str | None, Help("auto, cpu, cuda or cuda:N, instead of the plan's")] = None,
    workers: Annotated[int | None, Help("processes, instead of the plan's; 0 uses one per core")] = None,
    parallel: Annotated[int | None, Help("objectives trained at once, instead of the plan's")] = None,
) -> Path:
    """Train and compare the objectives of a plan, write the page, and return its path.

    If `stop_after` ends before the evaluation, the path of the folder is returned.

    Examples:
        rewardlab study objectives plan.toml --backbone dino=dinov2_vits14.onnx+MINILM
        rewardlab study objectives plan.toml --stop-after features --workers 16
    """
    given = {name: value for name, value in locals().items() if name != "plan" and value is not None}
    settings = objective_settings(**read_plan(Path(plan), train_objective) | given)
    train_objective(**vars(settings))
    return write_objective_page(settings.out) if settings.does("evaluate") else settings.out


@dataclass(frozen=True)
class TableRow:
    """A row of the table: an objective or a control, and its cells by measure."""

    name: str
    control: bool
    cells: tuple[tuple[ObjectiveCell, bool], ...]  # each with whether it is the best of its column


@dataclass(frozen=True)
class GroupTable:
    """The table of one backbone on one group of tasks."""

    backbone: str
    group: str
    tasks: int
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class TracePanel:
    """One clip with the trace of every objective."""

    trace: RewardTrace
    figures: tuple[TitledChart, ...]


def write_objective_page(folder: Path) -> Path:
    """Write the page of the comparison in a folder and return its path."""
    return write_file(folder / PAGE, render_objective_page(read_comparison(folder)))


def render_objective_page(comparison: Comparison) -> str:
    """Return the page as text; every string from outside is escaped."""

    backbones = list(dict.fromkeys(cell.backbone for cell in comparison.cells))
    return (
        templates("rewardlab.studies")
        .get_template("objectives.html")
        .render(
            comparison=comparison,
            cell_text=cell_text,
            cell_detail=cell_detail,
            contrast_text=contrast_text,
            backbones=backbones,
            measures=_measures(comparison),
            findings=findings(comparison),
            tables=[_group_table(comparison, b, g, n) for b in backbones for g, n in comparison.groups.items()],
            contrasts=[c for c in comparison.contrasts if "," not in c.group],
            curves={backbone: _curve_figures(comparison, backbone) for backbone in backbones},
            traces=[TracePanel(trace, tuple(_trace_charts(trace))) for trace in comparison.traces],
            total=sum(comparison.seconds.values()),
        )
    )


def findings(comparison: Comparison) -> list[str]:
    """Return what the table shows, in sentences: who is first by each measure, and how sure it is."""
    found = []
    for backbone in dict.fromkeys(cell.backbone for cell in comparison.cells):
        for group in (group for group in comparison.groups if "," not in group):
            firsts = []
            for measure in _HEADLINE:
                for best in _ranked(comparison, backbone, group, measure)[:1]:
                    ranks = "" if best.rank_low is None else f", rank {best.rank_low} to {best.rank_high}"
                    firsts.append(f"{best.objective} is first by {measure} ({format_number(best.value)}{ranks})")
            found.append(f"{backbone}, {group}: {'; '.join(firsts) or 'nothing could be measured'}.")
            tests = [c for c in comparison.contrasts if c.backbone == backbone and c.group == group]
            said = [*_against(comparison, tests), *_beaten_by_controls(comparison, backbone, group)]
            found += [f"{backbone}, {group}: {sentence}." for sentence in said]
    return found


def _ranked(comparison: Comparison, backbone: str, group: str, measure: str) -> list[ObjectiveCell]:
    """Return the cells of objectives that have a value, the best first."""
    cells = [
        cell
        for cell in comparison.cells
        if (cell.backbone, cell.group, cell.measure) == (backbone, group, measure)
        and cell.objective not in comparison.controls
        and cell.value is not None
    ]
    sign = -1 if MEASURES[measure][0] == "higher" else 1
    return sorted(cells, key=lambda cell: sign * (cell.value or 0.0))


def _against(comparison: Comparison, tests: Sequence[ObjectiveContrast]) -> list[str]:
    """Return how many objectives are surely better and worse than the reference, by each measure that tells any."""
    said, even = [], []
    for measure in _HEADLINE:
        sure = [c for c in tests if c.measure == measure and c.p_holm is not None and c.p_holm < _LEVEL]
        known = [c for c in tests if c.measure == measure and c.difference is not None]
        sign = 1 if MEASURES[measure][0] == "higher" else -1
        better = [c.objective for c in sure if sign * (c.difference or 0.0) > 0]
        worse = [c.objective for c in sure if sign * (c.difference or 0.0) < 0]
        if known and not sure:
            even.append(measure)
        elif known:
            said.append(
                f"by {measure}, {comparison.against} surely beats {len(worse)} of {len(known)} others"
                + (f" and is surely beaten by {', '.join(better)}" if better else " and is surely beaten by none")
            )
    return [*said, *([f"no difference from {comparison.against} is sure by {', '.join(even)}"] if even else [])]


def _beaten_by_controls(comparison: Comparison, backbone: str, group: str) -> list[str]:
    """Return by which measures a control is better than every objective: no objective learned to see there."""
    said = []
    for control in comparison.controls:
        place = (backbone, group, control)
        mine = {c.measure: c.value for c in comparison.cells if (c.backbone, c.group, c.objective) == place}
        beaten = []
        for name in _CONTROLLED:
            best, value = _ranked(comparison, backbone, group, name)[:1], mine.get(name)
            sign = 1 if MEASURES[name][0] == "higher" else -1
            if best and value is not None and sign * value > sign * (best[0].value or 0.0):
                beaten.append(name)
        if beaten:
            said.append(f"{control}, a control, is better than every objective by {', '.join(beaten)}")
    return said


def _measures(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """Return the measures of a record; one that was made before a measure existed lacks it."""
    there = {cell.measure for cell in comparison.cells}
    return {name: said for name, said in MEASURES.items() if name in there}


def _group_table(comparison: Comparison, backbone: str, group: str, tasks: int) -> GroupTable:
    measures = _measures(comparison)
    best = {measure: _ranked(comparison, backbone, group, measure)[:1] for measure in measures}
    cells = {(c.objective, c.measure): c for c in comparison.cells if (c.backbone, c.group) == (backbone, group)}
    names = [entry.name for entry in comparison.objectives] + list(comparison.controls)
    rows = []
    for name in names:
        own = [(cells[name, measure], cells[name, measure] in best[measure]) for measure in measures]
        rows.append(TableRow(name, name in comparison.controls, tuple(own)))
    return GroupTable(backbone, group, tasks, tuple(rows))


def _curve_figures(comparison: Comparison, backbone: str) -> list[TitledChart]:
    own = [curve for curve in comparison.curves if curve.backbone == backbone and curve.steps]
    values = [value for curve in own for value in curve.agreement]
    low, high = (min(values), max(values)) if values and max(values) > min(values) else (0.0, 1.0)
    figures = []
    for name in dict.fromkeys(curve.objective for curve in own):
        lines = [
            Line(f"seed {c.seed}", tuple(map(float, c.steps)), c.agreement, colour=number)
            for number, c in enumerate(curve for curve in own if curve.objective == name)
        ]
        end = max(x for line in lines for x in line.x)
        axes = Axes(right=end, bottom=low, top=high, frame=SMALL)
        figures.append(TitledChart(name, line_chart(lines, axes, f"validation agreement of {name} over steps")))
    return figures


def _trace_charts(trace: RewardTrace) -> Iterator[TitledChart]:
    """Yield the trace of each objective stretched over its own range, beside the true progress over 0 to 1."""
    time = tuple(float(place) for place in range(len(trace.progress)))
    truth = tuple(math.nan if value is None else value for value in trace.progress)
    for name, rewards in trace.rewards.items():
        low, high = min(rewards), max(rewards)
        stretched = tuple((value - low) / (high - low) if high > low else 0.5 for value in rewards)
        lines = (Line("true progress", time, truth, colour=6, control=True), Line(name, time, stretched))
        axes = Axes(right=max(time, default=1.0), frame=SMALL)
        yield TitledChart(name, line_chart(lines, axes, f"reward of {name} over the frames of {trace.clip}"))


def cell_text(cell: ObjectiveCell) -> str:
    """Return the value of a cell."""
    return format_number(cell.value, 3)


def cell_detail(cell: ObjectiveCell) -> str:
    """Return interval and ranks of a cell."""
    rank = f" #{cell.rank_low}-{cell.rank_high}" if cell.rank_low is not None else ""
    return f"{format_interval(cell)}{rank}"


def contrast_text(contrast: ObjectiveContrast) -> str:
    """Return a difference with its interval and corrected p-value."""
    number = "-" if contrast.difference is None else f"{contrast.difference:+.3f}"
    return f"{number} {format_interval(contrast, 3)} {format_p_value(contrast.p_holm)}"
