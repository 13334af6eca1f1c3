"""Command `data report`: its page, with findings in sentences, bars and frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Demonstrations, Help, Seed
from rewardlab.core.storage import write_file
from rewardlab.data.row_listing import ListedRow, paused_garbage_collection
from rewardlab.data.sources import IF_DEMONSTRATIONS
from rewardlab.evaluation.display import format_number, format_percent, format_percent_interval
from rewardlab.evaluation.vision_free import BaselineScore
from rewardlab.reporting.data_report import DataFacts, GroupCounts, RowConflicts, level_lengths, measure_data
from rewardlab.reporting.page import data_address, page_path, templates

if TYPE_CHECKING:
    from jinja2 import Environment

_UNEVEN = 0.5  # fraction of one level from which labels are called uneven
_NAMES = {
    "length": "The length baseline, which sees only how long a clip is,",
    "text": "A model of the instruction alone",
}
LEVEL_NAMES = ("No success", "Minimal progress", "Partial completion", "Near completion", "Perfect completion")
_BINS = 24
_SHOWN = 40  # sources, copies and tasks that are listed one by one


def data_report(
    data: Annotated[str | Path, Help("dataset in the RoboReward layout, or a folder of its splits")],
    *,
    out: Annotated[Path | str, Help("file to write the page to")] = "data-report.html",
    videos: Annotated[int, Help("open at most N videos, drawn at random, to measure lengths")] = 200,
    near_duplicates: Annotated[bool, Help("also search these videos for near copies, which decodes them")] = False,
    demonstrations: Demonstrations = False,
    seed: Seed = 0,
) -> Path:
    """Write a page about a dataset and return its path: labels, sources, lengths, frames, duplicates, splits.

    The page also shows how well vision-free baselines do on the dataset.

    Examples:
        rewardlab data report sample
        rewardlab data report my-data --near-duplicates --out my-data.html
    """
    if videos < 1:
        raise PlanError(f"videos must be at least 1, got {videos}")
    page = page_path(out)
    with paused_garbage_collection():
        facts = measure_data(
            str(data), videos=videos, near_duplicates=near_duplicates, seed=seed, demonstrations=demonstrations
        )
        return write_file(page, render_data_page(facts))


def vision_free_sentence(score: BaselineScore) -> str:
    """Return how a vision-free baseline compares with a constant, and what that means."""
    name = _NAMES[score.name]
    if score.saved is None:
        few_tasks = "fewer than two tasks have what it needs" if score.rows else "no length is known"
        why = few_tasks if score.tasks < 2 else "all labels are the same"
        return f"{name.rstrip(',')}: no result, because {why}."
    interval = f"{format_percent(score.low)} to {format_percent(score.high)}"
    if score.finding == "blind":
        errors = f"{format_number(score.error)} against {format_number(score.constant_error)} levels of error"
        return f"{name} does no better than a constant on tasks that are new to it ({errors})."
    gone = f"{name} removes {format_percent(score.saved)} of the error of a constant ({interval})"
    if score.finding == "solved":
        return f"{gone}: it solves this dataset without the video, so a low error here does not show that a model sees."
    return f"{gone}: labels can partly be predicted without the video."


def balance_sentence(group: GroupCounts) -> str:
    """Say how even the labels are."""
    known = {level: count for level, count in group.levels.items() if level is not None}
    if not known:
        return f"No row has a level; {IF_DEMONSTRATIONS}."
    total, (level, most) = sum(known.values()), max(known.items(), key=lambda item: item[1])
    missing = [str(level) for level in range(1, 6) if not known.get(level)]
    said = f"Level {level} is {format_percent(most / total)} of {total:,} labels"
    several = len(missing) > 1
    said += f"; level{'s' * several} {' and '.join(missing)} {'are' if several else 'is'} missing" if missing else ""
    uneven = most / total >= _UNEVEN
    return f"{said}: the labels are uneven." if uneven or missing else f"{said}: the labels are balanced."


def copy_sentences(facts: DataFacts, conflicts: RowConflicts) -> list[str]:
    """Say what is there twice."""
    counts = (
        (len(conflicts.contradictions), "question", "asked twice, with different answers"),
        (conflicts.repeated, "row", "repeated word for word"),
        (sum(len(group) - 1 for group in facts.copies.groups), "video", "an exact copy of another"),
        (len(facts.near_copies or ()), "video", "a near copy of another"),
    )
    return [f"{_count(count, noun)} {what}." for count, noun, what in counts if count]


def leak_sentences(facts: DataFacts, tasks: Sequence[str]) -> list[str]:
    """Say what splits share; empty where the dataset has none."""
    if len(facts.listings) < 2:
        return []
    across = sum(len({split for split, _ in group}) > 1 for group in facts.copies.groups)
    counts = (
        (len(tasks), "task", "in more than one split"),
        (across, "video", "in more than one split, as exact copies"),
        (sum(copy.leaks for copy in facts.near_copies or ()), "video", "a near copy of one in another split"),
    )
    leaks = [f"Splits leak: {_count(count, noun)} {what}." for count, noun, what in counts if count]
    unknown = "; near copies were not searched" if facts.near_copies is None else ""
    return leaks or [f"The {len(facts.listings)} splits share no task and no video{unknown}."]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word} is" if number == 1 else f"{number:,} {word}s are"


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: where it stands and how high it is, as fractions, and its text."""

    left: float
    width: float
    height: float
    text: str


