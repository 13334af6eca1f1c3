"""Its figures (matplotlib)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rewardlab.core.summary import Summary
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.evaluation.findings import REFERENCE
from rewardlab.metrics.paired_differences import ContrastEstimate
from rewardlab.reporting.figures import (
    COLUMN,
    GREY,
    PAGE,
    RED,
    STYLE,
    draw_bars,
    draw_curve,
    frame,
    new_panels,
    series_styles,
    severity_axis,
)
from rewardlab.studies.perturbation_paper.measured import MeasuredStudy, at, over_categories
from rewardlab.studies.perturbation_paper.paper import GROUPS, RELIABLE_AT, STATED_TAU, TASK_SEVERITY, WORST, group_of

METRICS_DRAWN = {"ordinal_ece": "ordinal ECE", "brier_score": "Brier score"}
_NOTE = (
    "Bands: 95 % of what a perfectly calibrated model with the same probabilities shows; a curve above its band is off "
    "by more than chance explains."
)


@rc_context(STYLE)
def draw_calibration(summary: Summary, metric: str, labels: Mapping[str, str], notes: Sequence[str]) -> Figure:
    """Return one calibration error over severity, one panel per category; `labels` are the models to draw."""
    figure, panels = new_panels(max(COLUMN + 1, 1.8 * len(summary.categories)), 2.2, len(summary.categories))
    styles = series_styles(labels)
    for axes, category in zip(panels, summary.categories, strict=True):
        for model, style in styles.items():
            found = [summary.calibration_null(model, category if s else CLEAN, s, metric) for s in SEVERITIES]
            numbers = [(entry.value, entry.null_low, entry.null_high) for entry in found]
            values, lows, highs = np.array(numbers, np.float64).T.tolist()  # None becomes nan
            draw_curve(axes, values, (lows, highs), style, model)
        severity_axis(axes, SEVERITIES)
        axes.set_title(category)
    panels[0].set_ylabel(METRICS_DRAWN[metric])
    keys = [styles[model].key(label) for model, label in labels.items()]
    return frame(figure, f"Calibration over severity: {METRICS_DRAWN[metric]}", keys, [_NOTE, *notes])


# The hollow diamond that marks a number stated in the perturbation paper, in simulated and in measured figures.

_DIAMOND = 6.5  # points


def draw_stated(axes: Axes, places: Sequence[float], values: Sequence[float], colour: str) -> None:
    """Draw one diamond per stated number, around what is measured there."""
    axes.plot(places, values, "D", color=colour, markersize=_DIAMOND, markerfacecolor="none", label="stated")


def stated_key() -> Line2D:
    """Return the diamond's entry of the legend."""
    return Line2D([], [], color=GREY, marker="D", markerfacecolor="none", linestyle="", label="stated in the paper")


Curves = Mapping[str, Sequence[ContrastEstimate]]  # by model, one number per severity, nan where it was not measured
Losses = Mapping[tuple[str, str], ContrastEstimate]  # by model and kind of task
Labels = Mapping[str, str]  # of the judged models, as the legend has them; a model without one is a control


def measured_figures(study: MeasuredStudy) -> dict[str, Figure]:
    """Return the figures of a study by file name; one without a single number is left out."""
    labels = model_labels({name: study.shown(name) for name in study.drawn}, study.roles)
    missing = [str(severity) for severity in SEVERITIES if severity and severity not in study.record.plan.severities]
    gaps = f"The curves are open at severity {', '.join(missing)}: this run did not ask for it."
    run, open_places = f"Run: {_shortened(study.record.command)}", [gaps] if missing else []
    accuracies, taus, losses = _accuracies(study), _taus(study), _losses(study)
    found = {}
    if any(_known(estimate) for by_model in accuracies.values() for curve in by_model.values() for estimate in curve):
        stated = {(m, c): study.stated(m, c) for m in labels for c in study.categories}
        known = {place: value for place, value in stated.items() if value is not None}
        found["figure1"] = draw_measured_accuracy(accuracies, labels, known, [*open_places, run])
    if any(_known(estimate) for curve in taus.values() for estimate in curve):
        own = f"Within an episode, mean over {', '.join(study.categories)}. Where either is constant there is none."
        stated_taus = {(m, s): value for m in labels for s, value in STATED_TAU.get(study.role(m), {}).items()}
        found["figure2"] = draw_measured_tau(taus, labels, stated_taus, [own, *open_places, run])
    if any(_known(estimate) for estimate in losses.values()):
        tasks, others = {group: _tasks(study, group) for group in GROUPS}, _tasks(study, None)
        left_out = [f"Not Meta-World, left out: {', '.join(others)}."] if others else []
        found["figure3"] = draw_measured_losses(losses, labels, tasks, [*left_out, run])
    sure = {entry.model for entry in study.summary.calibration_nulls}
    if measured := {model: label for model, label in labels.items() if model in sure}:
        for metric in METRICS_DRAWN:
            found[metric] = draw_calibration(study.summary, metric, measured, [*open_places, run])
    return found


_LONGEST = 240  # characters of a command below a figure


def _shortened(command: str) -> str:
    if len(command) <= _LONGEST:
        return command
    return f"{command[: _LONGEST // 2]} ... {command[-_LONGEST // 4 :]} (in full in claims.md)"


def model_labels(judged: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, str]:
    """Return the short names of the judged models, each with the configuration of the paper that it plays."""
    role_of = {model: role for role, model in roles.items()}
    named = [(model, name, role_of.get(model, "")) for model, name in judged.items()]
    return {model: f"{name} as {role}" if role and not name.startswith(role) else name for model, name, role in named}


