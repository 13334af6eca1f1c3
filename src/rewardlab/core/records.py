"""JSON in and out: bounded when read, checksummed when written, dataclasses both ways."""

import dataclasses
import json
import math
import re
import stat
import types
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rewardlab.core.limits import JSON_DEPTH, JSON_MB, NUMBER_DIGITS

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_ENDS = ("", "\n", "\r\n")  # what may follow a value without a further look
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str | bytes, *, allow_nonfinite: bool = False, unique_keys: bool = False) -> Any:
    """Return what the JSON holds; a ValueError says in a few words what is wrong with it.

    NaN and infinities are refused unless they are allowed, as for servers that send them among log-probabilities.
    """
    words = text.decode("utf-8") if isinstance(text, bytes) else text
    return json_parser(allow_nonfinite=allow_nonfinite, unique_keys=unique_keys)(words)


def parsed_bytes(text: str | bytes) -> int:
    """Return the most memory, in bytes, that JSON can take once it is parsed and its lists are arrays."""
    # 64-bit CPython: a number of 3 digits or a text of 2 letters is an object, a list has room for 4 items.
    sizes = {"[": 96, "{": 240, ",": 16, '"': 32}
    found = sum(
        size * (text.count(mark) if isinstance(text, str) else text.count(mark.encode()))
        for mark, size in sizes.items()
    )
    return 8 * len(text) + found


def json_parser(*, allow_nonfinite: bool = False, unique_keys: bool = False) -> Callable[[str], Any]:
    """Return what parses as `parse_json` does, with the limits as they are now: for many small texts."""
    most_deep = JSON_DEPTH.value
    decoder = _json_decoder(NUMBER_DIGITS.value, allow_nonfinite, unique_keys)

    def parse(words: str) -> Any:
        if words.count("[") + words.count("{") > most_deep:
            _check_depth(words, most_deep)
        try:
            found, end = decoder.raw_decode(words)  # `decode` would look for spaces around the value first
            done = words[end:] in _ENDS
        except json.JSONDecodeError:
            done = False
        if not done:
            try:
                found = decoder.decode(words)
            except json.JSONDecodeError as error:
                what = error.msg.removesuffix(" at")
                raise ValueError(f"{what} at line {error.lineno}, column {error.colno}") from None
        if "\\u" in words and _SURROGATE.search(words):
            _check_text(found)
        return found

    return parse


@cache
def _json_decoder(digits: int, allow_nonfinite: bool, unique_keys: bool) -> json.JSONDecoder:
    """Return the decoder with these rules; making one takes longer than reading a row with it."""

    def whole(text: str) -> int:
        if len(text) > digits:
            raise ValueError(f"a whole number of {len(text):,} digits, {NUMBER_DIGITS.describe()}")
        return int(text)

    def finite(text: str) -> float:
        if math.isinf(number := float(text)):
            raise ValueError(f"a number too large for a computer: {text[:40]}")
        return number

    def refuse(text: str) -> float:
        raise ValueError(f"{text}, which is no JSON number")

    number, constant = (float, float) if allow_nonfinite else (finite, refuse)
    pairs = _unique if unique_keys else None
    return json.JSONDecoder(parse_int=whole, parse_float=number, parse_constant=constant, object_pairs_hook=pairs)


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; a ValueError says what is wrong with it, an OSError that it cannot be read."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device may have no end, and no size
        raise ValueError("it is not a regular file")
    if found.st_size > JSON_MB.in_bytes:
        raise ValueError(f"{found.st_size / 1e6:,.0f} MB of JSON, {JSON_MB.describe()}")
    return parse_json(path.read_bytes())


