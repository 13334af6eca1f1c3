"""What is odd in rows of metadata and stops no run: misspelt keys, rows twice, labels missing, videos left out."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rewardlab.core.seeding import digest
from rewardlab.data.contract import Problem
from rewardlab.data.dataset_files import shown, video_names
from rewardlab.data.roboreward_row import KEYS, Row, misnamed

_NAMES_SHOWN = 5

Numbered = tuple[int, Row]


def notes_of_rows(folder: Path, numbered: Iterator[Numbered]) -> tuple[Problem, ...]:
    """Return what is odd in the rows of a folder."""
    rows = [(number, {key: _slim(value) for key, value in row.items()}) for number, row in numbered]
    found = [*_misnamed(rows), *_repeated(rows), *_unlabelled(rows), *_unread(rows), *_left_out(folder, rows)]
    return tuple(found)


def _slim(value: object) -> object:
    """Return a value that may be kept for every row: a list, such as progress, by what identifies it."""
    return digest(repr(value)) if isinstance(value, list | dict) else value


def _misnamed(rows: Sequence[Numbered]) -> Iterator[Problem]:
    found: dict[tuple[str, str], list[int]] = {}
    for number, row in rows:
        for pair in misnamed(row).items():
            found.setdefault(pair, []).append(number)
    for (key, meant), numbers in found.items():
        yield Problem(_lines(numbers), f"{shown(key)} is not read; did you mean {meant}?")


def _repeated(rows: Sequence[Numbered]) -> Iterator[Problem]:
    first: dict[tuple[str, str], Numbered] = {}
    for number, row in rows:
        key = str(row.get("file_name")), str(row.get("task"))
        earlier, before = first.setdefault(key, (number, row))
        if earlier == number:
            continue
        if row == before:
            yield Problem(f"line {number}", f"the same row as line {earlier}: the episode counts twice")
        elif any(row.get(label) != before.get(label) for label in ("reward", "success")):
            yield Problem(f"line {number}", f"the video and task of line {earlier}, with another reward or success")


def _unlabelled(rows: Sequence[Numbered]) -> Iterator[Problem]:
    labels = ("reward", "success", "progress")
    without = [number for number, row in rows if all(row.get(label) is None for label in labels)]
    if without:
        yield Problem(_lines(without), "neither reward (1 to 5) nor success (true or false): nothing is measured")


def _unread(rows: Sequence[Numbered]) -> Iterator[Problem]:
    unknown = {key for _, row in rows for key in row if key not in KEYS and key not in misnamed(row)}
    if unknown:
        yield Problem("keys that are not read", _few(sorted(unknown)))


def _left_out(folder: Path, rows: Sequence[Numbered]) -> Iterator[Problem]:
    named = {str(row.get("file_name")) for _, row in rows}
    missed = [name for name in video_names(folder) if name not in named]
    if missed:
        yield Problem(f"{len(missed)} videos that no row mentions", _few(missed))


def _lines(numbers: Sequence[int]) -> str:
    return f"line{'s' * (len(numbers) > 1)} {_few([str(number) for number in numbers])}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" * (len(names) > _NAMES_SHOWN))
