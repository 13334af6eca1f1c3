"""The pictures of a study: the paper's three figures, its numbers against its equation, the vote, and the planning."""

import math
from collections.abc import Sequence
from itertools import cycle

import numpy as np

from rewardlab.studies.perturbation_paper import drawing as draw
from rewardlab.studies.perturbation_paper.paper_results import STATED_ACCURACY
from rewardlab.studies.perturbation_paper.simulated.closed_form import vote_accuracy
from rewardlab.studies.perturbation_paper.simulated.power_analysis import MOST, SampleSize
from rewardlab.studies.perturbation_paper.simulated.reproduction import reproductions
from rewardlab.studies.perturbation_paper.simulated.simulation import SimulationResults, averaged
from rewardlab.studies.perturbation_paper.simulated.study_config import clipped

KEY = "line: closed form; dot: sampled, 95%"


def study_figures(results: SimulationResults, made_by: str) -> dict[str, str]:
    """Return the pictures of a study by file name."""
    found = {
        "figure1.svg": figure_1(results, made_by),
        "figure2.svg": figure_2(results, made_by),
        "figure3.svg": figure_3(results, made_by),
    }
    if results.study.of_paper:
        found["stated.svg"] = stated_figure(results, made_by)
    if results.votes:
        found["vote.svg"] = vote_figure(results, made_by)
    return found


def figure_1(results: SimulationResults, made_by: str) -> str:
    """Return accuracy over severity, one plot per category; diamonds are the numbers that the paper states."""
    study = results.study
    low = draw.floor_below(o.sampled["accuracy"].interval[0] for o in results.outcomes)
    span = (float(study.severities[0]), float(max(study.severities[-1], study.severities[0] + 1)))
    body = [draw.legend(60, 72, list(study.models))]
    for place, category in enumerate(study.categories):
        area = draw.Area(56 + 250 * place, 118, 205, 210, span, (low, 1.0))
        body.append(draw.axes(area, study.severities, draw.round_steps(low), (category, "severity")))
        for model, colour in draw.colours(study.models).items():
            body.append(_accuracy_curve(results, area, model, category, colour))
    size = (60 + 250 * len(study.categories), 400)
    subtitle = KEY + ("; diamond: stated" if study.of_paper else "")
    return draw.picture("Figure 1: accuracy over severity", subtitle, made_by, size, body)


def _accuracy_curve(results: SimulationResults, area: draw.Area, model: str, category: str, colour: str) -> str:
    found = [results.find(model, category, severity) for severity in results.study.severities]
    parts = [draw.curve(area, [(o.condition.severity, o.expected["accuracy"]) for o in found], colour)]
    for outcome in found:
        sampled = outcome.sampled["accuracy"]
        parts.append(draw.dot(area, outcome.condition.severity, sampled.value, colour, sampled.interval))
    if results.study.of_paper and 4 in results.study.severities:
        parts.append(draw.diamond(area, 4, STATED_ACCURACY[model][category], colour))
    return "".join(parts)


def figure_2(results: SimulationResults, made_by: str) -> str:
    """Return tau-b over severity, averaged over categories."""
    study = results.study
    span = (float(study.severities[0]), float(max(study.severities[-1], study.severities[0] + 1)))
    low = draw.floor_below(o.sampled["tau"].interval[0] for o in results.outcomes)
    area = draw.Area(60, 110, 520, 230, span, (low, 1.0))
    body = [
        draw.legend(60, 72, list(study.models)),
        draw.axes(area, study.severities, draw.round_steps(low), ("", "severity")),
    ]
    for model, colour in draw.colours(study.models).items():
        points = []
        for severity in study.severities:
            found = [results.find(model, category, severity) for category in study.categories]
            points.append((float(severity), sum(o.expected["tau"] for o in found) / len(found)))
            sampled = averaged([o.sampled["tau"] for o in found])
            body.append(draw.dot(area, severity, sampled.value, colour, sampled.interval))
        body.append(draw.curve(area, points, colour))
        stated = [c.stated for c in reproductions(results) if c.stated.measure == "tau" and c.stated.model == model]
        body += [draw.diamond(area, s.severity, s.value, colour) for s in stated]
    subtitle = KEY + ("; diamond: stated" if study.of_paper else "")
    return draw.picture("Figure 2: Kendall's tau-b, mean over categories", subtitle, made_by, (620, 410), body)


def figure_3(results: SimulationResults, made_by: str) -> str:
    """Return the accuracy lost by task, averaged over categories; bars are closed form, dots sampled."""
    study = results.study
    lost = {(m, t): _lost(results, m, t) for m in study.models for t in study.tasks}
    top = math.ceil(20 * max(max(high, exact) for exact, _, (_, high) in lost.values())) / 20
    area = draw.Area(60, 110, 640, 230, (0, len(study.tasks)), (0, top))
    body = [draw.legend(60, 72, list(study.models)), draw.axes(area, (), draw.round_steps(0, top), ("", ""))]
    slot = area.width / len(study.tasks)
    width = slot * 0.8 / len(study.models)
    for place, task in enumerate(study.tasks):
        body.append(draw.label(area.x(place + 0.5), area.top + area.height + 18, task, "soft", "middle"))
        for number, (model, colour) in enumerate(draw.colours(study.models).items()):
            exact, value, interval = lost[model, task]
            left = area.x(place) + slot * 0.1 + number * width
            body.append(draw.bar(area, left, width * 0.86, exact, colour))
            middle = (left + width * 0.43 - area.left) / area.width * len(study.tasks)
            body.append(draw.dot(area, middle, value, "#3a424c", interval))
    title = f"Figure 3: accuracy lost by task at severity {study.task_severity}, mean over categories"
    subtitle = "bar: closed form; dot: sampled, 95%; how much harder each task is, is our choice"
    return draw.picture(title, subtitle, made_by, (740, 400), body)


