"""The tables of an mp4 before a demuxer believes them: a few bytes may promise billions of frames.

A demuxer allocates some 70 bytes for each sample that a table promises, before it looks for the first: a file of 5 KB
was seen to reach 4.9 GB. The tables are found by their four letters anywhere outside the media data, because a demuxer
also finds them in places where they do not belong.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from rewardlab.core.limits import CLIP_FRAMES

_TABLE = re.compile(rb"stsz|stz2|trun|stts|ctts|elst|cmov")
_HEADER_BYTES = 64_000_000  # all of a file but its media data
_SOUND_SAMPLES = 50  # samples of all tracks together, sound among them, for each frame that is allowed


def require_sane_tables(file: BinaryIO) -> None:
    """Raise ValueError, in a few words, where an mp4 promises more samples than any sound clip has."""
    samples, edits, most = 0, 1, CLIP_FRAMES.value * _SOUND_SAMPLES
    for header in _headers(file):
        for match in _TABLE.finditer(header):
            kind, promised = match.group(), _promised(header, match.start())
            if kind == b"cmov":
                raise ValueError("its tables are compressed")
            if kind == b"elst":
                edits = max(edits, promised)
            elif kind in (b"stts", b"ctts"):
                samples = max(samples, promised)
            else:
                samples += promised
    if samples * edits > most:
        raise ValueError(f"its tables promise {samples * edits:,} samples; more than {CLIP_FRAMES.value:,} frames need")


def _headers(file: BinaryIO) -> Iterator[bytes]:
    """Yield everything but the media data, in pieces that belong together."""
    size = file.seek(0, 2)
    place = held = 0
    while place < size:
        length, kind = _box(file, place, size)
        if kind != b"mdat":
            held += length
            if held > _HEADER_BYTES:
                raise ValueError(f"its tables are larger than {_HEADER_BYTES:,} bytes")
            file.seek(place)
            yield file.read(length)
        place += length
    file.seek(0)


def _box(file: BinaryIO, place: int, size: int) -> tuple[int, bytes]:
    """Return length and kind of the box at a place; where its length makes no sense it is all that is left."""
    file.seek(place)
    head = file.read(16)
    length = int.from_bytes(head[:4], "big")
    if length == 1:
        length = int.from_bytes(head[8:16], "big")
    return (length if 8 <= length <= size - place else size - place), head[4:8]


def _promised(header: bytes, place: int) -> int:
    """Return how many samples or entries the table at a place promises."""
    kind = header[place : place + 4]
    if kind in (b"stsz", b"stz2"):
        return int.from_bytes(header[place + 12 : place + 16], "big")
    entries = int.from_bytes(header[place + 8 : place + 12], "big")
    if kind not in (b"stts", b"ctts"):
        return entries
    table = header[place + 12 : place + 12 + 8 * entries]
    counts = np.frombuffer(table, ">u4", len(table) // 8 * 2)[::2]
    return int(counts.sum(dtype=np.uint64))
