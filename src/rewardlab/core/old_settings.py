"""Settings from a function's signature: flags, help, parser, record, command line; the shared groups.

The command line, the saved record and the reference show nested settings flat, each by its own name.
"""

import argparse
import math
import re
import shlex
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rewardlab.core.catalog import did_you_mean, find
from rewardlab.core.errors import PlanError

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


# The parser of the command line: flags from the settings of a command, mistakes in one sentence.

_KINDS: dict[Any, tuple[str, str]] = {  # what stands for a value in the help, and what it must be
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("NAME", "text"),
    Path: ("PATH", "a path"),
}


class CommandParser(argparse.ArgumentParser):
    """A parser that raises what is wrong as one sentence, without the usage of every flag."""

    words = "COMMAND"  # the positional settings, as they are written
    flags: tuple[str, ...] = ()  # those of the command that is read
    command = "rewardlab"  # whose help is of use

    def error(self, message: str) -> NoReturn:
        """Raise the mistake in our words."""
        said = self._sentence(message)
        raise PlanError(f"{said}{'' if said.endswith('?') else ';'} `{self.command} --help` shows all settings")

    def _sentence(self, message: str) -> str:
        kind, _, rest = message.partition(": ")
        if kind == "the following arguments are required":
            return f"{rest.replace(', ', ' and ')} must be given: {self.prog} {self.words}"
        if kind == "unrecognized arguments":
            written = rest.split()[0].partition("=")[0]
            near = did_you_mean(written, self.flags) if written.startswith("-") else ""
            return f"{self.command} takes no {written!r}; {near}".rstrip("; ")
        name = kind.removeprefix("argument ")
        return f"{name} needs a value" if rest == "expected one argument" else re.sub(r"^argument ", "", message)


def command_parser(summary: str, version: str, epilog: str, plans: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Return the parser for these commands, each given with the dataclass of its settings."""
    parser = CommandParser("rewardlab", description=summary, epilog=epilog, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"rewardlab {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, plan_type in plans.items():
        text = (plan_type.__doc__ or "").strip()
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        entries = list(flat_fields(plan_type))
        for entry, hint in entries:
            _add_argument(sub, entry, hint)
        sub.words = " ".join(_placeholder(entry, hint) for entry, hint in entries if entry.metadata["positional"])
        sub.command = sub.prog
        parser.command = sub.prog if len(plans) == 1 else "rewardlab"
        parser.flags += tuple(flag_of(entry) for entry, _ in entries if not entry.metadata["positional"])
    return parser


def _placeholder(entry: "Field[Any]", hint: Any) -> str:
    return entry.name.upper() + "..." * (typing.get_origin(hint) is tuple)


def _add_argument(parser: argparse.ArgumentParser, entry: "Field[Any]", hint: Any) -> None:
    help_text = entry.metadata["help"].replace("%", "%%")
    many = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if many else _plain(hint)
    default = None if entry.default is MISSING else entry.default
    if entry.metadata["positional"]:
        nargs = "+" if many else None if entry.default is MISSING else "?"
        read, metavar = _reader(kind), entry.name.upper()
        parser.add_argument(entry.name, type=read, default=default, help=help_text, metavar=metavar, nargs=nargs)
        return
    flags = [*([entry.metadata["short"]] if entry.metadata["short"] else []), flag_of(entry)]
    if kind is bool:
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, default=default, help=help_text)
        return
    metavar, _ = _KINDS[kind]
    shown = "" if default in (None, (), "") else f" (default: {setting_text(default)})"
    parser.add_argument(
        *flags,
        type=_several(kind, commas=entry.metadata["commas"]) if many else _reader(kind),
        action=_Several if many and not entry.metadata["commas"] else "store",
        default=default,
        help=help_text + shown,
        metavar=f"{metavar},{metavar}" if many else metavar,
    )


def _plain(hint: Any) -> Any:
    """Return the type inside `X | None`, or the type itself."""
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _reader(kind: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = kind(text)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected {_KINDS[kind][1]}, got {text!r}") from None
        if kind is float and not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
        return value

    return read


def _several(kind: Any, *, commas: bool) -> Callable[[str], tuple[Any, ...]]:
    read = _reader(kind)

    def several(text: str) -> tuple[Any, ...]:
        parts = text.split(",") if commas else [text]
        return tuple(read(part.strip()) for part in parts if part.strip())

    return several


class _Several(argparse.Action):
    """A flag that may be given again: its values are put together, in place of the default."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = () if vars(namespace)[self.dest] is self.default else vars(namespace)[self.dest]
        setattr(namespace, self.dest, (*before, *values))


ENGINE_NAMES = ("processes", "local", "ray")


@dataclass(frozen=True)
class EngineSettings:
    """Where work runs."""

    engine: str = setting(
        "where work runs: processes, local (in the command itself, for debugging) or ray (extra `ray`)", "processes"
    )
    address: str | None = setting(
        "Ray cluster to join: auto or HOST:PORT; by default RAY_ADDRESS, or one that is started here",
        None,
    )
    gpus: float = setting("share of a GPU that each worker takes on a Ray cluster, such as 1 or 0.5", 0.0)

    def __post_init__(self) -> None:
        find(dict.fromkeys(ENGINE_NAMES), self.engine, "engine")
        if self.engine != "ray" and (self.address or self.gpus):
            raise PlanError(f"address and gpus are for --engine ray, but the engine is {self.engine!r}")
        if not 0 <= self.gpus < math.inf:
            raise PlanError(f"gpus must be 0 or more, got {self.gpus}")
