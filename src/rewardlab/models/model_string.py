"""A model as one string, `NAME:ARGUMENT?key=value&key=value+CALIBRATION`, parsed once into its parts."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rewardlab.core.catalog import did_you_mean
from rewardlab.core.errors import PlanError

CALIBRATION = "calibration.json"  # what stands in a folder named after the +
GUARD = "guard.json"  # or this

First = TypeVar("First")
Second = TypeVar("Second")
Pairs = tuple[tuple[str, str], ...]  # options as written: key and decoded value

_FORM = "write options as ?key=value&key=value"
_SECRET = re.compile(r"key|token|secret|password|^sig", re.IGNORECASE)  # in the name of a query's parameter


@dataclass(frozen=True)
class ModelString:
    """The parts of a model string; `text` is all of it but the calibrations and guards.

    Each of those is the model string up to it, and its file.
    """

    text: str
    name: str
    argument: str = ""
    options: Pairs = ()
    calibrations: tuple[tuple[str, Path], ...] = ()


def parse_model_string(text: str) -> ModelString:
    """Return the parts of a model string; options stand after the last `?`, `%26` in them for `&`."""
    base, calibrations = text, list[tuple[str, Path]]()
    while (found := _calibration(base)) is not None:
        calibrations.insert(0, (base, found[1]))
        base = found[0]
    before, mark, options = base.rpartition("?")
    name, _, argument = (before if mark else base).partition(":")
    return ModelString(base, name, argument, _pairs(options) if mark else (), tuple(calibrations))


def _calibration(text: str) -> tuple[str, Path] | None:
    """Return the model and the file of MODEL+PATH; None where no + is followed by a calibration or a guard."""
    for place in (place for place, sign in enumerate(text) if sign == "+"):
        with suppress(OSError):  # such as a name too long for any file
            path = Path(text[place + 1 :])
            for name in (CALIBRATION, GUARD):
                if (path / name).is_file():
                    return text[:place], path / name
            if path.suffix == ".json" and path.is_file():
                return text[:place], path
    return None


def _pairs(text: str) -> Pairs:
    pairs = [word.partition("=") for word in text.split("&")]
    wrong = next((key for key, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise PlanError(f"expected key=value, got {wrong!r}; {_FORM}")
    return tuple((key, unquote(value)) for key, _, value in pairs)


def option(default: First, meaning: str, *, speed: bool = False) -> First:
    """Return the field of a dataclass of options, with what it means: the reference on the terminal reads it.

    One about `speed` changes how soon and at what price answers come, not what they are: it is no part of identity.
    """
    return field(default=default, metadata={"meaning": meaning, "speed": speed})


def read_options(pairs: Pairs, default: First) -> First:
    """Return the options, a frozen dataclass, with the values given; each is read as the kind of its default."""
    return read_two_options(pairs, default, _Nothing())[0]


def read_two_options(
    pairs: Pairs, first: First, second: Second, aliases: Mapping[str, str] | None = None
) -> tuple[First, Second]:
    """Return two sets of options with the values given; an option that both have goes to the first."""
    known = _defaults(first)
    known |= {name: value for name, value in _defaults(second).items() if name not in known}
    values: dict[str, Any] = {}
    for written, value in pairs:
        key = (aliases or {}).get(written, written)
        if key not in known:
            near = did_you_mean(key, known)
            raise PlanError(f"no option is called {key!r} here; {near}known: {', '.join(known) or 'none'}; {_FORM}")
        if key in values:
            raise PlanError(f"option {key} is given twice; {_FORM}")
        values[key] = read_value(key, value, type(known[key]))
    own = {key: value for key, value in values.items() if key in _defaults(first)}
    others = {key: value for key, value in values.items() if key not in own}
    return replace(first, **own), replace(second, **others)  # type: ignore[type-var]


def split_options(pairs: Pairs, default: object, aliases: Mapping[str, str]) -> tuple[Pairs, Pairs]:
    """Return the options that such a dataclass has, and the others, as they were written."""
    known = _defaults(default)
    own = tuple(pair for pair in pairs if aliases.get(pair[0], pair[0]) in known)
    return own, tuple(pair for pair in pairs if pair not in own)


def leave_to_members(string: ModelString, own: Collection[str]) -> ModelString:
    """Return the string of a composite; options that it does not know as its `own`, before a comma, are a member's."""
    if "," not in string.text.rpartition("?")[2] or all(key in own for key, _ in string.options):
        return string
    return replace(string, argument=string.text.partition(":")[2], options=())


@dataclass(frozen=True)
class _Nothing:
    pass


def _defaults(options: object) -> dict[str, Any]:
    assert is_dataclass(options)
    return {entry.name: vars(options)[entry.name] for entry in fields(options)}


def speed_options(options: object) -> frozenset[str]:
    """Return the names of the options, of a frozen dataclass, that are about speed and price only."""
    assert is_dataclass(options)
    return frozenset(entry.name for entry in fields(options) if entry.metadata.get("speed"))


def without_speed(string: ModelString, speed: Collection[str]) -> str:
    """Return the text of a model string as it was written, less these options."""
    before, mark, options = string.text.rpartition("?")
    if not mark or not speed:
        return string.text
    kept = [word for word in options.split("&") if word.partition("=")[0] not in speed]
    return f"{before}?{'&'.join(kept)}" if kept else before


def without_options(string: ModelString) -> str:
    """Return the argument of a model that takes no options."""
    if string.options:
        raise PlanError(f"{string.name} takes no options, got {string.options[0][0]!r}")
    return string.argument


def one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    """Check, in a `__post_init__`, an option that takes one of a few words."""
    if value not in allowed:
        raise PlanError(f"option {key} must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {value!r}")


def at_least_one(key: str, value: int) -> None:
    """Check, in a `__post_init__`, an option that counts something there must be one of."""
    if value < 1:
        raise PlanError(f"option {key} must be at least 1, got {value}")


def read_url(text: str, example: str) -> SplitResult:
    """Return the parts of an HTTP address; no password or key may be in it, for names are written down."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "@" in parts.netloc:
        raise PlanError(f"expected {example}, with an address of http or https and no name or password in it")
    secret = next((name for name, _ in parse_qsl(parts.query) if _SECRET.search(name)), None)
    if secret is not None:
        raise PlanError(f"the address holds {secret}=..., and names are written down; keys go in the environment only")
    return parts


def read_value(key: str, text: str, kind: type[str] | type[int] | type[float] | type[bool]) -> str | int | float | bool:
    """Return the value of an option, read as this kind."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() in ("yes", "true", "1", "on", "no", "false", "0", "off"):
            return text.lower() in ("yes", "true", "1", "on")
        raise PlanError(f"option {key} must be yes or no, got {text!r}")
    try:
        value = int(text) if kind is int else float(text)
        sound = math.isfinite(value)
    except (ValueError, OverflowError):
        sound = False
    if not sound:
        raise PlanError(f"option {key} must be {'a whole number' if kind is int else 'a number'}, got {text!r}")
    return value
