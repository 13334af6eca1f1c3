"""Videos that are copies of each other byte for byte: only files of the same size are opened."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewardlab.core.errors import DataError
from rewardlab.data.dataset_files import digest_of_file, path_inside

_MOST_SAMPLED = 20_000  # files of equal size that are opened
_SAMPLE_BYTES = 512

VideoName = tuple[str, str]  # split, and the name of the file in it


@dataclass(frozen=True)
class ExactCopies:
    """Groups of videos with the same bytes, and how many files of equal size were too many to be opened."""

    groups: tuple[tuple[VideoName, ...], ...]
    unread: int


def exact_copies(folders: Mapping[str, Path], videos: Sequence[VideoName]) -> ExactCopies:
    """Return the groups of two videos or more that hold the same bytes; a file that cannot be read is in none."""
    roots = {split: f"{os.fspath(folder)}/" for split, folder in folders.items()}
    alike = _of_equal_size([roots[split] + name for split, name in videos], videos)
    samples: dict[tuple[int, bytes], list[VideoName]] = defaultdict(list)
    for size, (split, name) in alike[:_MOST_SAMPLED]:
        with suppress(OSError):
            samples[size, _sample(roots[split] + name, size)].append((split, name))
    contents: dict[str, list[VideoName]] = defaultdict(list)
    for split, name in (video for group in samples.values() if len(group) > 1 for video in group):
        with suppress(DataError):
            contents[digest_of_file(path_inside(folders[split], name, "file_name"))].append((split, name))
    groups = tuple(tuple(group) for group in contents.values() if len(group) > 1)
    return ExactCopies(groups, max(0, len(alike) - _MOST_SAMPLED))


def _of_equal_size(paths: Sequence[str], videos: Sequence[VideoName]) -> list[tuple[int, VideoName]]:
    """Return the videos whose size another one has too, with it, those of one size together."""
    sizes = np.fromiter(map(_size, paths), np.int64, len(paths))
    _, first, kind, count = np.unique(sizes, return_index=True, return_inverse=True, return_counts=True)
    shared = np.flatnonzero((count[kind] > 1) & (sizes >= 0))
    ordered = shared[np.lexsort((shared, first[kind[shared]]))]
    return [(size, videos[place]) for place, size in zip(ordered.tolist(), sizes[ordered].tolist())]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _sample(path: str, size: int) -> bytes:
    """Return a few bytes from inside a file: most that differ do so there, and need not be read to the end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe blocks nobody
    try:
        return os.pread(handle, _SAMPLE_BYTES, size // 4)
    finally:
        os.close(handle)
