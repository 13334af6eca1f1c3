"""Riegeli files: blocks, chunks, the transposed kind.

The hashes of chunks are not checked: that takes a hash function which no usual package has. What a chunk promises of
its records, how many and how large, is.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from rewardlab.core.errors import DataError, require_packages
from rewardlab.core.limits import RECORD_MB
from rewardlab.data.safe_files import open_regular

_VARINT, _FIXED64, _SIZED, _FIXED32, _END_OF_SUBMESSAGE = 0, 1, 2, 5, 6  # wire types, and one that is none
_LONGEST_NUMBER = 10  # bytes

Bytes = TypeVar("Bytes", bytes, memoryview)


class VarintStream(Generic[Bytes]):
    """A position in bytes, or in a view of some; ValueError where more is asked for than is there."""

    def __init__(self, data: Bytes) -> None:
        self.data: Bytes = data
        self.place = 0

    def read(self, size: int) -> Bytes:
        """Return so many bytes."""
        end = self.place + size
        if end > len(self.data):
            raise ValueError(f"{size:,} bytes are expected, {len(self.data) - self.place:,} are left")
        found = self.data[self.place : end]
        self.place = end
        return found

    def rest(self) -> Bytes:
        """Return all bytes that are left."""
        return self.read(len(self.data) - self.place)

    def number(self) -> int:
        """Return a number of variable length."""
        value, found = 0, self.data[self.place : self.place + _LONGEST_NUMBER]
        for shift, byte in enumerate(found):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                self.place += shift + 1
                return value
        raise ValueError("a number does not end" if len(found) == _LONGEST_NUMBER else "truncated inside a number")

    def counted(self, count: int) -> int:
        """Return a count of things to read, each of which takes a byte at least."""
        if count > len(self.data) - self.place:
            raise ValueError(f"{count:,} things are promised, {len(self.data) - self.place:,} bytes are left")
        return count


def message_fields(message: Bytes) -> Iterator[tuple[int, Bytes | int]]:
    """Yield number and content of the fields of a protocol buffer; a number of variable length comes as such."""
    stream = VarintStream(message)
    while stream.place < len(message):
        tag = stream.number()
        wire = tag & 7
        if wire == _VARINT:
            yield tag >> 3, stream.number()
        elif wire in (_FIXED64, _SIZED, _FIXED32):
            yield tag >> 3, stream.read({_FIXED64: 8, _FIXED32: 4}.get(wire) or stream.number())
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")


def varint_bytes(value: int) -> bytes:
    """Return a number in variable length."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


# Transposed chunks of Riegeli files: records taken apart field by field, and put together again by a state machine.
#
# A node of the machine writes one field; what it writes comes before what is there, so that the length of a message is
# known when its start is reached. The layout is that of the decoder of the riegeli library.

_NO_OP, _NON_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE = -1, -2, -3, -4
_SPECIAL = (_NO_OP, _NON_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE)  # what stands for a tag below the first
_WITH_VALUES = (_NON_PROTO, _FIXED32, _FIXED64, _SIZED)
_FIRST_TAG = 8
_FIRST_INLINE = 10  # subtypes of numbers: below it, how many bytes the buffer has; from it on, the number itself
_MOST_STEPS = 20_000_000  # of one chunk, which is 1 MB by default
_EMPTY = VarintStream(b"")

ByteStream = VarintStream[bytes]
Decompress = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Node:
    """One field to write: its kind, its tag as bytes, where its values are, and the node that follows."""

    kind: int
    tag: bytes
    subtype: int
    values: ByteStream
    next: int
    is_implicit: bool


def decode_transposed(data: bytes, records: int, size: int, decompress: Decompress) -> list[bytes]:
    """Return the records of a chunk; ValueError where they are not as many and as large as the chunk says."""
    source = VarintStream(data)
    header = VarintStream(decompress(source.read(source.number())))
    buckets, count = header.counted(header.number()), header.counted(header.number())
    bucket_sizes = [header.number() for _ in range(buckets)]
    buffer_sizes = [header.number() for _ in range(count)]
    whole = VarintStream(b"".join(decompress(source.read(size)) for size in bucket_sizes))
    buffers = [VarintStream(whole.read(size)) for size in buffer_sizes]
    nodes = _nodes(header, buffers)
    writer = _BackwardWriter(size, buffers[-1] if buffers else _EMPTY)
    _run(nodes, header.number(), decompress(source.rest()), writer)
    return writer.records(records)


