"""Its page: findings in sentences, bars, frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment

from rewardlab.core.episode import LEVELS
from rewardlab.core.storage import atomic_write
from rewardlab.data.row_listing import ListedRow
from rewardlab.evaluation.display import format_number
from rewardlab.evaluation.vision_free import BaselineScore
from rewardlab.reporting.data_report import DataFacts, GroupCounts, RowConflicts, level_lengths
from rewardlab.reporting.page import data_address, templates

_UNEVEN = 0.5  # share of one level from which labels are called uneven
_NAMES = {"length": "A model that sees only how long a clip is", "text": "A model that reads only the instruction"}


def vision_free_sentence(score: BaselineScore) -> str:
    """Say what a blind model does to the constant's error, and what that means."""
    name = _NAMES[score.name]
    if score.saved is None:
        return f"What {name[0].lower()}{name[1:].rstrip(',')} reaches cannot be told: {_why_unknown(score)}."
    interval = f"{_percent(score.low)} to {_percent(score.high)}"
    if score.finding == "blind":
        errors = f"{format_number(score.error)} against {format_number(score.constant_error)} levels of error"
        return f"{name} does no better than a constant on tasks that are new to it ({errors})."
    gone = f"{name} removes {_percent(score.saved)} of the error of a constant ({interval})"
    if score.finding == "solved":
        return f"{gone}: it solves this dataset without looking, so a low error here does not show that a model sees."
    return f"{gone}: labels can partly be told without looking."


def _why_unknown(score: BaselineScore) -> str:
    if score.tasks < 2:
        return "fewer than two tasks have what it needs" if score.rows else "no length is known"
    return "all labels are the same"


def balance_sentence(group: GroupCounts) -> str:
    """Say how even the labels are."""
    known = {level: count for level, count in group.levels.items() if level is not None}
    if not known:
        return "No row has a level."
    total, (level, most) = sum(known.values()), max(known.items(), key=lambda item: item[1])
    missing = [str(level) for level in range(1, 6) if not known.get(level)]
    said = f"Level {level} is {_percent(most / total)} of {total:,} labels"
    said += f"; level {' and '.join(missing)} never comes" if missing else ""
    uneven = most / total >= _UNEVEN
    return f"{said}: the labels are uneven." if uneven or missing else f"{said}: the labels are balanced."


def copy_sentences(facts: DataFacts, conflicts: RowConflicts) -> list[str]:
    """Say what is there twice."""
    copies = sum(len(group) - 1 for group in facts.copies.groups)
    said = []
    if conflicts.contradictions:
        said.append(_count(len(conflicts.contradictions), "question") + " asked twice with different answers.")
    if conflicts.repeated:
        said.append(_count(conflicts.repeated, "row") + " said twice, word for word.")
    if copies:
        said.append(_count(copies, "video") + " the copy of another, byte for byte.")
    if facts.near_copies:
        said.append(_count(len(facts.near_copies), "video") + " nearly the copy of another.")
    return said


def leak_sentences(facts: DataFacts, tasks: Sequence[str]) -> list[str]:
    """Say what splits share; empty where the dataset has none."""
    if len(facts.listings) < 2:
        return []
    across = [group for group in facts.copies.groups if len({split for split, _ in group}) > 1]
    near = [copy for copy in facts.near_copies or () if copy.leaks]
    said = []
    if tasks:
        said.append(f"Splits leak: {_count(len(tasks), 'task')} in more than one split.")
    if across:
        said.append(f"Splits leak: {_count(len(across), 'video')} in more than one split, byte for byte.")
    if near:
        said.append(f"Splits leak: {_count(len(near), 'video')} nearly the copy of one in another split.")
    return said or [f"The {len(facts.listings)} splits share no task and no video{_unlooked(facts)}."]


def _unlooked(facts: DataFacts) -> str:
    return "; near copies were not looked for" if facts.near_copies is None else ""


def _count(number: int, word: str) -> str:
    return f"{number:,} {word} is" if number == 1 else f"{number:,} {word}s are"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{format_number(100 * share, 0)}%"


LEVEL_NAMES = ("No success", "Minimal progress", "Partial completion", "Near completion", "Perfect completion")
_BINS = 24
_SHOWN = 40  # sources, copies and tasks that are listed one by one


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: where it stands and how high it is, as shares, and what it says."""

    left: float
    width: float
    height: float
    text: str


def write_data_page(facts: DataFacts, path: Path) -> Path:
    """Write the page and return its path."""
    html = render_data_page(facts)
    with atomic_write(path) as partial:
        partial.write_text(html, encoding="utf-8")
    return path


def render_data_page(facts: DataFacts) -> str:
    """Return the page as text; every string from outside is escaped."""
    counts = facts.counts
    findings = [
        *leak_sentences(facts, list(counts.shared_tasks)),
        *(vision_free_sentence(score) for score in facts.blind if score.name != "constant"),
        balance_sentence(counts.everything),
        *copy_sentences(facts, counts.conflicts),
    ]
    return (
        _templates()
        .get_template("data_page.html")
        .render(
            facts=facts,
            everything=counts.everything,
            splits=counts.splits if len(counts.splits) > 1 else [],
            sources=counts.sources[:_SHOWN],
            more_sources=max(0, len(counts.sources) - _SHOWN),
            findings=findings,
            solved=[score for score in facts.blind if score.finding == "solved"],
            problems=[problem for listing in facts.listings.values() for problem in listing.problems],
            levels=list(zip(LEVELS, LEVEL_NAMES)),
            lengths=level_lengths(facts.listings, facts.lengths),
            histogram=_histogram([length.seconds for length in facts.lengths.values()]),
            conflicts=counts.conflicts,
            tasks=list(counts.shared_tasks.items()),
            frames=_last_frames(facts),
            shown=_SHOWN,
        )
    )


@cache
def _templates() -> Environment:
    made = templates().overlay()
    made.globals |= {"format_number": format_number, "share": _share, "interval": _interval}
    return made


def _share(group: GroupCounts, level: int | None) -> float:
    """Return the share of a level among the rows of a group, in percent."""
    return 100 * group.levels.get(level, 0) / max(group.rows, 1)


def _interval(score: BaselineScore) -> str:
    return "" if score.low is None or score.high is None else f"{100 * score.low:.0f} to {100 * score.high:.0f}"


def _histogram(seconds: Sequence[float]) -> list[Bar]:
    """Return the bars of the lengths, up to the 99th percentile; what is longer is in the last one."""
    if not seconds:
        return []
    end = max(float(np.quantile(seconds, 0.99)), 1e-3)
    counts, edges = np.histogram(np.minimum(seconds, end), _BINS, (0, end))
    return [
        Bar(
            place / _BINS,
            1 / _BINS,
            count / max(counts.max(), 1),
            f"{edges[place]:.1f} to {edges[place + 1]:.1f} s: {count}",
        )
        for place, count in enumerate(counts.tolist())
    ]


def _last_frames(facts: DataFacts) -> dict[int, list[tuple[ListedRow, str]]]:
    """Return the rows of each level whose last frames are shown, and the frames as data addresses."""
    found: dict[int, list[tuple[ListedRow, str]]] = {}
    for shown in facts.last_frames:
        image = data_address("image/jpeg", shown.jpeg)
        found.setdefault(shown.row.level or 0, []).append((shown.row, image))
    return dict(sorted(found.items()))
