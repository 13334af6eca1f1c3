"""The parser of the command line: flags from the settings of a command, mistakes in one sentence."""

import argparse
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, NoReturn

from rewardlab.core.catalog_lookup import did_you_mean
from rewardlab.core.command_settings import flag_of, flat_fields, setting_text
from rewardlab.core.errors import PlanError

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
