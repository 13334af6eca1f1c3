"""The figures of a simulated study: the paper's three, its numbers against its equation, the vote, and sample sizes."""

from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from rewardlab.reporting.figures import (
    COLUMN,
    GREY,
    PAGE,
    PALETTE,
    RED,
    STYLE,
    SeriesStyle,
    draw_bars,
    frame,
    new_panels,
    series_styles,
    severity_axis,
)
from rewardlab.studies.perturbation_paper.equation import clipped, vote_accuracy
from rewardlab.studies.perturbation_paper.fit_and_power import FEWEST, MOST, SampleSize
from rewardlab.studies.perturbation_paper.measured_figures import draw_stated, stated_key
from rewardlab.studies.perturbation_paper.paper import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.reproduction import Reproduction, reproductions
from rewardlab.studies.perturbation_paper.sampler import SampledMean
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, averaged

_APART = 0.09  # severities by which the sampled points of two models stand apart


def study_figures(results: SimulationResults, command: str) -> dict[str, Figure]:
    """Return the figures of a study by file name; `command` is what made it."""
    found = {
        "figure1": draw_accuracy(results, command),
        "figure2": draw_tau(results, command),
        "figure3": draw_task_losses(results, command),
    }
    if results.study.of_paper:
        found["stated"] = draw_stated_numbers(reproductions(results), command)
    if results.votes:
        found["vote"] = draw_votes(results, command)
    return found


@rc_context(STYLE)
def draw_accuracy(results: SimulationResults, command: str) -> Figure:
    """Return accuracy over severity, one panel per category."""
    study, styles = results.study, series_styles(results.study.models)
    figure, panels = new_panels(PAGE, 2.2, len(study.categories))
    for axes, category in zip(panels, study.categories, strict=True):
        for place, (model, style) in enumerate(styles.items()):
            found = [results.find(model, category, severity) for severity in study.severities]
            axes.plot(study.severities, [o.expected["accuracy"] for o in found], color=style.colour, label=model)
            shift = _APART * (place - (len(styles) - 1) / 2)
            _draw_sampled(axes, [s + shift for s in study.severities], [o.sampled["accuracy"] for o in found], style)
            if study.of_paper and 4 in study.severities:
                draw_stated(axes, [4], [STATED_ACCURACY[model][category]], style.colour)
        severity_axis(axes, study.severities)
        axes.set_title(category)
    panels[0].set_ylabel("accuracy")
    return frame(figure, "Figure 1: accuracy over severity", _keys(styles, stated=study.of_paper), [command])


@rc_context(STYLE)
def draw_tau(results: SimulationResults, command: str) -> Figure:
    """Return Kendall's tau-b over severity, averaged over categories."""
    study, styles = results.study, series_styles(results.study.models)
    stated = [c.stated for c in reproductions(results) if c.stated.measure == "tau"]
    figure, (axes,) = new_panels(COLUMN + 1, 2.4)
    for place, (model, style) in enumerate(styles.items()):
        found = [[results.find(model, category, s) for category in study.categories] for s in study.severities]
        expected = [np.mean([o.expected["tau"] for o in each]) for each in found]
        axes.plot(study.severities, expected, color=style.colour, label=model)
        shift = _APART * (place - (len(styles) - 1) / 2) / 2
        sampled = [averaged([o.sampled["tau"] for o in each]) for each in found]
        _draw_sampled(axes, [s + shift for s in study.severities], sampled, style)
        mine = [s for s in stated if s.model == model]
        draw_stated(axes, [s.severity for s in mine], [s.value for s in mine], style.colour)
    severity_axis(axes, study.severities)
    axes.set_ylabel("Kendall's tau-b")
    title = "Figure 2: Kendall's tau-b, mean over categories"
    return frame(figure, title, _keys(styles, stated=study.of_paper), [command])


@rc_context(STYLE)
def draw_task_losses(results: SimulationResults, command: str) -> Figure:
    """Return the accuracy lost by task, averaged over categories: bars are closed form, points sampled."""
    study, styles = results.study, series_styles(results.study.models)
    figure, (axes,) = new_panels(PAGE - 1.5, 2.3)
    exact, sampled = list[list[float]](), list[list[SampledMean]]()
    for model in study.models:
        clean, own = results.clean_accuracy(model), [o for o in results.tasks if o.condition.model == model]
        by_task = [[o for o in own if o.condition.task == task] for task in study.tasks]
        exact.append([clean - sum(o.expected["accuracy"] for o in found) / len(found) for found in by_task])
        means = [averaged([o.sampled["accuracy"] for o in found]) for found in by_task]
        sampled.append([SampledMean(clean - mean.value, mean.error) for mean in means])
    middles = draw_bars(axes, exact, list(styles.values()))
    for places, each in zip(middles, sampled, strict=True):
        _draw_sampled(axes, places, each, SeriesStyle("black", "o"))
    axes.set_xticks(range(len(study.tasks)), list(study.tasks))
    axes.set_ylabel("accuracy lost")
    keys = [Patch(facecolor=style.colour, alpha=0.8, label=model) for model, style in styles.items()]
    title = f"Figure 3: accuracy lost by task at severity {study.task_severity}, mean over categories"
    notes = ["Bars: closed form. Points: sampled, 95 % interval. How much harder each task is, is our choice.", command]
    return frame(figure, title, keys, notes)


