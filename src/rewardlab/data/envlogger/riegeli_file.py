"""Riegeli files: chunks of records, interrupted every 64 KiB by a block header; Brotli needs the package brotli.

The hashes of chunks are not checked: that takes a hash function which no usual package has. What a chunk promises of
its records, how many and how large, is.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from rewardlab.core.errors import DataError
from rewardlab.core.limits import RECORD_MB
from rewardlab.data.dataset_files import open_regular
from rewardlab.data.envlogger.transposed_chunk import Decompress, decode_transposed
from rewardlab.data.envlogger.varint_stream import VarintStream

SUFFIX = ".riegeli"
_SIGNATURE = bytes.fromhex("83af70d10d884a3f")
_BLOCK, _BLOCK_HEADER = 1 << 16, 24
_USABLE = _BLOCK - _BLOCK_HEADER
_SIMPLE, _TRANSPOSED, _WITHOUT_RECORDS = ord("r"), ord("t"), (ord("s"), ord("m"), ord("p"))
_BROTLI = ord("b")


@dataclass(frozen=True)
class _Chunk:
    begin: int
    size: int  # of its data
    kind: int
    records: int
    decoded: int  # bytes of all records

    @property
    def end(self) -> int:
        """Return where the next chunk begins."""
        whole = 40 + self.size
        blocks = (whole + (self.begin + _USABLE - 1) % _BLOCK) // _USABLE
        numbered = self.begin + self.records
        left = -numbered % _BLOCK
        return max(self.begin + whole + blocks * _BLOCK_HEADER, numbered + max(0, left - (_USABLE - 1)))


def read_records(path: Path, first: int = 0, count: int | None = None) -> Iterator[bytes]:
    """Yield so many records from the given one on, or all; chunks before them are not decoded."""
    number, last = 0, None if count is None else first + count
    try:
        with open_regular(path) as file:
            for chunk in _chunks(file):
                if (last is None or number < last) and number + chunk.records > first:
                    records = _decoded(file, chunk)
                    yield from records[max(first - number, 0) : None if last is None else last - number]
                number += chunk.records
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the log again") from None
    except (ValueError, IndexError, struct.error, OSError) as error:
        raise DataError(f"{path}: cannot be read as a Riegeli file ({error}); copy the file again") from None


def _chunks(file: BinaryIO) -> Iterator[_Chunk]:
    end, begin = file.seek(0, 2), 0
    file.seek(0)
    if file.read(8) != _SIGNATURE:
        raise ValueError("it does not begin as one")
    while begin < end:
        _, size, _, kind, decoded = struct.unpack("<5Q", _read(file, begin, 40))
        chunk = _Chunk(begin, size, kind & 0xFF, kind >> 8, decoded)
        if chunk.end > end:
            raise ValueError(f"truncated: a chunk of {size:,} bytes begins at {begin:,} of {end:,}")
        yield chunk
        begin = chunk.end


def _decoded(file: BinaryIO, chunk: _Chunk) -> list[bytes]:
    if chunk.kind in _WITHOUT_RECORDS:
        return []
    for size in (chunk.size, chunk.decoded):
        if size > RECORD_MB.in_bytes:
            raise ValueError(f"a chunk of {size / 1e6:,.0f} MB, {RECORD_MB.describe()}")
    data = _read(file, chunk.begin, 40 + chunk.size)[40:]
    compression, rest = data[0], data[1:]
    decompress: Decompress = partial(_decompressed, compression)
    if chunk.kind == _TRANSPOSED:
        return decode_transposed(rest, chunk.records, chunk.decoded, decompress)
    if chunk.kind != _SIMPLE:
        raise ValueError(f"a chunk of the unknown kind {chunk.kind}")
    stream = VarintStream(rest)
    sizes = VarintStream(decompress(stream.read(stream.number())))
    values = VarintStream(decompress(stream.rest()))
    return [values.read(sizes.number()) for _ in range(sizes.counted(chunk.records))]


def _read(file: BinaryIO, place: int, size: int) -> bytes:
    """Return so many bytes from a place on, without the block headers between them."""
    pieces = []
    while size > 0:
        place += _BLOCK_HEADER * (place % _BLOCK == 0)
        file.seek(place)
        piece = file.read(min(size, _BLOCK - place % _BLOCK))
        if not piece:
            raise ValueError(f"truncated at byte {place:,}")
        pieces.append(piece)
        place, size = place + len(piece), size - len(piece)
    return b"".join(pieces)


def _decompressed(compression: int, piece: bytes) -> bytes:
    """Return the bytes that a piece stands for, of which it says how many there are."""
    if compression == 0 or not piece:
        return piece
    if compression != _BROTLI:
        raise ValueError(f"compressed with {chr(compression)!r}; only Brotli is read")
    try:
        import brotli
    except ImportError:
        raise DataError("this log needs the package brotli: pip install 'rewardlab[envlogger]'") from None
    stream = VarintStream(piece)
    size = stream.number()
    if size > RECORD_MB.in_bytes:
        raise ValueError(f"{size / 1e6:,.0f} MB of records, {RECORD_MB.describe()}")
    try:
        found: bytes = brotli.Decompressor().process(stream.rest(), output_buffer_limit=size + 1)
    except brotli.error as error:
        raise ValueError(str(error)) from None
    if len(found) != size:
        raise ValueError(f"{size:,} bytes are promised, {len(found):,} came out of Brotli")
    return found
