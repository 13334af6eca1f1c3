"""Settings of a command: a frozen dataclass whose fields carry their own help."""

import shlex
from collections.abc import Iterator
from dataclasses import MISSING, Field, field, fields
from typing import Any


def setting(help_text: str, default: Any = MISSING, *, positional: bool = False) -> Any:
    """Return a dataclass field with its help; the command line, the saved record and the reference read it."""
    return field(default=default, metadata={"help": help_text, "positional": positional})


def flag_of(entry: "Field[Any]") -> str:
    """Return the flag of a setting on the command line."""
    return "--" + entry.name.replace("_", "-")


def as_command(name: str, plan: Any) -> str:
    """Return the command line that makes this plan; settings at their default are left out."""
    words = ["rewardlab", name]
    for entry in fields(plan):
        words += _words(entry, vars(plan)[entry.name])
    return shlex.join(words)


def _words(entry: "Field[Any]", value: Any) -> Iterator[str]:
    if entry.metadata["positional"]:
        yield from map(str, value) if isinstance(value, tuple) else [str(value)]
    elif value != entry.default:
        if isinstance(value, bool):
            yield flag_of(entry) if value else flag_of(entry).replace("--", "--no-", 1)
        else:
            yield flag_of(entry)
            yield ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
