"""List a hundred thousand rows fast, without opening a video."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rewardlab.core.episode import FAILURE_CAUSES
from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS, ROW_BYTES, ROWS
from rewardlab.core.records import json_parser
from rewardlab.core.trial import SUCCESS_LEVEL
from rewardlab.data import dataset_folder
from rewardlab.data.contract import Problem
from rewardlab.data.roboreward_rows import (
    METADATA,
    Row,
    demonstration_of,
    instruction_of,
    label_of,
    parse_bounded_row,
    parse_row,
    require,
)
from rewardlab.data.safe_files import open_regular, require_inside, require_name, text_lines
from rewardlab.data.sources import is_demonstration, published_facts


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Look for no circles of objects meanwhile: with rows by the ten thousand that takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class StoredVerdict:
    """A judgement that a row carries: who gave it, whether the row holds, and why."""

    by: str
    holds: bool
    rationale: str


@dataclass(frozen=True)
class RowProvenance:
    """What a row says of how it was made: by which stage, and whether its judges gave reasons, or spoke against it."""

    stage: str = ""
    explained: bool = False
    doubted: bool = False


_SPLITS = ("train", "val", "test")  # in this order, before others
_MOST_DRAWS = 20_000  # rows that are looked at to draw videos: many may name the same
_PLAIN = RowProvenance()  # of a row that was not made by the data factory
_shared_provenance = lru_cache(maxsize=1_000)(RowProvenance)  # many rows have the same


class ListedRow(NamedTuple):  # made faster than a dataclass, and there are many
    """One row; `key` identifies what it claims: that this video earns this level for this instruction."""

    key: str
    line: int
    file_name: str
    instruction: str
    level: int | None
    task: str  # what groups rows of one task, whatever was made of them
    source: str  # the dataset it comes from, else the first folder of its video
    provenance: RowProvenance
    failure_cause: str = ""  # where the row states one that is known
    failure_frame: int | None = None
    embodiment: str = ""  # as the row states it, else as published of its source
    perspective: str = ""


@dataclass(frozen=True)
class RowListing:
    """The rows of one folder, and what is wrong with the lines that hold none."""

    folder: Path
    rows: tuple[ListedRow, ...]
    problems: tuple[Problem, ...]


def list_rows(data: str) -> RowListing:
    """Return the rows of a dataset; DataError where it has another layout."""
    folder = dataset_folder(data)
    if not (folder / METADATA).is_file():
        raise _other_layout(data, folder)
    return _listing(folder)


def folders_of_splits(data: str) -> dict[str, Path]:
    """Return the folder of each split of a dataset, by its name; one without a name where it is not split."""
    folder = dataset_folder(data)
    if (folder / METADATA).is_file():
        return {"": folder}
    found = {path.name: path for path in split_folders(folder)}
    if not found:
        raise _other_layout(data, folder)
    return found


def list_splits(folders: Mapping[str, Path], *, demonstrations: bool = False) -> dict[str, RowListing]:
    """Return the rows of each split; with `demonstrations`, those that state no outcome are successes."""
    return {split: _listing(folder, demonstrations=demonstrations) for split, folder in folders.items()}


def draw_videos(folders: Mapping[str, Path], most: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return split and name of up to so many videos that rows name, at random, without reading all rows.

    Where a great many rows share few videos not all of them may be found.
    """
    drawn: dict[tuple[str, str], None] = {}
    with ExitStack() as opened:
        files: dict[str, BufferedReader] = {}
        for split, folder in folders.items():
            require_inside(folder, folder / METADATA)
            files[split] = opened.enter_context(open_regular(folder / METADATA))
        places = [(split, start) for split, file in files.items() for start in _line_starts(file)]
        for place in rng.permutation(len(places))[:_MOST_DRAWS]:
            if len(drawn) == most:
                break
            split, start = places[place]
            files[split].seek(start)
            text = files[split].readline(ROW_BYTES.value + 1).decode("utf-8-sig", "surrogateescape")
            with suppress(DataError):  # a line that is no row, or names no video
                drawn[split, require_name(parse_row(text).get("file_name"), "file_name")] = None
    return list(drawn)


def _line_starts(file: BufferedReader) -> Iterator[int]:
    """Yield where lines begin; one that is longer than a row may be counts as several, and none of them is a row."""
    start, most = 0, ROW_BYTES.value + 1
    for _ in range(ROWS.value):
        if not (line := file.readline(most)):
            return
        yield start
        start += len(line)


def split_folders(folder: Path) -> list[Path]:
    """Return the splits inside a folder, the usual ones first."""
    inside = sorted(path for path in folder.iterdir() if (path / METADATA).is_file()) if folder.is_dir() else []
    order = {name: place for place, name in enumerate(_SPLITS)}
    return sorted(inside, key=lambda path: order.get(path.name, len(order)))


