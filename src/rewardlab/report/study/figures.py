"""The paper's three figures from a run: accuracy over severity, tau over severity, and what each kind of task loses."""

import math
from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from rewardlab.bench.verdicts import REFERENCE
from rewardlab.core import drawing as draw
from rewardlab.metrics.contrasts import Estimate
from rewardlab.metrics.stated import TAU
from rewardlab.perturb.contract import SEVERITIES
from rewardlab.report.study.measure import Study, at, groups_evenly, over_categories
from rewardlab.report.study.paper import GROUPS, RELIABLE_AT, TASK_SEVERITY, WORST, group_of

_SPAN = (float(SEVERITIES[0]), float(SEVERITIES[-1]))
_GREY, _RED, _INK = "#7b8794", "#c0392b", "#3a424c"
_LETTER = 5.7  # pixels that a letter of small text takes, about
_KEY = "line and dot: measured; band: 95 % interval; diamond: stated in the paper"


def figure_files(study: Study) -> dict[str, str]:
    """Return the figures by file name; one without a single number is left out."""
    found = {"figure1.svg": figure_1(study), "figure2.svg": figure_2(study), "figure3.svg": figure_3(study)}
    return {name: drawing for name, drawing in found.items() if drawing}


def figure_1(study: Study) -> str:
    """Return success accuracy over severity, one plot per category; nothing where nothing was measured."""
    models = [*study.summary.judged, *([REFERENCE] if REFERENCE in study.summary.models else [])]
    found = {
        (m, c): [study.accuracy.combined(at(m, c, s)) for s in SEVERITIES] for m in models for c in study.categories
    }
    stated = [p for m, c in found if (p := study.stated(m, c)) is not None]
    lows = [e.low for curve in found.values() for e in curve if e.low == e.low]
    if not lows:
        return ""
    low = draw.floor_below([*lows, *stated, RELIABLE_AT])
    body = [_legend(study)]
    for place, category in enumerate(study.categories):
        area = draw.Area(56 + 250 * place, 118, 205, 210, _SPAN, (low, 1.0))
        body.append(draw.axes(area, SEVERITIES, draw.round_steps(low), (category, "severity")))
        body.append(draw.curve(area, [(x, RELIABLE_AT) for x in _SPAN], _RED, dashed=True))
        for model, colour in _colours(study, models).items():
            control = model not in study.summary.judged
            body.append(_series(area, f"{model}, {category}", found[model, category], colour, control=control))
            value = study.stated(model, category)
            body += [] if value is None else [draw.diamond(area, WORST, value, colour)]
    key = f"{_KEY}; red: {RELIABLE_AT:g}, below which the paper calls a model unreliable"
    key += f"; grey: {REFERENCE}, which sees nothing" if REFERENCE in models else ""
    return _picture(
        study, "Figure 1: success accuracy over severity", key, "", (60 + 250 * len(study.categories), 390), body
    )


def figure_2(study: Study) -> str:
    """Return tau-b within the episode over severity, mean over categories; nothing where nothing was measured."""
    found = {
        model: [study.tau.combined(over_categories(model, s, study.categories)) for s in SEVERITIES]
        for model in study.summary.judged
    }
    stated = {m: TAU.get(study.role(m), {}) for m in found}
    lows = [e.low for curve in found.values() for e in curve if e.low == e.low]
    if not lows:
        return ""
    low = draw.floor_below([*lows, *(value for points in stated.values() for value in points.values())])
    area = draw.Area(56, 110, 660, 250, _SPAN, (low, 1.0))
    body = [_legend(study), draw.axes(area, SEVERITIES, draw.round_steps(low), ("", "severity"))]
    for model, colour in _colours(study, list(found)).items():
        body.append(_series(area, model, found[model], colour))
        body += [draw.diamond(area, severity, value, colour) for severity, value in stated[model].items()]
    title = "Figure 2: Kendall's tau-b within an episode, predicted against true progress"
    notes = f"Mean over {', '.join(study.categories)}. Episodes in which either is constant do not count."
    return _picture(study, title, _KEY, notes, (740, 420), body)


