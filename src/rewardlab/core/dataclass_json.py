"""Frozen dataclasses as JSON and back: every field is checked and carries its meaning for the reference pages."""

import dataclasses
import math
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    found: Record = _decoder(kind)(content, "")
    return found


@cache
def _decoder(kind: Hashable) -> Decode:
    if _is_record(kind):
        return _record_decoder(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _list_decoder(_decoder(parts[0]))
    if origin is dict:
        return _map_decoder(_decoder(parts[1]))
    return _value_decoder(kind)


def _is_record(kind: object) -> bool:
    return dataclasses.is_dataclass(kind)


def _record_decoder(kind: Any) -> Decode:
    fields = {name: _decoder(hint) for name, hint in _hints(kind).items()}

    def decode(content: object, place: str) -> Any:
        if not isinstance(content, Mapping):
            raise _misfit(place, "an object", content)
        if set(content) != set(fields):
            missing, foreign = sorted(set(fields) - set(content)), sorted(map(str, set(content) - set(fields)))
            words = [f"no {', '.join(missing)}"] * bool(missing) + [f"an unknown {', '.join(foreign)}"] * bool(foreign)
            raise ValueError(f"{place or 'the whole'} has {' and '.join(words)}")
        return kind(**{name: read(content[name], f"{place}.{name}".strip(".")) for name, read in fields.items()})

    return decode


def _list_decoder(part: Decode) -> Decode:
    def decode(content: object, place: str) -> Any:
        if not isinstance(content, list):
            raise _misfit(place, "a list", content)
        return tuple(part(value, f"{place}[{number}]") for number, value in enumerate(content))

    return decode


def _map_decoder(part: Decode) -> Decode:
    def decode(content: object, place: str) -> Any:
        if not isinstance(content, Mapping):
            raise _misfit(place, "an object", content)
        return {str(key): part(value, f"{place}.{key}") for key, value in content.items()}

    return decode


def _value_decoder(kind: Any) -> Decode:
    """Return the decoder of a plain value, one of several words, or a record or value that may be null."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words = {word for option in options if get_origin(option) is Literal for word in get_args(option)}
    nested = [_decoder(option) for option in options if _is_record(option)]

    def decode(content: object, place: str) -> Any:
        if type(content) in options or (isinstance(content, str) and content in words):
            return content
        if type(content) is int and float in options:
            return float(content)
        if nested and isinstance(content, Mapping):
            return nested[0](content, place)
        raise _misfit(place, _type_name(kind), content)

    return decode


def _misfit(place: str, expected: str, content: object) -> ValueError:
    got = repr(content)
    return ValueError(f"{place or 'the whole'} must be {expected}, got {got if len(got) < 60 else got[:57] + '...'}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


def _type_name(kind: Any, *, linked: bool = False) -> str:
    """Return a type as errors and the reference say it; the reference links a record to its table."""
    if _is_record(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})" if linked else f"an object ({kind.__name__})"
    if kind in _NAMES:
        return _NAMES[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    names = [_type_name(part, linked=linked) for part in parts if part is not Ellipsis]
    if origin is tuple:
        return f"list of {names[0]}"
    return f"object of {names[1]}" if origin is dict else " or ".join(names)


def record_tables(kind: Any) -> str:
    """Return Markdown tables of a record and every record in it: field, type and meaning."""
    parts = []
    for record in dict.fromkeys(_records(kind)):
        parts += [f"## {record.__name__}", "", str(record.__doc__).strip(), ""]
        parts += ["| field | type | meaning |", "|---|---|---|"]
        hints = _hints(record)
        for entry in dataclasses.fields(record):
            parts.append(
                f"| `{entry.name}` | {_type_name(hints[entry.name], linked=True)} | {entry.metadata['meaning']} |"
            )
        parts.append("")
    return "\n".join(parts)


def _records(kind: Any) -> Iterator[Any]:
    if _is_record(kind):
        yield kind
        for hint in _hints(kind).values():
            yield from _records(hint)
    else:
        for part in get_args(kind):
            yield from _records(part)
