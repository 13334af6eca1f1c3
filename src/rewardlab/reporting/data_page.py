"""The page about a dataset: findings, labels, sources, lengths, blind models, duplicates, and frames to look at."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader

from rewardlab.analysis.blind_models import BlindScore
from rewardlab.analysis.dataset_overview import (
    GroupCounts,
    level_lengths,
)
from rewardlab.analysis.format import format_number
from rewardlab.core.episode import LEVELS
from rewardlab.core.run import atomic_write
from rewardlab.data.row_listing import ListedRow
from rewardlab.reporting.data_findings import balance_sentence, blind_sentence, copy_sentences, leak_sentences
from rewardlab.reporting.data_report import DataFacts

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
        *(blind_sentence(score) for score in facts.blind if score.name != "constant"),
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


def _last_frames(facts: DataFacts) -> dict[int, list[tuple[ListedRow, str]]]:
    """Return the rows of each level whose last frames are shown, and the frames as data addresses."""
    found: dict[int, list[tuple[ListedRow, str]]] = {}
    for shown in facts.last_frames:
        image = "data:image/jpeg;base64," + base64.b64encode(shown.jpeg).decode()
        found.setdefault(shown.row.level or 0, []).append((shown.row, image))
    return dict(sorted(found.items()))
