"""Transposed chunks of Riegeli files: records taken apart field by field, and put together again by a state machine.

A node of the machine writes one field; what it writes comes before what is there, so that the length of a message is
known when its start is reached. The layout is that of the decoder of the riegeli library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewardlab.data.envlogger.varint_stream import VarintStream, varint_bytes

_VARINT, _FIXED64, _SIZED, _FIXED32, _END_OF_SUBMESSAGE = 0, 1, 2, 5, 6  # wire types, and one that is none
_NO_OP, _NON_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE = -1, -2, -3, -4
_SPECIAL = (_NO_OP, _NON_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE)  # what stands for a tag below the first
_FIRST_TAG = 8
_FIRST_INLINE = 10  # subtypes of numbers: below it, how many bytes the buffer has; from it on, the number itself
_MOST_STEPS = 20_000_000  # of one chunk, which is 1 MB by default
_EMPTY = VarintStream(b"")

Decompress = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Node:
    """One field to write: its kind, its tag as bytes, where its values are, and the node that follows."""

    kind: int
    tag: bytes
    subtype: int
    values: VarintStream
    next: int
    is_implicit: bool


def decode_transposed(data: bytes, records: int, size: int, decompress: Decompress) -> list[bytes]:
    """Return the records of a chunk; ValueError where they are not as many and as large as the chunk says."""
    source = VarintStream(data)
    header = VarintStream(decompress(source.read(source.number())))
    buffers = _buffers(header, source, decompress)
    nodes = _nodes(header, buffers)
    writer = _BackwardWriter(size, buffers[-1] if buffers else _EMPTY)
    _run(nodes, header.number(), decompress(source.rest()), writer)
    return writer.records(records)


def _buffers(header: VarintStream, source: VarintStream, decompress: Decompress) -> list[VarintStream]:
    buckets, buffers = header.counted(header.number()), header.counted(header.number())
    bucket_sizes = [header.number() for _ in range(buckets)]
    buffer_sizes = [header.number() for _ in range(buffers)]
    whole = VarintStream(b"".join(decompress(source.read(size)) for size in bucket_sizes))
    return [VarintStream(whole.read(size)) for size in buffer_sizes]


def _nodes(header: VarintStream, buffers: Sequence[VarintStream]) -> list[Node]:
    count = header.counted(header.number())
    tags = [header.number() for _ in range(count)]
    following = [header.number() for _ in range(count)]
    subtypes = iter(header.read(sum(tag >= _FIRST_TAG and tag & 7 == _VARINT for tag in tags)))
    nodes = []
    for tag, after in zip(tags, following):
        kind = tag & 7 if tag >= _FIRST_TAG else _SPECIAL[tag]
        subtype = next(subtypes) if kind == _VARINT else 0
        values = buffers[header.number()] if _has_values(kind, subtype) else _EMPTY
        written = varint_bytes(tag - 4 if kind == _END_OF_SUBMESSAGE else tag)
        nodes.append(Node(kind, written, subtype, values, after % count, after >= count))
    return nodes


def _has_values(kind: int, subtype: int) -> bool:
    return kind in (_NON_PROTO, _FIXED32, _FIXED64, _SIZED) or (kind == _VARINT and subtype < _FIRST_INLINE)


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

    def __init__(self, size: int, lengths: VarintStream) -> None:
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
        return [whole[start:end] for start, end in zip(starts, [*starts[1:], self.size])]

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
