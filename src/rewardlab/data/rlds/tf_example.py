"""`tf.train.Example` messages: features by name, taken out of the protocol buffer without a library.

Nothing is copied until it is asked for: a feature is a view of the record.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import DataError

_KINDS = {1: "bytes", 2: "float", 3: "int"}
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5  # wire types


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
    """Yield number and content of the fields of a message; a varint comes as a number."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == _VARINT:
            number, place = _varint(message, place)
            yield tag >> 3, number
            continue
        if wire == _SIZED:
            size, place = _varint(message, place)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise DataError(f"the record is no tf.train.Example: wire type {wire}; expected RLDS episodes")
        if place + size > len(message):
            raise DataError("the record is no tf.train.Example: a field is longer than the record")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise DataError("the record is no tf.train.Example: a number does not end")


def _floats(value: memoryview | int) -> NDArray[np.float64]:
    """Return packed floats, or the single one of a list that is not packed."""
    if isinstance(value, int) or len(value) % 4:
        raise DataError("the record is no tf.train.Example: a list of floats has a wrong size")
    return np.frombuffer(value, "<f4").astype(np.float64)


def _ints(value: memoryview | int) -> Iterator[int]:
    if isinstance(value, int):
        yield value - (1 << 64) * (value >> 63)
        return
    place = 0
    while place < len(value):
        number, place = _varint(value, place)
        yield number - (1 << 64) * (number >> 63)
