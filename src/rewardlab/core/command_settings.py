"""Settings of a command: a frozen dataclass whose fields carry their own help; a field may be such a dataclass too.

The command line, the saved record and the reference show nested settings flat, each by its own name.
"""

import shlex
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, TypeVar

from rewardlab.core.catalog_lookup import find

Plan = TypeVar("Plan")


def setting(
    help_text: str, default: Any = MISSING, *, positional: bool = False, short: str = "", commas: bool = True
) -> Any:
    """Return a dataclass field with its help; the command line, the saved record and the reference read it.

    A setting may have a `short` flag; where it takes several values, `commas` part them.
    """
    metadata = {"help": help_text, "positional": positional, "short": short, "commas": commas}
    return field(default=default, metadata=metadata)


def flag_of(entry: "Field[Any]") -> str:
    """Return the flag of a setting on the command line."""
    return "--" + entry.name.replace("_", "-")


def setting_text(value: object) -> str:
    """Return a value as it is written on the command line: several with commas between them."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def flat_fields(plan_type: Any) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield every setting of a plan and its type, those of nested settings in their place."""
    hints = typing.get_type_hints(plan_type)
    for entry in fields(plan_type):
        hint = hints[entry.name]
        if is_dataclass(hint):
            yield from flat_fields(hint)
        else:
            yield entry, hint


def flat_settings(plan: Any) -> dict[str, Any]:
    """Return the settings of a plan by name, nested ones among the others."""
    found: dict[str, Any] = {}
    for name, value in vars(plan).items():
        found |= flat_settings(value) if is_dataclass(value) else {name: value}
    return found


def build_plan(plan_type: type[Plan], values: Mapping[str, Any]) -> Plan:
    """Return the plan with these settings, given flat and by name; what is left out keeps its default."""
    known = {entry.name: entry for entry, _ in flat_fields(plan_type)}
    for name in values:
        find(known, name, "setting")
    plan: Plan = _build(plan_type, values)
    return plan


def as_command(name: str, plan: Any) -> str:
    """Return the command line that makes this plan; settings at their default are left out."""
    words, values = ["rewardlab", name], flat_settings(plan)
    for entry, _ in flat_fields(type(plan)):
        words += _words(entry, values[entry.name])
    return shlex.join(words)


def _build(plan_type: Any, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(plan_type)
    own: dict[str, Any] = {}
    for entry in fields(plan_type):
        if is_dataclass(hints[entry.name]):
            own[entry.name] = _build(hints[entry.name], values)
        elif entry.name in values:
            own[entry.name] = values[entry.name]
    return plan_type(**own)


def _words(entry: "Field[Any]", value: Any) -> Iterator[str]:
    if entry.metadata["positional"]:
        yield from map(str, value) if isinstance(value, tuple) else [str(value)]
    elif value != entry.default:
        if isinstance(value, bool):
            yield flag_of(entry) if value else flag_of(entry).replace("--", "--no-", 1)
        else:
            yield flag_of(entry)
            yield setting_text(value)