def _nodes(header: ByteStream, buffers: Sequence[ByteStream]) -> list[Node]:
    count = header.counted(header.number())
    tags = [header.number() for _ in range(count)]
    following = [header.number() for _ in range(count)]
    subtypes = iter(header.read(sum(tag >= _FIRST_TAG and tag & 7 == _VARINT for tag in tags)))
    nodes = []
    for tag, after in zip(tags, following, strict=True):
        kind = tag & 7 if tag >= _FIRST_TAG else _SPECIAL[tag]
        subtype = next(subtypes) if kind == _VARINT else 0
        has_values = kind in _WITH_VALUES or (kind == _VARINT and subtype < _FIRST_INLINE)
        values = buffers[header.number()] if has_values else _EMPTY
        written = varint_bytes(tag - 4 if kind == _END_OF_SUBMESSAGE else tag)
        nodes.append(Node(kind, written, subtype, values, after % count, after >= count))
    return nodes


def _run(nodes: Sequence[Node], start: int, transitions: bytes, writer: "_BackwardWriter") -> None:
    """Walk from node to node: a byte says how far to go on and how many nodes follow without a byte of their own."""
    place, steps = start, int(nodes[start].is_implicit)
    following = iter(transitions)
    for _ in range(min(_MOST_STEPS, 4 * (writer.most + len(transitions) + len(nodes)))):
        writer.write(nodes[place])
        place = nodes[place].next
        if steps:
            steps -= not nodes[place].is_implicit
            continue
        byte = next(following, None)
        if byte is None:
            return
        place += byte >> 2
        steps = (byte & 3) + nodes[place].is_implicit
    raise ValueError("its state machine does not end")


class _BackwardWriter:
    """The records of a chunk, written from the end to the start: every piece comes before those that are there."""

    def __init__(self, size: int, lengths: ByteStream) -> None:
        self.most, self.lengths = size, lengths
        self.pieces: list[bytes] = []
        self.size = 0
        self.ends: list[int] = []  # of records, as sizes written so far
        self.open: list[tuple[int, bytes]] = []  # messages whose start is not reached: size at their end, and their tag

    def write(self, node: Node) -> None:
        """Write the field of a node."""
        if node.kind == _END_OF_SUBMESSAGE:
            self.open.append((self.size, node.tag))
        elif node.kind == _START_OF_SUBMESSAGE:
            end, tag = self.open.pop()
            self._put(tag + varint_bytes(self.size - end))
        elif node.kind in (_START_OF_MESSAGE, _NON_PROTO):
            if node.kind == _NON_PROTO:
                self._put(node.values.read(self.lengths.number()))
            self.ends.append(self.size)
        elif node.kind != _NO_OP:
            self._put(node.tag + _value(node))

    def records(self, count: int) -> list[bytes]:
        """Return what was written; ValueError where it is not as much as was promised."""
        if len(self.ends) != count or self.size != self.most or self.open:
            found = f"{len(self.ends):,} records of {self.size:,} bytes"
            raise ValueError(f"{count:,} records of {self.most:,} bytes are expected, got {found}")
        whole = b"".join(reversed(self.pieces))
        starts = [self.size - end for end in reversed(self.ends)]
        return [whole[start:end] for start, end in pairwise([*starts, self.size])]

    def _put(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.most:
            raise ValueError(f"more than the {self.most:,} bytes of records that are promised")
        self.pieces.append(piece)


def _value(node: Node) -> bytes:
    """Return the value of a field as it stands in a message; groups have none."""
    if node.kind == _VARINT:
        if node.subtype >= _FIRST_INLINE:
            return bytes([node.subtype - _FIRST_INLINE])
        raw = node.values.read(node.subtype + 1)  # all but the last byte lack the mark that more follow
        return bytes([byte | 0x80 for byte in raw[:-1]]) + raw[-1:]
    if node.kind == _SIZED:
        size = node.values.number()
        return varint_bytes(size) + node.values.read(size)
    return node.values.read({_FIXED32: 4, _FIXED64: 8}.get(node.kind, 0))


# The file: chunks of records, with a header at the start of every block of 64 kB, wherever in a chunk that is.

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
    require_packages("this log", "brotli", extra="envlogger", error=DataError)
    import brotli

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