def _check_depth(text: str, most: int) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        depth += _STEPS.get(match.group(), 0)
        if depth > most:
            raise ValueError(f"too many lists and objects inside each other, {JSON_DEPTH.describe()}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return found


def _check_text(found: Any) -> None:
    """Walk what was read; half a surrogate pair can be neither written nor shown."""
    if isinstance(found, str):
        try:
            found.encode()
        except UnicodeEncodeError:
            raise ValueError("a text holds half of a surrogate pair, which is no character") from None
    elif isinstance(found, dict):
        for key, value in found.items():
            _check_text(key)
            _check_text(value)
    elif isinstance(found, list):
        for value in found:
            _check_text(value)


# JSON files that carry the SHA-256 of their own content: a flipped bit is seen when they are read.
#
# A checksum tells damage, not forgery: whoever changes a file on purpose can write the checksum that fits.

CHECKSUM = "sha256"
TRIALS_DIGEST = "trials_sha256"  # in what was computed from trials: which ones they were


def json_digest(content: object) -> str:
    """Return the SHA-256 of JSON content, whatever the order of its keys and the space between them."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def checksummed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content as JSON holds it, with its checksum."""
    plain = json.loads(json.dumps(content, allow_nan=False))
    return {**plain, CHECKSUM: json_digest(plain)}


def without_checksums(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content alone, for whoever reads a file by himself; nothing is verified."""
    return {key: value for key, value in content.items() if key not in (CHECKSUM, TRIALS_DIGEST)}


def read_checksummed_json(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the object in a JSON file and whether it carried a checksum, as one that a person edited may not."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"it must hold a JSON object, got {type(content).__name__}")
    seal = content.pop(CHECKSUM, None)
    if seal is not None and seal != json_digest(content):
        raise ValueError("its content does not have the checksum that it carries, so it was damaged or edited")
    return content, seal is not None


# Frozen dataclasses as JSON and back: every field is checked and carries its meaning for the reference pages.

Record = TypeVar("Record")
Decode = Callable[[object, str], Any]  # the content and its place in the file, such as `drops[3].low`
_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", types.NoneType: "null"}


def meaning(text: str) -> Any:
    """Return a dataclass field that says what it means; the reference page prints it."""
    return dataclasses.field(metadata={"meaning": text})


def none_if_nan(value: float) -> float | None:
    """Return the number, None where it is nan: JSON has no nan."""
    return None if math.isnan(value) else float(value)


def record_to_json(value: Any) -> Any:
    """Return a record, and every record in it, as what the json module writes."""
    if type(value) in _NAMES:  # most parts are plain, and there are tens of thousands of them
        return value
    if names := _field_names(value.__class__):
        held = vars(value)
        return {name: record_to_json(held[name]) for name in names}
    if isinstance(value, tuple):
        return [record_to_json(part) for part in value]
    return {key: record_to_json(part) for key, part in value.items()} if isinstance(value, dict) else value


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of a record's fields, none of what is no record."""
    return tuple(entry.name for entry in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def record_from_json(kind: Callable[..., Record], content: object) -> Record:
    """Return the record that JSON content holds; a ValueError names the first place that does not fit."""
    found: Record = _type_decoder(kind)(content, "")
    return found


@cache
def _type_decoder(kind: Hashable) -> Decode:
    if _is_record(kind):
        return _record_decoder(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (tuple, dict):
        return _parts_decoder(_type_decoder(parts[origin is dict]), listed=origin is tuple)
    return _value_decoder(kind)


def _is_record(kind: object) -> bool:
    return dataclasses.is_dataclass(kind)


def _record_decoder(kind: Any) -> Decode:
    fields = {name: _type_decoder(hint) for name, hint in field_types(kind).items()}

    def decode(content: object, place: str) -> Any:
        if not isinstance(content, Mapping):
            raise _misfit(place, "an object", content)
        if set(content) != set(fields):
            missing, foreign = sorted(set(fields) - set(content)), sorted(map(str, set(content) - set(fields)))
            words = [f"no {', '.join(missing)}"] * bool(missing) + [f"an unknown {', '.join(foreign)}"] * bool(foreign)
            raise ValueError(f"{place or 'the whole'} has {' and '.join(words)}")
        return kind(**{name: read(content[name], f"{place}.{name}".strip(".")) for name, read in fields.items()})

    return decode


def _parts_decoder(part: Decode, *, listed: bool) -> Decode:
    """Return the decoder of a list, or of values by name."""

    def decode(content: object, place: str) -> Any:
        if listed and isinstance(content, list):
            return tuple(part(value, f"{place}[{number}]") for number, value in enumerate(content))
        if not listed and isinstance(content, Mapping):
            return {str(key): part(value, f"{place}.{key}") for key, value in content.items()}
        raise _misfit(place, "a list" if listed else "an object", content)

    return decode


def _value_decoder(kind: Any) -> Decode:
    """Return the decoder of a plain value, one of several words, or a record or value that may be null."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words = {word for option in options if get_origin(option) is Literal for word in get_args(option)}
    nested = [_type_decoder(option) for option in options if _is_record(option)]

    def decode(content: object, place: str) -> Any:
        if type(content) in options or (isinstance(content, str) and content in words):
            return content
        if type(content) is int and float in options:
            return float(content)
        if nested and isinstance(content, Mapping):
            return nested[0](content, place)
        raise _misfit(place, type_name(kind), content)

    return decode


def _misfit(place: str, expected: str, content: object) -> ValueError:
    got = repr(content)
    return ValueError(f"{place or 'the whole'} must be {expected}, got {got if len(got) < 60 else got[:57] + '...'}")


@cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a record."""
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


def type_name(kind: Any, *, linked: bool = False) -> str:
    """Return a type as errors and the reference say it; the reference links a record to its table."""
    if _is_record(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})" if linked else f"an object ({kind.__name__})"
    if kind in _NAMES:
        return _NAMES[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    names = [type_name(part, linked=linked) for part in parts if part is not Ellipsis]
    if origin is tuple:
        return f"list of {names[0]}"
    return f"object of {names[1]}" if origin is dict else " or ".join(names)