def _other_layout(data: str, folder: Path) -> DataError:
    splits = ", ".join(f"{data}/{path.name}" for path in split_folders(folder))
    what = f"name one of its splits: {splits}" if splits else f"`rewardlab data convert {data} FOLDER` writes it"
    return DataError(f"{folder} has no {METADATA}; only the RoboReward layout is taken here; {what}")


@paused_garbage_collection()
def _listing(folder: Path, *, demonstrations: bool = False) -> RowListing:
    rows: list[ListedRow] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    most, most_bytes, parse = ROWS.value, ROW_BYTES.value, json_parser(unique_keys=True)
    most_characters = INSTRUCTION_CHARACTERS.value  # looked up once: there are many rows
    for line, text in text_lines(folder, folder / METADATA):
        if line > most:
            problems.append(Problem(f"line {line}", f"this row and those after it are not read, {ROWS.describe()}"))
            break
        try:
            row = parse_bounded_row(text, most_bytes, parse)
            rows.append(_listed(line, row, seen, most_characters, demonstrations=demonstrations))
        except DataError as error:
            problems.append(Problem(f"line {line}", str(error)))
    return RowListing(folder, tuple(rows), tuple(problems))


def rows_on_lines(listing: RowListing, wanted: set[int]) -> Iterator[tuple[int, Row]]:
    """Yield line and whole row of these lines, in order; DataError where the file has changed since it was listed."""
    left = set(wanted)
    keys = {row.line: row.key for row in listing.rows if row.line in left}
    seen: dict[str, int] = {}
    most_characters = INSTRUCTION_CHARACTERS.value
    for line, text in text_lines(listing.folder, listing.folder / METADATA):
        if line in left:
            left.discard(line)
            row = parse_bounded_row(text)
            if _listed(line, row, seen, most_characters).key.partition("#")[0] != keys[line].partition("#")[0]:
                break
            yield line, row
        if not left:
            return
    raise DataError(f"{listing.folder / METADATA} has changed since it was read; start the command again")


def _listed(
    line: int, row: Row, seen: dict[str, int], most_characters: int, *, demonstrations: bool = False
) -> ListedRow:
    require(row, "file_name")
    name = require_name(row["file_name"], "file_name")
    instruction, level = row.get("task"), row.get("reward")
    if type(instruction) is not str or len(instruction) > most_characters or not instruction.strip():
        instruction = instruction_of(name, row)
    if type(level) is not int or not 1 <= level <= 5 or row.get("success", level == 5) is not (level == 5):
        label = label_of(name, {key: row.get(key) for key in ("reward", "success")}, 0)
        stated = label.level is not None or label.success is not None
        said = demonstration_of(name, row)
        shown = not stated and is_demonstration(said, _text(row, "source"), assumed=demonstrations)
        level = SUCCESS_LEVEL if shown else label.level
    key = blake2b(f"{name}\0{instruction}\0{level}".encode(), digest_size=8).hexdigest()
    seen[key] = times = seen.get(key, 0) + 1
    key = key if times == 1 else f"{key}#{times}"
    task = _text(row, "original_task") or _text(row, "task_id") or instruction
    folder = name.partition("/")[0] if "/" in name else ""
    source = _text(row, "source") or folder
    embodiment, perspective = published_facts(source, folder, _text(row, "camera"))
    embodiment, perspective = _text(row, "embodiment") or embodiment, _text(row, "perspective") or perspective
    about = _provenance(row)
    return ListedRow(key, line, name, instruction, level, task, source, about, *_failure(row), embodiment, perspective)


def _failure(row: Row) -> tuple[str, int | None]:
    cause, frame = row.get("failure_cause"), row.get("failure_frame")
    if cause not in FAILURE_CAUSES:
        return "", None
    return str(cause), frame if type(frame) is int and frame >= 0 else None


def _provenance(row: Row) -> RowProvenance:
    found = row.get("provenance")
    if not isinstance(found, dict):
        return _PLAIN
    explained = doubted = False
    for verdict in _verdict_objects(found):
        explained = explained or bool(_text(verdict, "rationale"))
        doubted = doubted or not verdict["verdict"]
    return _shared_provenance(_text(found, "stage"), explained, doubted)


def stored_verdicts(row: Row) -> list[StoredVerdict]:
    """Return the judgements that a row carries; what is not shaped like one is left out."""
    found = row.get("provenance")
    verdicts = _verdict_objects(found) if isinstance(found, dict) else []
    return [StoredVerdict(_text(each, "by"), bool(each["verdict"]), _text(each, "rationale")) for each in verdicts]


def _verdict_objects(provenance: Row) -> list[Row]:
    found = provenance.get("verdicts")
    given = found if isinstance(found, list) else ()
    return [each for each in given if isinstance(each, dict) and isinstance(each.get("verdict"), bool)]


def _text(row: Row, key: str) -> str:
    found = row.get(key)
    return found.strip() if isinstance(found, str) else ""
