"""`study rl` and `study rl-page`: train policies on different rewards, and write the page of the results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.settings import Execution, Help, as_command, recorded, several
from rewardlab.core.storage import write_file
from rewardlab.evaluation.display import format_number, format_percent
from rewardlab.metrics.policy_statistics import performance_profile, profile_band
from rewardlab.reporting.page import data_address, templates
from rewardlab.reporting.svg_charts import Axes, Line, Point, TitledChart, line_chart, point_chart
from rewardlab.rl.results import RlResults, TrainingRunResult, read_results
from rewardlab.studies.rl.analysis import (
    SEVERITIES,
    Prediction,
    Series,
    SeverityCurve,
    learning_curve,
    predictions,
    quality_points,
    series_of,
    severity_curves,
)
from rewardlab.studies.rl.findings import (
    HackingCluster,
    HackingRate,
    findings,
    hacking_clusters,
    hacking_rates,
    success_text,
)

_PACKAGES = ("torch", "stable_baselines3", "gymnasium", "metaworld", "mujoco")
_THRESHOLDS = tuple(float(value) for value in np.linspace(0, 1, 21))
_MAX_CLIPS, _MAX_CLUSTERS, _CLIP_BYTES = 24, 12, 400_000


def study_rl(
    plan: Annotated[Path | str, Help("TOML file of the plan")],
    *,
    out: Annotated[Path | str, Help("folder of the study")] = Path("rl"),
    execution: Execution = Execution(),
) -> RlResults:
    """Train policies on different rewards, as a plan lists them, and write the page of the results.

    Finished training runs are kept: the same command continues a stopped study. Needs the extra `rl-train`.

    Examples:
        rewardlab study rl results/rl/quality.toml --out rl/quality
        rewardlab study rl results/rl/dsrl_true.toml --out rl/dsrl_true --workers 8
    """
    command, plan, out = as_command("study rl", study_rl, recorded(study_rl, locals())), Path(plan), Path(out)
    require_packages("study rl", *_PACKAGES, extra="rl-train")
    from rewardlab.rl.experiment import progress_display, run_rl

    with progress_display(quiet=execution.quiet) as show:
        results = run_rl(plan, out, execution, command, show)
    study_rl_page(out, out=out / "index.html")
    return results


def study_rl_page(
    runs: Annotated[Path | str | Sequence[Path | str], Help("folders that `study rl` wrote", metavar="FOLDER")],
    *,
    out: Annotated[Path | str, Help("file to write")] = Path("rl_report.html"),
) -> Path:
    """Write one page about one or several RL studies: findings, learning curves, figures, reward hacking and clips.

    Examples:
        rewardlab study rl-page rl/quality
        rewardlab study rl-page results/rl/dsrl_true results/rl/quality --out rl.html
    """
    folders, out = [Path(folder) for folder in several(runs)], Path(out)
    require_packages("study rl-page", "scipy", extra="fit")
    if not folders:
        raise PlanError("name the folder of a study, as `rewardlab study rl PLAN --out FOLDER` wrote it")
    studies = [_study_view(read_results(folder), folder) for folder in folders]
    html = (
        templates("rewardlab.studies.rl")
        .get_template("page.html")
        .render(studies=studies, percent=format_percent, number=format_number)
    )
    return write_file(out, html)


@dataclass(frozen=True)
class ClipView:
    """A clip with its caption; the video is part of the page."""

    title: str
    video: str


@dataclass(frozen=True)
class ClusterView:
    """A cluster of false successes with its clips."""

    cluster: HackingCluster
    clips: tuple[ClipView, ...]


@dataclass(frozen=True)
class StudyView:
    """Everything that the page shows of one study."""

    results: RlResults
    findings: tuple[str, ...]
    series: tuple[tuple[Series, int, str], ...]  # each with its colour and its final success in words
    curves: tuple[TitledChart, ...]
    figures: tuple[TitledChart, ...]
    legend: tuple[tuple[str, int], ...]  # of the figures: names and colours
    predictions: tuple[Prediction, ...]
    severities: tuple[SeverityCurve, ...]
    rates: tuple[HackingRate, ...]
    clusters: tuple[ClusterView, ...]
    clips: tuple[ClipView, ...]
    failed: tuple[TrainingRunResult, ...]


def _study_view(results: RlResults, folder: Path) -> StudyView:
    """Return what the page shows of a study."""
    series, clusters = series_of(results), list[ClusterView]()
    for cluster in hacking_clusters(results)[:_MAX_CLUSTERS]:
        clips = [
            ClipView(f"called level {e.level:.1f}, true level {e.true_level}", _video(folder, e.clip))
            for e in cluster.episodes
            if e.clip
        ]
        clusters.append(ClusterView(cluster, tuple(clips[:4])))
    return StudyView(
        results,
        tuple(findings(results)),
        tuple((own, place % 8, success_text(own)) for place, own in enumerate(series)),
        tuple(_curve_charts(series)),
        tuple(_figures(results, series)),
        tuple((name, place % 8) for place, name in enumerate(_figure_names(results, series))),
        tuple(predictions(results)) if results.figure == "quality" else (),
        tuple(severity_curves(results)) if results.figure == "severity" else (),
        tuple(hacking_rates(results)),
        tuple(clusters),
        tuple(_final_clips(results, folder)),
        tuple(run for run in results.training_runs if run.status == "failed"),
    )


def _figure_names(results: RlResults, series: Sequence[Series]) -> list[str]:
    """Return what the colours of the figure stand for: tasks, rewards or series."""
    if results.figure == "quality":
        return list(dict.fromkeys(point.task for point in quality_points(results, "mae")))
    if results.figure == "severity":
        return list(dict.fromkeys(curve.reward for curve in severity_curves(results)))
    return [own.name for own in series]


def _curve_charts(series: Sequence[Series]) -> Iterator[TitledChart]:
    """Yield the learning curves over all tasks, then of each task by itself."""
    tasks = list(dict.fromkeys(task for own in series for task in own.tasks))
    for task in (None, *(tasks if len(tasks) > 1 else ())):
        lines, title = [], task or "all tasks"
        for place, own in enumerate(series):
            runs = [run for run in own.training_runs if task in (None, run.task)]
            curve = learning_curve(runs, lambda run: None if run.algorithm == "sac" else run.base_success)
            x, y = tuple(at.steps for at in curve), tuple(at.mean for at in curve)
            low, high = tuple(at.low for at in curve), tuple(at.high for at in curve)
            lines.append(Line(own.name, x, y, low, high, place, control=own.algorithm == "sac"))
        end = max((x for line in lines for x in line.x), default=1.0)
        axes = Axes("simulator steps", "success, interquartile mean", right=end)
        yield TitledChart(title, line_chart(lines, axes, f"success over simulator steps, {title}"))


def _figures(results: RlResults, series: Sequence[Series]) -> list[TitledChart]:
    """Return the figure that the plan is for; where series are few, their performance profiles."""
    if results.figure == "quality":
        return [TitledChart("reward accuracy and policy success", _quality_chart(results))]
    if results.figure == "severity":
        return _severity_charts(severity_curves(results))
    profiles = []
    for place, own in enumerate(series):
        low, high = profile_band(own.final(), _THRESHOLDS)
        values = tuple(performance_profile(own.final(), _THRESHOLDS))
        profiles.append(Line(own.name, _THRESHOLDS, values, tuple(low), tuple(high), place))
    axes = Axes("success above", "fraction of training runs")
    return [
        TitledChart("performance profiles", line_chart(profiles, axes, "fraction of training runs above each success"))
    ]


def _quality_chart(results: RlResults) -> str:
    points = quality_points(results, "mae")
    tasks = list(dict.fromkeys(point.task for point in points))
    drawn = [Point(f"{p.reward}, {p.task}", p.quality, p.success, tasks.index(p.task)) for p in points]
    left = min((point.quality for point in points), default=0.0) - 0.1
    axes = Axes("4 - MAE on held-out episodes", "final success", left=max(0.0, left), right=4.0)
    return point_chart(drawn, axes, "final success over reward accuracy, a point per reward and task")


def _severity_charts(curves: Sequence[SeverityCurve]) -> list[TitledChart]:
    rewards = list(dict.fromkeys(curve.reward for curve in curves))
    levels, charts = tuple(float(level) for level in SEVERITIES), []
    for name in dict.fromkeys(curve.perturbation for curve in curves):
        lines = [
            Line(curve.reward, levels, curve.success, curve.low, curve.high, rewards.index(curve.reward))
            for curve in curves
            if curve.perturbation == name
        ]
        axes = Axes("severity of the perturbation the reward model sees", "final success", right=4.0)
        charts.append(TitledChart(name, line_chart(lines, axes, f"success over the severity of {name}")))
    return charts


def _final_clips(results: RlResults, folder: Path) -> list[ClipView]:
    """Return clips of final policies, one of each series and task first."""
    chosen: dict[tuple[str, str, str, str], tuple[TrainingRunResult, str]] = {}
    for run in results.training_runs:
        for clip in run.clips[:1]:
            chosen.setdefault((run.task, run.reward, run.condition, run.algorithm), (run, clip))
    found = []
    for run, clip in list(chosen.values())[:_MAX_CLIPS]:
        condition = "" if run.condition == "clean" else f", reward model under {run.condition}"
        title = f"{run.task}: {run.algorithm} on {run.reward}{condition}, {format_percent(run.success)} success"
        found.append(ClipView(title, _video(folder, clip)))
    return found


def _video(folder: Path, name: str) -> str:
    """Return a clip as a data address; empty where it is missing, too large, or not inside the folder."""

    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > _CLIP_BYTES:
        return ""
    return data_address("video/mp4", path.read_bytes())
