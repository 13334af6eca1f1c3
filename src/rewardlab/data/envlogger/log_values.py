"""The values of EnvLogger: nested tuples and mappings of arrays, taken out of their protocol buffers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.limits import JSON_DEPTH
from rewardlab.data.envlogger.varint_stream import VarintStream

_SCALAR = -438 % 2**64  # the one dimension of what is no array
_ARRAY, _TUPLE, _MAPPING = 2, 3, 4  # fields of a value
_FLOATS, _FLOAT32_BYTES, _DOUBLES, _BOOLS, _TEXTS, _BYTES, _BIG_INT, _UINT8 = 1, 15, 2, 7, 8, 9, 10, 13

Fields = list[tuple[int, Any]]


@dataclass(frozen=True)
class Value:
    """An array as it is stored: its shape (empty for a scalar), the field that says its type, and its bytes."""

    shape: tuple[int, ...]
    kind: int
    data: bytes

    @property
    def pixels(self) -> NDArray[np.uint8] | None:
        """Return the picture that the array is, (H, W, 3), or None."""
        if self.kind != _UINT8 or len(self.shape) != 3 or self.shape[2] != 3 or len(self.data) != np.prod(self.shape):
            return None
        return np.frombuffer(self.data, np.uint8).reshape(self.shape)

    @property
    def number(self) -> float | None:
        """Return the number that the value is, or None."""
        if self.kind == _BIG_INT:
            return float(int.from_bytes(self.data, "big", signed=True))
        kinds = {_FLOATS: "<f4", _FLOAT32_BYTES: ">f4", _DOUBLES: "<f8", _BOOLS: "u1"}
        if self.kind not in kinds or len(self.data) != np.dtype(kinds[self.kind]).itemsize:
            return None
        return float(np.frombuffer(self.data, kinds[self.kind])[0])

    @property
    def text(self) -> str:
        """Return the text that the value is; empty for anything else."""
        return self.data.decode("utf-8", "replace") if self.kind == _TEXTS else ""


def named_values(record: bytes) -> dict[str, Value]:
    """Return the arrays of a record by their path, such as 0/3/Can_pos; ValueError where it holds something else."""
    return dict(_walk(record, "", 0))


def _walk(data: bytes, path: str, depth: int) -> Iterator[tuple[str, Value]]:
    if depth > JSON_DEPTH.value:
        raise ValueError(f"too many values inside each other, {JSON_DEPTH.describe()}")
    for field, inner in _fields(data):
        if field == 1:
            yield path, _array(inner)
        elif field in (_ARRAY, _TUPLE):
            for place, (_, each) in enumerate(_fields(inner)):
                yield from _walk(each, f"{path}/{place}".strip("/"), depth + 1)
        elif field == _MAPPING:
            for _, entry in _fields(inner):
                pair = dict(_fields(entry))
                name = bytes(pair.get(1, b"")).decode("utf-8", "replace")
                yield from _walk(pair.get(2, b""), f"{path}/{name}".strip("/"), depth + 1)


def _array(data: bytes) -> Value:
    stated: Mapping[int, bytes] = dict(_fields(data))
    sides = [dict(_fields(dim)).get(1, 0) for _, dim in _fields(stated.get(1, b""))]
    shape = () if sides == [_SCALAR] else tuple(sides)
    values = _fields(stated.get(2, b""))
    kind, first = values[0] if values else (0, b"")
    return Value(shape, kind, first if isinstance(first, bytes) else bytes([first & 0xFF]))


def _fields(data: bytes) -> Fields:
    """Return number and content of the fields of a message."""
    stream, found = VarintStream(data), []
    while stream.place < len(data):
        tag = stream.number()
        wire = tag & 7
        if wire not in (0, 1, 2, 5):
            raise ValueError(f"wire type {wire} in a value")
        content: int | bytes = stream.number() if wire == 0 else b""
        if wire:
            content = stream.read({1: 8, 5: 4}.get(wire) or stream.number())
        found.append((tag >> 3, content))
    return found
