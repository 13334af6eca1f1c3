"""What a dataset holds: labels, sources, lengths, rows that contradict each other, and tasks that splits share."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rewardlab.core.episode import LEVELS
from rewardlab.data.exact_copies import VideoName
from rewardlab.data.row_listing import ListedRow, RowListing

NO_SOURCE = "no source stated"


@dataclass(frozen=True)
class VideoLength:
    """How long a video is."""

    frames: int
    seconds: float


@dataclass(frozen=True)
class GroupCounts:
    """A source or a split: its rows, tasks and videos, and how many rows are at each level; None is no level."""

    name: str
    rows: int
    tasks: int
    videos: int
    levels: Mapping[int | None, int]


@dataclass(frozen=True)
class LevelLengths:
    """The clips at one level: how many were measured, and the quartiles of their seconds."""

    level: int
    clips: int
    quartiles: tuple[float, float, float]


@dataclass(frozen=True)
class RowConflicts:
    """Rows that say the same twice, and questions (a video and an instruction) that are answered differently."""

    repeated: int
    contradictions: tuple[tuple[str, str, tuple[int | None, ...]], ...]  # video, instruction, levels


@dataclass(frozen=True)
class RowCounts:
    """What is counted of rows by their text alone."""

    everything: GroupCounts
    splits: tuple[GroupCounts, ...]
    sources: tuple[GroupCounts, ...]  # the largest first
    shared_tasks: Mapping[str, tuple[str, ...]]  # tasks in more than one split, and in which
    conflicts: RowConflicts


def count_rows(listings: Mapping[str, RowListing]) -> RowCounts:
    """Count the rows of all splits."""
    return RowCounts(
        group_counts("all", [row for listing in listings.values() for row in listing.rows]),
        tuple(group_counts(name, listing.rows) for name, listing in listings.items()),
        tuple(source_counts(listings)),
        shared_tasks(listings),
        row_conflicts(listings),
    )


def task_name(row: ListedRow) -> str:
    """Return what tells tasks apart: the words of the task, whatever their case, spaces and full stop."""
    return _same_words(row.task)


@lru_cache(maxsize=100_000)
def _same_words(task: str) -> str:
    return " ".join(task.casefold().split()).rstrip(".!")


def group_counts(name: str, rows: Sequence[ListedRow]) -> GroupCounts:
    """Return the counts of some rows."""
    tasks, videos = {_same_words(task) for task in {row.task for row in rows}}, {row.file_name for row in rows}
    return GroupCounts(name, len(rows), len(tasks), len(videos), Counter([row.level for row in rows]))


def source_counts(listings: Mapping[str, RowListing]) -> list[GroupCounts]:
    """Return the counts of each source, the largest first."""
    groups: dict[str, list[ListedRow]] = defaultdict(list)
    for listing in listings.values():
        for row in listing.rows:
            groups[row.source or NO_SOURCE].append(row)
    return sorted((group_counts(name, rows) for name, rows in groups.items()), key=lambda group: -group.rows)


def level_lengths(
    listings: Mapping[str, RowListing], lengths: Mapping[VideoName, VideoLength]
) -> tuple[LevelLengths, ...]:
    """Return how long the clips at each level are."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for split, listing in listings.items():
        for row in listing.rows:
            if row.level is not None and (split, row.file_name) in lengths:
                seconds[row.level].append(lengths[split, row.file_name].seconds)
    return tuple(
        LevelLengths(level, len(found), tuple(np.quantile(found, (0.25, 0.5, 0.75)).tolist()))
        for level in LEVELS
        if (found := seconds[level])
    )


def row_conflicts(listings: Mapping[str, RowListing]) -> RowConflicts:
    """Return what rows say twice, and where they contradict each other."""
    said = [
        (split, row.file_name, row.instruction, row.level)
        for split, listing in listings.items()
        for row in listing.rows
    ]
    answers = dict.fromkeys(said)  # each once, in order
    questions = Counter([answer[:3] for answer in answers])
    given: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for split, name, instruction, level in answers if len(questions) < len(answers) else ():
        if questions[split, name, instruction] > 1:
            given[f"{split}/{name}".lstrip("/"), instruction].append(level)
    contradictions = tuple((*question, tuple(levels)) for question, levels in given.items())
    return RowConflicts(len(said) - len(answers), contradictions)


def shared_tasks(listings: Mapping[str, RowListing]) -> dict[str, tuple[str, ...]]:
    """Return the tasks that are in more than one split, each with these splits."""
    splits: dict[str, dict[str, None]] = defaultdict(dict)
    for split, listing in listings.items():
        for task in dict.fromkeys(row.task for row in listing.rows):
            splits[_same_words(task)][split] = None
    return {task: tuple(names) for task, names in splits.items() if len(names) > 1}
