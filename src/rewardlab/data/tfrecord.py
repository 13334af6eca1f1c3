"""TFRecord files and tf.train.Example without TensorFlow."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import DataError
from rewardlab.core.jit import compiled
from rewardlab.core.limits import RECORD_MB
from rewardlab.data.riegeli import VarintStream, message_fields
from rewardlab.data.safe_files import open_regular

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_MASK = 0xA282EAD8


def masked_crc(data: bytes) -> int:
    """Return the checksum as it is stored: rotated by 15 bits, plus a constant."""
    crc = int(_crc(np.frombuffer(data, np.uint8), _TABLES))
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _tables() -> NDArray[np.uint32]:
    """Return eight tables of 256 numbers: what a byte does to the checksum when 0 to 7 bytes come after it."""
    tables = np.zeros((8, 256), np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(_POLYNOMIAL), values >> 1).astype(np.uint32)
    tables[0] = values
    for number in range(1, 8):
        before = tables[number - 1]
        tables[number] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_TABLES = _tables()


@compiled
def _crc(data: NDArray[np.uint8], tables: NDArray[np.uint32]) -> np.uint32:
    crc = np.uint32(0xFFFFFFFF)
    whole = len(data) // 8 * 8
    for i in range(0, whole, 8):
        a = crc ^ (
            np.uint32(data[i])
            | np.uint32(data[i + 1]) << np.uint32(8)
            | np.uint32(data[i + 2]) << np.uint32(16)
            | np.uint32(data[i + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, a & np.uint32(0xFF)]
            ^ tables[6, a >> np.uint32(8) & np.uint32(0xFF)]
            ^ tables[5, a >> np.uint32(16) & np.uint32(0xFF)]
            ^ tables[4, a >> np.uint32(24)]
            ^ tables[3, data[i + 4]]
            ^ tables[2, data[i + 5]]
            ^ tables[1, data[i + 6]]
            ^ tables[0, data[i + 7]]
        )
    for i in range(whole, len(data)):
        crc = tables[0, (crc ^ np.uint32(data[i])) & np.uint32(0xFF)] ^ crc >> np.uint32(8)
    return crc ^ np.uint32(0xFFFFFFFF)


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


# `tf.train.Example` messages: features by name, taken out of the protocol buffer without a library.
#
# Nothing is copied until it is asked for: a feature is a view of the record.

_KINDS = {1: "bytes", 2: "float", 3: "int"}


@dataclass(frozen=True)
class Feature:
    """One feature: `kind` is bytes, float or int, or empty where the record holds nothing of it."""

    kind: str
    view: memoryview

    def each(self) -> Iterator[memoryview]:
        """Yield the byte strings as views of the record."""
        if self.kind == "bytes":
            yield from (value for field, value in _fields(self.view) if field == 1 and isinstance(value, memoryview))

    def views(self) -> list[memoryview]:
        """Return the byte strings as views of the record."""
        return list(self.each())

    def numbers(self) -> NDArray[np.float64]:
        """Return the floats or whole numbers."""
        if self.kind == "float":
            return np.concatenate([np.zeros(0), *(_floats(value) for field, value in _fields(self.view) if field == 1)])
        if self.kind == "int":
            lists = (value for field, value in _fields(self.view) if field == 1)
            return np.array([number for value in lists for number in _ints(value)], np.float64)
        return np.zeros(0)


def parse_example(data: bytes) -> dict[str, Feature]:
    """Return the features of a record by their names; DataError where it is no such message."""
    found: dict[str, Feature] = {}
    for entry in _inside(_inside_one(memoryview(data))):
        name, feature = "", Feature("", memoryview(b""))
        for field, value in _fields(entry):
            if field == 1 and isinstance(value, memoryview):
                name = bytes(value).decode("utf-8", "replace")
            elif field == 2 and isinstance(value, memoryview):
                feature = _feature(value)
        found[name] = feature
    return found


def _inside_one(message: memoryview) -> memoryview:
    """Return the features of an example: its only field."""
    inside = list(_inside(message))
    if len(inside) != 1:
        raise DataError("the record is no tf.train.Example: it has no features; expected RLDS episodes")
    return inside[0]


def _inside(message: memoryview) -> Iterator[memoryview]:
    return (value for field, value in _fields(message) if field == 1 and isinstance(value, memoryview))


def _feature(message: memoryview) -> Feature:
    for field, value in _fields(message):
        if field in _KINDS and isinstance(value, memoryview):
            return Feature(_KINDS[field], value)
    return Feature("", memoryview(b""))


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    try:
        yield from message_fields(message)
    except ValueError as error:
        raise DataError(f"the record is no tf.train.Example: {error}; expected RLDS episodes") from None


def _floats(value: memoryview | int) -> NDArray[np.float64]:
    """Return packed floats, or the single one of a list that is not packed."""
    if isinstance(value, int) or len(value) % 4:
        raise DataError("the record is no tf.train.Example: a list of floats has a wrong size")
    return np.frombuffer(value, "<f4").astype(np.float64)


def _ints(value: memoryview | int) -> Iterator[int]:
    if isinstance(value, int):
        yield value - (1 << 64) * (value >> 63)
        return
    numbers = VarintStream(value)
    while numbers.place < len(value):
        number = numbers.number()
        yield number - (1 << 64) * (number >> 63)
