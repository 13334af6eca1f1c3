"""TFRecord files: length, checksum of the length, data, checksum of the data; plain, or the whole file compressed."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from rewardlab.core.errors import DataError
from rewardlab.core.limits import RECORD_MB
from rewardlab.data.dataset_files import open_regular
from rewardlab.data.rlds.crc32c import masked_crc

_HEADER = 12  # bytes: length, checksum
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20


class ByteStream(Protocol):
    """What is read of a file: bytes, one piece after the other."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, fewer only at the end."""


@dataclass(frozen=True)
class Record:
    """One record: its number in the file, where its data begin once decompressed, and the data."""

    number: int
    offset: int
    data: bytes


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, checksums checked; DataError where it is truncated, damaged or no TFRecord file."""
    offset = number = 0
    with _opened(path) as (stream, _):
        while header := _read(path, stream, _HEADER):
            length = _length(path, number, header)
            data = _read(path, stream, length + 4)
            if len(data) < length + 4:
                raise DataError(_cut(path, number, length + 4, len(data)))
            _check(path, number, data[:length], data[length:])
            yield Record(number, offset + _HEADER, data[:length])
            offset += _HEADER + length + 4
            number += 1


def read_record(path: Path, number: int, offset: int, size: int) -> bytes:
    """Return the data of one record; a compressed file is decompressed up to it."""
    with _opened(path) as (stream, plain):
        if plain is not None:
            plain.seek(offset)
        else:
            _skip(path, stream, offset)
        data = _read(path, stream, size + 4)
    if len(data) < size + 4:
        raise DataError(_cut(path, number, size + 4, len(data)))
    _check(path, number, data[:size], data[size:])
    return data[:size]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[ByteStream, BinaryIO | None]]:
    """Open a file as a stream of records; the second is the file itself where it is not compressed."""
    try:
        with open_regular(path) as file:
            start = file.read(_HEADER)
            file.seek(0)
            if start[:2] == _GZIP:
                with gzip.GzipFile(fileobj=file) as stream:
                    yield stream, None
            elif _is_zlib(start):
                yield _Inflated(file), None
            else:
                yield file, file
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the dataset again") from None


def _is_zlib(start: bytes) -> bool:
    """Tell whether a file begins as zlib streams do, and not with the length of a record and its checksum."""
    looks_so = len(start) >= 2 and start[0] == 0x78 and int.from_bytes(start[:2], "big") % 31 == 0
    return looks_so and masked_crc(start[:8]) != int.from_bytes(start[8:12], "little")


@dataclass
class _Inflated:
    """A zlib stream, decompressed no further than is asked for."""

    file: BinaryIO

    def __post_init__(self) -> None:
        self.inflater = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        """Return so many decompressed bytes, fewer only at the end."""
        found = bytearray()
        while len(found) < size and not self.inflater.eof:
            piece = self.inflater.unconsumed_tail or self.file.read(_PIECE)
            if not piece:
                raise EOFError("the compressed stream ends too early")
            found += self.inflater.decompress(piece, size - len(found))
        return bytes(found)


def _read(path: Path, stream: ByteStream, size: int) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); copy the file again") from None


def _skip(path: Path, stream: ByteStream, size: int) -> None:
    while size > 0:
        data = _read(path, stream, min(size, _PIECE))
        if not data:
            return
        size -= len(data)


def _length(path: Path, number: int, header: bytes) -> int:
    if len(header) < _HEADER:
        raise DataError(_cut(path, number, _HEADER, len(header)))
    if masked_crc(header[:8]) != int.from_bytes(header[8:], "little"):
        where = "it is no TFRecord file" if number == 0 else "the file is damaged from here on"
        raise DataError(f"{path}: the length of record {number} has a wrong checksum; {where}, copy it again")
    length = int.from_bytes(header[:8], "little")
    if length > RECORD_MB.in_bytes:
        raise DataError(f"{path}: record {number} has {length / 1e6:,.0f} MB, {RECORD_MB.describe()}")
    return length


def _check(path: Path, number: int, data: bytes, stored: bytes) -> None:
    if masked_crc(data) != int.from_bytes(stored, "little"):
        raise DataError(f"{path}: the data of record {number} have a wrong checksum; copy the file again")


def _cut(path: Path, number: int, expected: int, found: int) -> str:
    return f"{path}: truncated in record {number}, {found} of {expected} bytes are there; copy the file again"