def _lost(results: SimulationResults, model: str, task: str) -> tuple[float, float, tuple[float, float]]:
    """Return the loss against clean episodes: closed form, sampled, and its interval."""
    found = [o for o in results.tasks if o.condition.model == model and o.condition.task == task]
    clean = results.clean_accuracy(model)
    sampled = averaged([o.sampled["accuracy"] for o in found])
    low, high = sampled.interval
    exact = clean - sum(o.expected["accuracy"] for o in found) / len(found)
    return exact, clean - sampled.value, (clean - high, clean - low)


def stated_figure(results: SimulationResults, made_by: str) -> str:
    """Return every stated number as a diamond beside the closed form with two standard errors."""
    rows = reproductions(results)
    low = draw.floor_below(min(c.stated.value, c.expected - 2 * c.error) for c in rows)
    area = draw.Area(330, 78, 440, 24 * len(rows), (low, 1.0), (len(rows) - 0.5, -0.5))
    body = [draw.axes(area, draw.round_steps(low), (), ("", "accuracy or tau"))]
    for place, c in enumerate(rows):
        s = c.stated
        where = s.categories[0] if len(s.categories) == 1 else "all"
        name = f"{s.where}: {s.measure}, {s.model} {where}, severity {s.severity}"
        body.append(draw.label(area.left - 12, area.y(place) + 4, name, "" if c.met else "alarm", "end"))
        reach = (c.expected - 2 * c.error, min(1.0, c.expected + 2 * c.error))
        body.append(draw.lying_dot(area, c.expected, place, draw.COLOURS[0], reach))
        body.append(draw.diamond(area, s.value, place, draw.COLOURS[2] if c.met else "#c0392b"))
        if not c.met:
            words = f"{abs(c.distance):.1f} standard errors away"
            body.append(draw.label(area.x(s.value) - 12, area.y(place) + 4, words, "alarm", "end"))
    met = sum(c.met for c in rows)
    title = f"{met} of {len(rows)} stated numbers can come from the stated equation"
    subtitle = "diamond: stated; dot: closed form, with two standard errors of a study of 500 episodes"
    return draw.picture(title, subtitle, made_by, (800, 24 * len(rows) + 150), body)


def vote_figure(results: SimulationResults, made_by: str) -> str:
    """Return the accuracy of a real vote over the correlation of its members; at 1 it is the row of Eq. 1."""
    study, worst = results.study, max(results.study.severities)
    shared = np.linspace(0, 1, 41)
    votes = [vote for vote in results.votes if vote.condition.severity == worst]
    curves = {}
    for vote in votes:
        scale = study.scale(clipped(study.centre(vote.condition)))
        curves[vote.condition.category] = [float(vote_accuracy(scale, study.truth, float(c))) for c in shared]
    stated = STATED_ACCURACY[study.voters] if study.of_paper and worst == 4 else {}
    low = draw.floor_below([value for values in curves.values() for value in values] + list(stated.values()))
    area = draw.Area(60, 110, 520, 230, (0, 1), (low, 1.0))
    names = "correlation between the members' errors"
    body = [draw.legend(60, 72, list(curves)), draw.axes(area, draw.round_steps(0), draw.round_steps(low), ("", names))]
    for (category, values), colour in zip(curves.items(), cycle(draw.COLOURS)):
        body.append(draw.curve(area, list(zip(shared.tolist(), values)), colour))
        body += [draw.diamond(area, 1, stated[category], colour)] if stated else []
    for place, (vote, colour) in enumerate(zip(votes, cycle(draw.COLOURS))):
        sampled = vote.sampled["accuracy"]
        beside = study.correlation + 0.012 * place  # so that the bars do not hide each other
        body.append(draw.dot(area, beside, sampled.value, colour, sampled.interval))
    title = f"A majority vote of three, accuracy at severity {worst}"
    subtitle = f"line: closed form; dot: sampled, 95%; diamond: stated for the {study.voters}"
    return draw.picture(title, subtitle if stated else KEY, made_by, (620, 410), body)


def power_figure(found: Sequence[SampleSize], level: float, made_by: str) -> str:
    """Return the episodes that each condition needs, on a logarithmic axis."""
    top = math.log10(MOST)
    area = draw.Area(220, 78, 440, 24 * len(found), (1, top), (len(found) - 0.5, -0.5))
    body = [draw.axes(area, (), (), ("", ""))]
    for power in range(1, round(top) + 1):
        x = area.x(power)
        ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{area.top}" y2="{area.top + area.height}"'
        body.append(f'<line class="grid" {ends}/>')
        body.append(draw.label(x, area.top + area.height + 16, f"{10**power:,}", "soft", "middle"))
    colours = draw.colours(dict.fromkeys(need.condition.model for need in found))
    for place, need in enumerate(found):
        name = f"{need.condition.model} {need.condition.category} ({need.accuracy:.3f})"
        body.append(draw.label(area.left - 12, area.y(place) + 4, name, anchor="end"))
        size = math.log10(need.episodes or MOST)
        body.append(draw.lying_dot(area, size, place, colours[need.condition.model], (1, size)))
        words = f"{need.episodes:,}" if need.episodes else f"over {MOST:,}"
        body.append(draw.label(area.x(size) + 10, area.y(place) + 4, words, "soft"))
    title = f"Episodes needed to certify an accuracy of {level:g}"
    subtitle = "beside each name its accuracy: the closer to the level, the more episodes"
    return draw.picture(title, subtitle, made_by, (740, 24 * len(found) + 140), body)