def _accuracies(study: MeasuredStudy) -> dict[str, Curves]:
    control = [REFERENCE] if REFERENCE in study.models else []
    models = list(dict.fromkeys([*study.drawn, *control]))
    return {
        category: {m: [study.accuracy.combined(at(m, category, s)) for s in SEVERITIES] for m in models}
        for category in study.categories
    }


def _taus(study: MeasuredStudy) -> Curves:
    return {
        model: [study.tau.combined(over_categories(model, s, study.categories)) for s in SEVERITIES]
        for model in study.drawn
    }


def _losses(study: MeasuredStudy) -> Losses:
    places = [(model, group) for model in study.drawn for group in GROUPS]
    return {(m, g): study.group_loss.combined(study.groups_evenly(m, (g,), study.categories)) for m, g in places}


def _tasks(study: MeasuredStudy, group: str | None) -> list[str]:
    return sorted(task for task in study.trials.codes("task")[1] if group_of(task) == group)


def _known(estimate: ContrastEstimate) -> bool:
    return not math.isnan(estimate.value)


@rc_context(STYLE)
def draw_measured_accuracy(
    curves: Mapping[str, Curves], labels: Labels, stated: Mapping[tuple[str, str], float], notes: Sequence[str]
) -> Figure:
    """Return success accuracy over severity, one panel per category; `stated` is by model and category."""
    styles = series_styles(labels)
    figure, panels = new_panels(max(COLUMN + 1, 1.8 * len(curves)), 2.2, len(curves))
    for axes, (category, by_model) in zip(panels, curves.items(), strict=True):
        axes.axhline(RELIABLE_AT, color=RED, linestyle="--", linewidth=0.9)
        _draw_curves(axes, by_model, labels)
        for model, style in styles.items():
            if (model, category) in stated:
                draw_stated(axes, [WORST], [stated[model, category]], style.colour)
        axes.set_title(category)
    panels[0].set_ylabel("success accuracy")
    level = Line2D([], [], color=RED, linestyle="--", linewidth=0.9, label=f"{RELIABLE_AT:g}: unreliable below it")
    controls = [m for m in next(iter(curves.values())) if m not in labels]
    keys = [*_keys(labels), *([stated_key()] if stated else []), level]
    keys += [Line2D([], [], color=GREY, linestyle="--", linewidth=0.9, label=f"{m}, sees nothing") for m in controls]
    return frame(figure, "Figure 1: success accuracy over severity", keys, notes)


@rc_context(STYLE)
def draw_measured_tau(
    curves: Curves, labels: Labels, stated: Mapping[tuple[str, int], float], notes: Sequence[str]
) -> Figure:
    """Return tau-b within the episode over severity, mean over categories; `stated` is by model and severity."""
    styles = series_styles(labels)
    figure, (axes,) = new_panels(COLUMN + 1.2, 2.5)
    _draw_curves(axes, curves, labels)
    for (model, severity), value in stated.items():
        draw_stated(axes, [severity], [value], styles[model].colour)
    axes.set_ylabel("Kendall's tau-b")
    title = "Figure 2: Kendall's tau-b of predicted with true progress"
    return frame(figure, title, [*_keys(labels), *([stated_key()] if stated else [])], notes)


@rc_context(STYLE)
def draw_measured_losses(
    lost: Losses, labels: Labels, tasks: Mapping[str, Sequence[str]], notes: Sequence[str]
) -> Figure:
    """Return the accuracy that each kind of task loses, mean over categories; `tasks` are those of each kind."""
    styles = series_styles(labels)
    found = [[lost[model, group] for group in GROUPS] for model in labels]
    figure, (axes,) = new_panels(PAGE, 2.4)
    middles = draw_bars(axes, [[e.value for e in each] for each in found], list(styles.values()))
    for places, each in zip(middles, found, strict=True):
        ends = np.transpose([(e.value - e.low, e.high - e.value) for e in each])
        axes.errorbar(places, [e.value for e in each], yerr=ends, fmt="none", ecolor="black", elinewidth=1)
    counts = {group: len(tasks[group]) for group in GROUPS}
    names = [f"{g}\n({n} task{'' if n == 1 else 's'})" if n else f"{g}\n(no task)" for g, n in counts.items()]
    axes.set_xticks(range(len(GROUPS)), names)
    axes.set_xlim(-0.5, len(GROUPS) - 0.5)
    axes.set_ylabel("accuracy lost")
    keys: list[Artist] = [Patch(facecolor=styles[m].colour, alpha=0.8, label=label) for m, label in labels.items()]
    keys.append(Line2D([], [], color="black", marker="|", markersize=9, linestyle="", label="95 % interval"))
    title = f"Figure 3: accuracy lost at severity {TASK_SEVERITY}, by kind of task, mean over categories"
    where = [f"{group}: {', '.join(tasks[group]) or 'no task in this run'}." for group in GROUPS]
    own = "Each cell against its own clean episode. Intervals are rough where tasks are few."
    return frame(figure, title, keys, [own, *where, *notes])


def _draw_curves(axes: Axes, curves: Curves, labels: Labels) -> None:
    """Draw a curve per model; it breaks where a number is missing. A control is a dashed line."""
    styles = series_styles(labels)
    for model, curve in curves.items():
        values = [e.value for e in curve]
        if model in styles:
            draw_curve(axes, values, ([e.low for e in curve], [e.high for e in curve]), styles[model], model)
        else:
            axes.plot(SEVERITIES, values, color=GREY, linestyle="--", linewidth=0.9, label=model)
    severity_axis(axes, SEVERITIES)


def _keys(labels: Labels) -> list[Artist]:
    styles = series_styles(labels)
    band = Patch(facecolor=GREY, alpha=0.2, label="95 % interval")
    return [*(styles[model].key(label) for model, label in labels.items()), band]
