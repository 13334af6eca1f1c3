"""The page about a dataset: findings, labels, sources, lengths, blind models, duplicates, and frames to look at."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader

from rewardlab.analysis.blind_models import BlindScore
from rewardlab.analysis.dataset_overview import (
    GroupCounts,
    group_counts,
    level_lengths,
    row_conflicts,
    shared_tasks,
    source_counts,
)
from rewardlab.analysis.format import format_number
from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write
from rewardlab.data.row_listing import ListedRow
from rewardlab.reporting.data_findings import balance_sentence, blind_sentence, copy_sentences, leak_sentences
from rewardlab.reporting.data_report import DataFacts, video_of

LEVEL_NAMES = ("No success", "Minimal progress", "Partial completion", "Near completion", "Perfect completion")
_FRAMES_PER_LEVEL = 4
_FRAME_HEIGHT = 150
_BINS = 24
_SHOWN = 40  # sources, copies and tasks that are listed one by one


@dataclass(frozen=True)
class LastFrame:
    """The last frame of a row's clip as a data address."""

    row: ListedRow
    image: str


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
    everything = group_counts("all", [row for listing in facts.listings.values() for row in listing.rows])
    splits = [group_counts(name, listing.rows) for name, listing in facts.listings.items()]
    sources, tasks = source_counts(facts.listings), shared_tasks(facts.listings)
    conflicts = row_conflicts(facts.listings)
    findings = [
        *leak_sentences(facts, list(tasks)),
        *(blind_sentence(score) for score in facts.blind if score.name != "constant"),
        balance_sentence(everything),
        *copy_sentences(facts, conflicts),
    ]
    return (
        _templates()
        .get_template("data_page.html")
        .render(
            facts=facts,
            everything=everything,
            splits=splits if len(splits) > 1 else [],
            sources=sources[:_SHOWN],
            more_sources=max(0, len(sources) - _SHOWN),
            findings=findings,
            solved=[score for score in facts.blind if score.finding == "solved"],
            problems=[problem for listing in facts.listings.values() for problem in listing.problems],
            levels=list(zip(LEVELS, LEVEL_NAMES)),
            lengths=level_lengths(facts.listings, facts.lengths),
            histogram=_histogram([length.seconds for length in facts.lengths.values()]),
            conflicts=conflicts,
            tasks=list(tasks.items()),
            frames=_last_frames(facts),
            shown=_SHOWN,
        )
    )


@cache
def _templates() -> Environment:
    made = Environment(loader=PackageLoader("rewardlab.reporting", "."), autoescape=True, trim_blocks=True)
    made.globals |= {"format_number": format_number, "share": _share, "interval": _interval}
    return made


def _share(group: GroupCounts, level: int | None) -> float:
    """Return the share of a level among the rows of a group, in percent."""
    return 100 * group.levels.get(level, 0) / max(group.rows, 1)


def _interval(score: BlindScore) -> str:
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


def _last_frames(facts: DataFacts) -> dict[int, list[LastFrame]]:
    """Return a few last frames of each level, of videos that were opened, each from another one."""
    found: dict[int, list[LastFrame]] = {}
    used: set[tuple[str, str]] = set()
    for split, listing in facts.listings.items():
        for row in listing.rows:
            video = (split, row.file_name)
            mine = found.setdefault(row.level or 0, [])
            if video in facts.lengths and video not in used and len(mine) < _FRAMES_PER_LEVEL:
                used.add(video)
                mine += _last_frame(facts, row, video)
    return {level: frames for level, frames in sorted(found.items()) if frames and level}


def _last_frame(facts: DataFacts, row: ListedRow, video: tuple[str, str]) -> list[LastFrame]:
    try:
        source = video_of(facts.listings, video)
        frame = source.read(np.array([source.count - 1]))[0]
    except DataError:
        return []
    size = max(1, round(frame.shape[1] * _FRAME_HEIGHT / frame.shape[0])), _FRAME_HEIGHT
    small = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", small[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 82])
    return [LastFrame(row, "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode())]