@rc_context(STYLE)
def draw_stated_numbers(found: Sequence[Reproduction], command: str) -> Figure:
    """Return every stated number as a diamond beside the closed form with two standard errors."""
    figure, (axes,) = new_panels(PAGE - 1, 0.17 * len(found) + 0.5)
    rows, names = range(len(found)), list[str]()
    widths = [2 * c.error for c in found]
    axes.errorbar([c.expected for c in found], rows, xerr=widths, fmt="o", color=PALETTE[0])
    for row, c in enumerate(found):
        stated, where = c.stated, c.stated.categories[0] if len(c.stated.categories) == 1 else "all"
        names.append(f"{stated.where}: {stated.measure}, {stated.model} {where}, severity {stated.severity}")
        draw_stated(axes, [c.stated.value], [row], PALETTE[2] if c.met else RED)
        if not c.met:
            words, end = f"{abs(c.distance):.1f} standard errors", max(c.stated.value, c.expected + 2 * c.error)
            axes.annotate(words, (end, row), (6, 0), textcoords="offset points", va="center", fontsize=7, color=RED)
    axes.set_yticks(rows, names)
    for label, c in zip(axes.get_yticklabels(), found, strict=True):
        label.set_color("black" if c.met else RED)
    axes.invert_yaxis()
    axes.set_xlabel("accuracy or tau")
    title = f"{sum(c.met for c in found)} of {len(found)} stated numbers can come from the stated equation"
    error = "closed form, two standard errors of a study of 500 episodes"
    keys = [Line2D([], [], color=PALETTE[0], marker="o", label=error), stated_key()]
    return frame(figure, title, keys, [command])


@rc_context(STYLE)
def draw_votes(results: SimulationResults, command: str) -> Figure:
    """Return the accuracy of a real vote over the correlation of its members; at 1 it is the row of Eq. 1."""
    study, worst = results.study, max(results.study.severities)
    correlations = np.linspace(0, 1, 41)
    votes = {vote.condition.category: vote for vote in results.votes if vote.condition.severity == worst}
    styles = series_styles(votes)
    stated = STATED_ACCURACY[study.voters] if study.of_paper and worst == 4 else {}
    figure, (axes,) = new_panels(COLUMN + 1, 2.4)
    for place, (category, vote) in enumerate(votes.items()):
        scale, style = study.scale(clipped(study.centre(vote.condition))), styles[category]
        curve = [float(vote_accuracy(scale, study.truth, float(c))) for c in correlations]
        axes.plot(correlations, curve, color=style.colour, label=category)
        beside = study.correlation + 0.014 * place  # so that the intervals do not hide each other
        _draw_sampled(axes, [beside], [vote.sampled["accuracy"]], style)
        if stated:
            draw_stated(axes, [1], [stated[category]], style.colour)
    axes.set_xlabel("correlation between the members' errors")
    axes.set_ylabel("accuracy")
    keys = _keys(styles, stated=bool(stated))
    notes = [f"Stated for the {study.voters}." if stated else "", command]
    return frame(figure, f"A majority vote of three, accuracy at severity {worst}", keys, notes)


@rc_context(STYLE)
def draw_sample_sizes(found: Sequence[SampleSize], level: float, command: str) -> Figure:
    """Return the episodes that each condition needs, on a logarithmic axis."""
    styles = series_styles(dict.fromkeys(size.condition.model for size in found))
    figure, (axes,) = new_panels(PAGE - 1.5, 0.2 * len(found) + 0.5)
    for row, size in enumerate(found):
        style, episodes = styles[size.condition.model], size.episodes or MOST
        axes.plot([1, episodes], [row, row], color=style.colour, linewidth=1)
        axes.plot([episodes], [row], color=style.colour, marker=style.marker)
        words = f"{size.episodes:,}" if size.episodes else f"over {MOST:,}"
        axes.annotate(words, (episodes, row), (6, 0), textcoords="offset points", va="center", fontsize=7, color=GREY)
    names = [f"{size.condition.model} {size.condition.category} ({size.accuracy:.3f})" for size in found]
    axes.set_yticks(range(len(found)), names)
    axes.set_xscale("log")
    axes.set_xlim(FEWEST / 3, 8 * max(size.episodes or MOST for size in found))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.invert_yaxis()
    axes.set_xlabel("episodes")
    notes = ["Beside each name its accuracy: the closer to the level, the more episodes.", command]
    keys = [style.key(model) for model, style in styles.items()]
    return frame(figure, f"Episodes needed to certify an accuracy of {level:g}", keys, notes)


def _draw_sampled(axes: Axes, places: Sequence[float], means: Sequence[SampledMean], style: SeriesStyle) -> None:
    ends = np.transpose([(mean.value - mean.interval[0], mean.interval[1] - mean.value) for mean in means])
    values = [mean.value for mean in means]
    axes.errorbar(places, values, yerr=ends, fmt=style.marker, color=style.colour, markersize=3, elinewidth=1)


def _keys(styles: dict[str, SeriesStyle], *, stated: bool) -> list[Line2D]:
    """Return the entries of the legend: who, and what the marks are."""
    marks = [
        Line2D([], [], color=GREY, label="closed form"),
        Line2D([], [], color=GREY, marker="|", markersize=9, linestyle="", label="sampled, 95 % interval"),
    ]
    who = [style.key(name, line="") for name, style in styles.items()]
    return [*who, *marks, *([stated_key()] if stated else [])]
