"""TFRecord files and tf.train.Example without TensorFlow."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import DataError
from rewardlab.core.limits import RECORD_MB
from rewardlab.data.riegeli import VarintStream, message_fields
from rewardlab.data.safe_files import open_regular

_MASK = 0xA282EAD8
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
    with _opened(path, 0) as stream:
        while header := _read(path, stream, _HEADER):
            length = _length(path, number, header)
            yield Record(number, offset + _HEADER, _read_data(path, stream, number, length))
            offset += _HEADER + length + 4
            number += 1


def read_record(path: Path, number: int, offset: int, size: int) -> bytes:
    """Return the data of one record; a compressed file is decompressed up to it."""
    with _opened(path, offset) as stream:
        return _read_data(path, stream, number, size)


def masked_crc(data: bytes) -> int:
    """Return the CRC32C checksum as it is stored: rotated by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


@contextmanager
def _opened(path: Path, offset: int) -> Iterator[ByteStream]:
    """Open a file as a stream of records that begins so many (decompressed) bytes from its start."""
    try:
        with open_regular(path) as file:
            start = file.read(_HEADER)
            file.seek(0)
            looks_like_zlib = len(start) >= 2 and start[0] == 0x78 and int.from_bytes(start[:2], "big") % 31 == 0
            stream: ByteStream
            if start[:2] == _GZIP:
                stream = gzip.GzipFile(fileobj=file)
            elif looks_like_zlib and masked_crc(start[:8]) != int.from_bytes(start[8:12], "little"):
                stream = _Inflated(file)
            else:
                file.seek(offset)
                yield file
                return
            while offset > 0 and (skipped := _read(path, stream, min(offset, _PIECE))):
                offset -= len(skipped)
            yield stream
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the dataset again") from None


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


def _length(path: Path, number: int, header: bytes) -> int:
    """Return the length of a record's data, once checked."""
    _require_whole(path, number, header, _HEADER)
    if masked_crc(header[:8]) != int.from_bytes(header[8:], "little"):
        where = "it is no TFRecord file" if number == 0 else "the file is damaged from here on"
        raise DataError(f"{path}: the length of record {number} has a wrong checksum; {where}, copy it again")
    length = int.from_bytes(header[:8], "little")
    if length > RECORD_MB.in_bytes:
        raise DataError(f"{path}: record {number} has {length / 1e6:,.0f} MB, {RECORD_MB.describe()}")
    return length


def _read_data(path: Path, stream: ByteStream, number: int, length: int) -> bytes:
    stored = _read(path, stream, length + 4)
    _require_whole(path, number, stored, length + 4)
    data = stored[:length]
    if masked_crc(data) != int.from_bytes(stored[length:], "little"):
        raise DataError(f"{path}: the data of record {number} have a wrong checksum; copy the file again")
    return data


def _require_whole(path: Path, number: int, found: bytes, size: int) -> None:
    if len(found) < size:
        raise DataError(
            f"{path}: truncated in record {number}, {len(found)} of {size} bytes are there; copy the file again"
        )


# `tf.train.Example` messages: features by name, taken out of the protocol buffer without a library.
#
# Nothing is copied until it is asked for: a feature is a view of the record.

_KINDS = {1: "bytes", 2: "float", 3: "int"}


@dataclass(frozen=True)
class Feature:
    """One feature: `kind` is bytes, float or int, or empty where the record holds nothing of it."""

    kind: str = ""
    view: memoryview = memoryview(b"")

    def each(self) -> Iterator[memoryview]:
        """Yield the byte strings as views of the record."""
        return _submessages(self.view) if self.kind == "bytes" else iter(())

    def numbers(self) -> NDArray[np.float64]:
        """Return the floats or whole numbers."""
        values = (value for field, value in _fields(self.view) if field == 1)
        try:
            if self.kind == "float":
                return np.concatenate([np.zeros(0), *map(_floats, values)])
            if self.kind == "int":
                return np.array([number for value in values for number in _ints(value)], np.float64)
        except ValueError as error:
            raise _not_an_example(error) from None
        return np.zeros(0)


def parse_example(data: bytes) -> dict[str, Feature]:
    """Return the features of a record by their names; DataError where it is no such message."""
    features = list(_submessages(memoryview(data)))  # the only field of an example
    if len(features) != 1:
        raise _not_an_example("it has no features")
    found: dict[str, Feature] = {}
    for entry in _submessages(features[0]):
        name, feature = "", Feature()
        for field, value in _fields(entry):
            if field == 1 and isinstance(value, memoryview):
                name = bytes(value).decode("utf-8", "replace")
            elif field == 2 and isinstance(value, memoryview):
                lists = ((kind, each) for kind, each in _fields(value) if isinstance(each, memoryview))
                feature = next((Feature(_KINDS[kind], each) for kind, each in lists if kind in _KINDS), Feature())
        found[name] = feature
    return found


def _submessages(message: memoryview) -> Iterator[memoryview]:
    return (value for field, value in _fields(message) if field == 1 and isinstance(value, memoryview))


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    try:
        yield from message_fields(message)
    except ValueError as error:
        raise _not_an_example(error) from None


def _not_an_example(why: object) -> DataError:
    return DataError(f"the record is no tf.train.Example: {why}; expected RLDS episodes")


def _floats(value: memoryview | int) -> NDArray[np.float64]:
    """Return packed floats, or the single one of a list that is not packed."""
    if isinstance(value, int) or len(value) % 4:
        raise ValueError("a list of floats has a wrong size")
    return np.frombuffer(value, "<f4").astype(np.float64)


def _ints(value: memoryview | int) -> Iterator[int]:
    """Yield packed whole numbers, or the single one of a list that is not packed."""
    if isinstance(value, int):
        yield value - (1 << 64) * (value >> 63)
        return
    numbers = VarintStream(value)
    while numbers.place < len(value):
        yield from _ints(numbers.number())