def figure_3(study: Study) -> str:
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
        for number, (model, colour) in enumerate(_colours(study, judged).items()):
            middle = place + 0.1 + width * (number + 0.5)
            body.append(_bar(area, middle, width, lost[model, group], (colour, f"{model}, {group}")))
    title = f"Figure 3: accuracy lost at severity {TASK_SEVERITY}, by kind of task, mean over categories"
    key = "bar: measured, each cell against its own clean episode; line: 95 % interval, rough where tasks are few"
    return _picture(study, title, key, _whereabouts(study), (80 + 140 * len(GROUPS), 400), body)


def _bar(area: draw.Area, middle: float, width: float, lost: Estimate, look: tuple[str, str]) -> str:
    """Return one bar with its interval; nothing where nothing was measured."""
    if lost.value != lost.value:
        return ""
    colour, words = look
    left, wide = area.x(middle - 0.43 * width), area.x(0.86 * width) - area.x(0)
    told = f"{words}: {_told(lost)}"
    reach = (lost.low, lost.high) if lost.low == lost.low else None
    return draw.bar(area, left, wide, lost.value, colour, told) + draw.dot(area, middle, lost.value, _INK, reach, told)


def _steps(low: float, high: float) -> list[float]:
    """Return round steps that have a mark at zero."""
    step = 0.05 if high - low <= 0.3 else 0.1 if high - low <= 0.6 else 0.2
    return [round(step * i, 2) for i in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)]


def _tasks(study: Study, group: str | None) -> list[str]:
    return sorted(task for task in study.trials.codes("task")[1] if group_of(task) == group)


def _whereabouts(study: Study) -> str:
    """Say which tasks went where."""
    parts = [f"{group}: {', '.join(_tasks(study, group)) or 'none in this run'}" for group in GROUPS]
    others = _tasks(study, None)
    return ". ".join([*parts, *([f"Not Meta-World, left out: {', '.join(others)}"] if others else [])]) + "."


def _series(area: draw.Area, name: str, found: Sequence[Estimate], colour: str, *, control: bool = False) -> str:
    """Return a curve that breaks where a number is missing, over its intervals; a control is a dashed line."""
    parts = []
    for known, run in groupby(enumerate(found), key=lambda item: item[1].value == item[1].value):
        points = list(run) if known else []
        ends = [(float(s), e.low, e.high) for s, e in points if e.low == e.low]
        parts += [draw.band(area, ends, colour)] if len(ends) > 1 and not control else []
        parts.append(draw.curve(area, [(s, e.value) for s, e in points], colour, dashed=control))
        if not control:
            parts += [draw.dot(area, s, e.value, colour, None, f"{name}, severity {s}: {_told(e)}") for s, e in points]
    return "".join(parts)


def _told(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _colours(study: Study, models: Sequence[str]) -> dict[str, str]:
    palette = draw.colours(study.summary.judged)
    return {model: palette.get(model, _GREY) for model in models}


def _legend(study: Study) -> str:
    """Return the names of the judged models, short, each with the configuration that it plays."""
    judged = study.summary.judged
    short = [f"ensemble of {m.count(',') + 1}" if m.startswith("ensemble:") else m for m in judged]
    names = short if len(set(short)) == len(short) else list(judged)
    roles = [study.role(model) for model in judged]
    return draw.legend(56, 74, [f"{n} as {r}" if r and not n.startswith(r) else n for n, r in zip(names, roles)])


def _picture(study: Study, title: str, key: str, notes: str, size: tuple[int, int], body: Sequence[str]) -> str:
    """Return the file: below the plots, what is to be noted and the command of the run."""
    width, bottom = size
    letters = int((width - 40) / _LETTER)
    lines = [*wrap(notes, letters), *wrap(f"Run: {study.record['command']}", letters, break_on_hyphens=False)]
    words = [draw.label(20, bottom + 15 * place, line, "soft") for place, line in enumerate(lines)]
    return draw.picture(title, key, "", (width, bottom + 15 * len(lines) + 5), [*body, *words])
