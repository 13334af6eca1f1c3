"""The paper's three figures from a run: accuracy over severity, tau over severity, and what each kind of task loses."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from textwrap import wrap

from rewardlab.analysis.findings import REFERENCE
from rewardlab.metrics.condition_contrasts import ContrastEstimate
from rewardlab.perturb.contract import SEVERITIES
from rewardlab.studies.perturbation_paper import drawing as draw
from rewardlab.studies.perturbation_paper.measured.measured_study import (
    MeasuredStudy,
    at,
    groups_evenly,
    over_categories,
)
from rewardlab.studies.perturbation_paper.measured.paper_mapping import (
    GROUPS,
    RELIABLE_AT,
    TASK_SEVERITY,
    WORST,
    group_of,
)
from rewardlab.studies.perturbation_paper.paper_results import STATED_TAU

_SPAN = (float(SEVERITIES[0]), float(SEVERITIES[-1]))
_GREY, _RED = "#7b8794", "#c0392b"
_LETTER = 5.7  # pixels that a letter of small text takes, about
_KEY = "line and dot: measured; band: 95 % interval; diamond: stated in the paper"


def figure_files(study: MeasuredStudy) -> dict[str, str]:
    """Return the figures by file name; one without a single number is left out."""
    found = {"figure1.svg": figure_1(study), "figure2.svg": figure_2(study), "figure3.svg": figure_3(study)}
    return {name: drawing for name, drawing in found.items() if drawing}


def figure_1(study: MeasuredStudy) -> str:
    """Return success accuracy over severity, one plot per category; nothing where nothing was measured."""
    blind = [REFERENCE] if REFERENCE in study.summary.models else []
    models = list(dict.fromkeys([*study.summary.judged, *blind]))
    found = {
        c: {m: [study.accuracy.combined(at(m, c, s)) for s in SEVERITIES] for m in models} for c in study.categories
    }
    lows = [low for curves in found.values() for low in _lows(curves)]
    if not lows:
        return ""
    low = draw.floor_below([*lows, *(study.stated(m, c) or 1.0 for c in found for m in models), RELIABLE_AT])
    body = [_legend(study)]
    for place, (category, curves) in enumerate(found.items()):
        area = draw.Area(56 + 250 * place, 118, 205, 210, _SPAN, (low, 1.0))
        body.append(draw.axes(area, SEVERITIES, draw.round_steps(low), (category, "severity")))
        body.append(draw.curve(area, [(x, RELIABLE_AT) for x in _SPAN], _RED, dashed=True))
        body.append(_curves(study, area, curves))
        for model, colour in draw.colours(study.summary.judged).items():
            value = study.stated(model, category)
            body += [] if value is None else [draw.diamond(area, WORST, value, colour)]
    notes = [f"Red dashes: {RELIABLE_AT:g}, below which the paper calls a model unreliable."]
    notes += [f"Grey dashes: {REFERENCE}, which sees nothing."] if blind else []
    size = (max(620, 60 + 250 * len(found)), 390)
    return _picture(study, "Figure 1: success accuracy over severity", _KEY, [" ".join(notes)], size, body)


def figure_2(study: MeasuredStudy) -> str:
    """Return tau-b within the episode over severity, mean over categories; nothing where nothing was measured."""
    found = {
        model: [study.tau.combined(over_categories(model, s, study.categories)) for s in SEVERITIES]
        for model in study.summary.judged
    }
    stated = {m: STATED_TAU.get(study.role(m), {}) for m in found}
    lows = _lows(found)
    if not lows:
        return ""
    low = draw.floor_below([*lows, *(value for points in stated.values() for value in points.values())])
    area = draw.Area(56, 110, 660, 250, _SPAN, (low, 1.0))
    body = [_legend(study), draw.axes(area, SEVERITIES, draw.round_steps(low), ("", "severity"))]
    body.append(_curves(study, area, found))
    for model, colour in draw.colours(found).items():
        body += [draw.diamond(area, severity, value, colour) for severity, value in stated[model].items()]
    title = "Figure 2: Kendall's tau-b within an episode, predicted against true progress"
    notes = f"Mean over {', '.join(study.categories)}. Episodes in which either is constant do not count."
    return _picture(study, title, _KEY, [notes], (740, 420), body)


def figure_3(study: MeasuredStudy) -> str:
    """Return the accuracy that each kind of task loses, mean over categories; nothing where no task is known."""
    judged = study.summary.judged
    lost = {(m, g): study.group_loss.combined(groups_evenly(m, (g,), study.categories)) for m in judged for g in GROUPS}
    known = [e for e in lost.values() if e.value == e.value]
    if not known:
        return ""
    ends = [0.0, *(x for e in known for x in (e.value, e.low, e.high) if x == x)]
    low, high = math.floor(20 * min(ends)) / 20, math.ceil(20 * max(ends)) / 20
    area = draw.Area(56, 110, 140 * len(GROUPS), 250, (0, len(GROUPS)), (low, high))
    body = [_legend(study), draw.axes(area, (), _steps(low, high), ("", ""))]
    width = 0.8 / len(judged)
    for place, group in enumerate(GROUPS):
        count = len(_tasks(study, group))
        words = f"{group} ({count} task{'' if count == 1 else 's'})" if count else f"{group} (no task)"
        body.append(draw.label(area.x(place + 0.5), area.top + area.height + 18, words, "soft", "middle"))
        for number, (model, colour) in enumerate(draw.colours(judged).items()):
            middle = place + 0.1 + width * (number + 0.5)
            body.append(_bar(area, middle, width, lost[model, group], (colour, f"{model}, {group}")))
    title = f"Figure 3: accuracy lost at severity {TASK_SEVERITY}, by kind of task, mean over categories"
    key = "bar: measured, each cell against its own clean episode; line: 95 % interval, rough where tasks are few"
    return _picture(study, title, key, _whereabouts(study), (80 + 140 * len(GROUPS), 400), body)


def _bar(area: draw.Area, middle: float, width: float, lost: ContrastEstimate, look: tuple[str, str]) -> str:
    """Return one bar with its interval; nothing where nothing was measured."""
    if lost.value != lost.value:
        return ""
    colour, words = look
    left, wide = area.x(middle - 0.43 * width), area.x(0.86 * width) - area.x(0)
    told = f"{words}: {_told(lost)}"
    reach = (lost.low, lost.high) if lost.low == lost.low else None
    return draw.bar(area, left, wide, lost.value, colour, told) + draw.dot(area, middle, lost.value, _GREY, reach, told)


def _steps(low: float, high: float) -> list[float]:
    """Return round steps that have a mark at zero."""
    step = 0.05 if high - low <= 0.3 else 0.1 if high - low <= 0.6 else 0.2
    return [round(step * i, 2) for i in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)]


def _tasks(study: MeasuredStudy, group: str | None) -> list[str]:
    return sorted(task for task in study.trials.codes("task")[1] if group_of(task) == group)


def _whereabouts(study: MeasuredStudy) -> list[str]:
    """Say which tasks went where."""
    lines = [f"{group}: {', '.join(_tasks(study, group)) or 'no task in this run'}." for group in GROUPS]
    others = _tasks(study, None)
    return [*lines, *([f"Not Meta-World, left out: {', '.join(others)}."] if others else [])]


def _lows(found: Mapping[str, Sequence[ContrastEstimate]]) -> list[float]:
    """Return how far down each number reaches with its interval."""
    return [e.low if e.low == e.low else e.value for curve in found.values() for e in curve if e.value == e.value]


def _curves(study: MeasuredStudy, area: draw.Area, found: Mapping[str, Sequence[ContrastEstimate]]) -> str:
    """Return a curve per model over all bands; it breaks where a number is missing. A control is a dashed line."""
    colours, bands, lines = draw.colours(study.summary.judged), [], []
    for model, curve in found.items():
        colour = colours.get(model, _GREY)
        for known, run in groupby(enumerate(curve), key=lambda item: item[1].value == item[1].value):
            points = list(run) if known else []
            lines.append(draw.curve(area, [(s, e.value) for s, e in points], colour, dashed=model not in colours))
            if model in colours:
                bands.append(draw.band(area, [(s, e.low, e.high) for s, e in points if e.low == e.low], colour))
                words = [f"{model}, severity {s}: {_told(e)}" for s, e in points]
                lines += [draw.dot(area, s, e.value, colour, words=told) for (s, e), told in zip(points, words)]
    return "".join(bands + lines)


def _told(estimate: ContrastEstimate) -> str:
    return f"{estimate.value:.3f} {estimate.ends}"


def _legend(study: MeasuredStudy) -> str:
    """Return the names of the judged models, short, each with the configuration that it plays."""
    judged = study.summary.judged
    short = [f"ensemble of {m.count(',') + 1}" if m.startswith("ensemble:") else m for m in judged]
    names = short if len(set(short)) == len(short) else list(judged)
    roles = [study.role(model) for model in judged]
    return draw.legend(56, 74, [f"{n} as {r}" if r and not n.startswith(r) else n for n, r in zip(names, roles)])


def _picture(
    study: MeasuredStudy, title: str, key: str, notes: Sequence[str], size: tuple[int, int], body: Sequence[str]
) -> str:
    """Return the file: below the plots, what is to be noted and the command of the run."""
    width, bottom = size
    letters = int((width - 40) / _LETTER)
    every = (*notes, f"Run: {study.record['command']}")
    lines = [line for note in every for line in wrap(note, letters, break_on_hyphens=False)]
    words = [draw.label(20, bottom + 15 * place, line, "soft") for place, line in enumerate(lines)]
    return draw.picture(title, key, "", (width, bottom + 15 * len(lines) + 5), [*body, *words])
