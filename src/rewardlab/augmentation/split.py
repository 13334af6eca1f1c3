"""The stage split: no task and no video in two parts; and the balance of the result."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from rewardlab.augmentation.rows import DatasetRow
from rewardlab.augmentation.rules import source_of
from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.seeding import rng_for
from rewardlab.data.duplicates import OrderedMap, find_duplicates
from rewardlab.data.task_split import split_by_shares, text_key

Splits = dict[str, list[DatasetRow]]


@dataclass(frozen=True)
class Leak:
    """Two source episodes in different splits that share a task description or a video."""

    what: str  # "task", "video" (the same file) or "near video"
    splits: tuple[str, str]
    episodes: tuple[str, str]


def sample_sources(rows: Sequence[DatasetRow], per_source: int, seed: int) -> list[DatasetRow]:
    """Return the rows of so many episodes of each source at most, drawn by the seed; 0 takes all."""
    groups: dict[str, dict[str, None]] = {}
    for row in rows:
        groups.setdefault(source_group(row), {})[_source(row)] = None
    kept: set[str] = set()
    for name, members in groups.items():
        ids = sorted(members)
        if 0 < per_source < len(ids):
            ids = [ids[i] for i in rng_for(seed, "per source", name).choice(len(ids), per_source, replace=False)]
        kept.update(ids)
    return [row for row in rows if _source(row) in kept]


def source_group(row: DatasetRow) -> str:
    """Return the dataset that a row's episode is from: its subset, else its source."""
    return source_of(row.episode) or "unnamed"


def split_rows(
    rows: Sequence[DatasetRow], shares: Mapping[str, float], seed: int, folder: Path, ordered_map: OrderedMap
) -> Splits:
    """Return the rows of each split; what would leak from one into another is put into one, until nothing leaks."""
    sources = _first_rows(rows)
    copies = find_duplicates(sources, None, folder, ordered_map)["copies"]
    together = [*_same_words(rows), *((copy["episode"], copy["other"]) for copy in copies)]
    while True:
        chosen = split_by_shares(sources, shares, together, seed)
        parts: Splits = {name: [row for row in rows if chosen[_source(row)] == name] for name in shares}
        leaks = find_leaks(parts, folder, ordered_map)
        if not leaks:
            break
        together += [leak.episodes for leak in leaks]
    return parts


def find_leaks(parts: Mapping[str, Sequence[DatasetRow]], folder: Path, ordered_map: OrderedMap) -> list[Leak]:
    """Return what splits share: task descriptions, video files of any row, and near copies of source videos."""
    found: list[Leak] = []
    for splits in combinations(parts, 2):
        found += _shared("task", splits, parts, _words)
        found += _shared("video", splits, parts, lambda row: {row.episode.clip.source.digest})
        first, second = (_first_rows(parts[name]) for name in splits)
        copies = find_duplicates(first, second, folder, ordered_map)["copies"]
        across = [copy for copy in copies if copy["where"] == "training"]
        found += [Leak("near video", splits, (copy["episode"], copy["other"])) for copy in across]
    return found


def _shared(
    what: str,
    splits: tuple[str, str],
    parts: Mapping[str, Sequence[DatasetRow]],
    keys: Callable[[DatasetRow], set[str]],
) -> Iterator[Leak]:
    """Yield one leak for each key that rows of both splits have."""
    known = {key: _source(row) for row in parts[splits[0]] for key in keys(row)}
    reported: set[str] = set()
    for row in parts[splits[1]]:
        for key in (keys(row) & known.keys()) - reported:
            reported.add(key)
            yield Leak(what, splits, (known[key], _source(row)))


def _first_rows(rows: Iterable[DatasetRow]) -> list[Episode]:
    """Return each source episode, with its original task: as it was recorded, else the first row made of it."""
    found: dict[str, DatasetRow] = {}
    for row in rows:
        if row.is_source or _source(row) not in found:
            found[_source(row)] = row
    return [
        replace(row.episode, id=source, provenance=replace(row.episode.provenance, task=row.original_task))
        for source, row in found.items()
    ]


def _source(row: DatasetRow) -> str:
    return str(row.provenance["source_episode"])


def _words(row: DatasetRow) -> set[str]:
    """Return every description of the task of a row's source: original, rewritten, and the id where there is one."""
    rewritten = {str(row.row["task"])} if row.is_source else set()
    return {text_key(text) for text in {row.original_task, row.episode.provenance.task, *rewritten} if text}


def _same_words(rows: Sequence[DatasetRow]) -> Iterator[tuple[str, str]]:
    """Yield pairs of source episodes that share a description."""
    first: dict[str, str] = {}
    for row in rows:
        for words in _words(row):
            other = first.setdefault(words, _source(row))
            if other != _source(row):
                yield other, _source(row)


@dataclass(frozen=True)
class Balance:
    """How many rows there are of each kind."""

    rows: int
    levels: dict[str, int]
    sources: dict[str, int]
    stages: dict[str, int]
    tasks: int


def balance_of(rows: Sequence[DatasetRow]) -> Balance:
    """Count the rows."""
    levels = Counter(row.row["reward"] for row in rows if "reward" in row.row)
    return Balance(
        rows=len(rows),
        levels={str(level): levels[level] for level in LEVELS},
        sources=dict(sorted(Counter(source_group(row) for row in rows).items())),
        stages=dict(sorted(Counter(str(row.provenance["stage"]) for row in rows).items())),
        tasks=len({row.original_task for row in rows}),
    )