def render_data_page(facts: DataFacts) -> str:
    """Return the page as text; every string from outside is escaped."""
    counts = facts.counts
    frames: dict[int, list[tuple[ListedRow, str]]] = {}  # by level: rows, each with its last frame
    for shown in facts.last_frames:
        address = data_address("image/jpeg", shown.jpeg)
        frames.setdefault(shown.row.level or 0, []).append((shown.row, address))
    findings = [
        *leak_sentences(facts, list(counts.shared_tasks)),
        *(vision_free_sentence(score) for score in facts.baselines if score.name != "constant"),
        balance_sentence(counts.everything),
        *copy_sentences(facts, counts.conflicts),
    ]
    return (
        _templates()
        .get_template("data_page.html")
        .render(
            facts=facts,
            counts=counts,
            everything=counts.everything,
            splits=counts.splits if len(counts.splits) > 1 else [],
            sources=counts.sources[:_SHOWN],
            more_sources=max(0, len(counts.sources) - _SHOWN),
            findings=findings,
            solved=[score for score in facts.baselines if score.finding == "solved"],
            problems=[problem for listing in facts.listings.values() for problem in listing.problems],
            levels=list(zip(LEVELS, LEVEL_NAMES, strict=True)),
            lengths=level_lengths(facts.listings, facts.lengths),
            histogram=_histogram([length.seconds for length in facts.lengths.values()]),
            conflicts=counts.conflicts,
            tasks=list(counts.shared_tasks.items()),
            frames=dict(sorted(frames.items())),
            shown=_SHOWN,
        )
    )


@cache
def _templates() -> "Environment":
    made = templates().overlay()
    made.globals |= {"format_number": format_number, "percentage": _percentage, "interval": format_percent_interval}
    return made


def _percentage(group: GroupCounts, level: int | None) -> float:
    """Return how many of the rows of a group are at a level, in percent."""
    return 100 * group.levels.get(level, 0) / max(group.rows, 1)


def _histogram(seconds: Sequence[float]) -> list[Bar]:
    """Return the bars of the lengths, up to the 99th percentile; what is longer is in the last one."""
    if not seconds:
        return []
    end = max(float(np.quantile(seconds, 0.99)), 1e-3)
    counts, edges = np.histogram(np.minimum(seconds, end), _BINS, (0, end))
    texts = [f"{a:.1f} to {b:.1f} s: {count}" for (a, b), count in zip(pairwise(edges), counts, strict=True)]
    heights = (counts / max(int(counts.max()), 1)).tolist()
    return [Bar(n / _BINS, 1 / _BINS, *each) for n, each in enumerate(zip(heights, texts, strict=True))]
