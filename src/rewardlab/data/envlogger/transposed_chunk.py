"""Transposed chunks of Riegeli files: records taken apart field by field, and put together again by a state machine.

A node of the machine writes one field; what it writes comes before what is there, so that the length of a message is
known when its start is reached. The layout is that of the decoder of the riegeli library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewardlab.data.envlogger.varint_stream import VarintStream, varint_bytes

_NO_OP, _NON_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE = range(4)  # what stands for a tag
_VARINT, _FIXED64, _SIZED, _FIXED32, _END_OF_SUBMESSAGE = 0, 1, 2, 5, 6  # wire types, and one that is none
_FIRST_INLINE = 10  # subtypes of numbers: below it, bytes in the buffer; from it on, the number itself

Decompress = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Node:
    """One field to write: what kind, its tag as bytes, where its values are, and the node that follows."""

    kind: int
    tag: bytes
    subtype: int
    buffer: VarintStream | None
    next: int
    is_implicit: bool


def decode_transposed(data: bytes, records: int, size: int, decompress: Decompress) -> list[bytes]:
    """Return the records of a chunk; ValueError where they are not as many and as large as the chunk says."""
    source = VarintStream(data[1:])
    header = VarintStream(decompress(source.read(source.number())))
    buffers = _buffers(header, source, decompress)
    nodes = _nodes(header, buffers)
    start = header.number()
    machine = _Machine(nodes, buffers[-1] if buffers else VarintStream(b""), size)
    machine.run(start, decompress(source.rest()))
    return machine.records(records)


def _buffers(header: VarintStream, source: VarintStream, decompress: Decompress) -> list[VarintStream]:
    buckets, buffers = header.number(), header.number()
    bucket_sizes = [header.number() for _ in range(header.counted(buckets))]
    buffer_sizes = [header.number() for _ in range(header.counted(buffers))]
    whole = VarintStream(b"".join(decompress(source.read(size)) for size in bucket_sizes))
    return [VarintStream(whole.read(size)) for size in buffer_sizes]


def _nodes(header: VarintStream, buffers: Sequence[VarintStream]) -> list[Node]:
    count = header.counted(header.number())
    tags = [header.number() for _ in range(count)]
    following = [header.number() for _ in range(count)]
    subtypes = iter(header.read(sum(tag >= 8 and tag & 7 == _VARINT for tag in tags)))
    return [_node(tag, after, count, subtypes, (header, buffers)) for tag, after in zip(tags, following)]


def _node(tag: int, after: int, count: int, subtypes: "iter[int]", places: tuple[VarintStream, Sequence[VarintStream]]) -> Node:
    kind = tag & 7 if tag >= 8 else tag
    return Node(kind, b"", 0, None, after, False)
