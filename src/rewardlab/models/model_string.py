"""Options of a model in its own name: `NAME:ARGUMENT?key=value&key=value`."""

import math
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rewardlab.core.errors import PlanError

Settings = TypeVar("Settings")

_SECRET = re.compile(r"key|token|secret|password|^sig", re.IGNORECASE)  # in the name of a query's parameter


def read_options(text: str, default: Settings) -> tuple[str, Settings]:
    """Return the text before the last `?`, and the settings (a frozen dataclass) with what stands after it.

    A value is read as the kind of the default: text, whole number, number, or yes/no. `%26` stands for `&`.
    """
    assert is_dataclass(default) and not isinstance(default, type)
    argument, mark, options = text.rpartition("?")
    if not mark:
        return text, default
    known = {entry.name: vars(default)[entry.name] for entry in fields(default)}
    values: dict[str, Any] = {}
    for word in options.split("&"):
        key, equals, value = word.partition("=")
        if not equals or key not in known or key in values:
            raise PlanError(f"{_fault(key, equals, known)}; write options as ?key=value&key=value")
        values[key] = _read(key, unquote(value), known[key])
    return argument, replace(default, **values)


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Check, in a `__post_init__`, an option that takes one of a few words."""
    if value not in allowed:
        raise PlanError(f"option {key} must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {value!r}")


def read_url(text: str, example: str) -> SplitResult:
    """Return the parts of an address of HTTP; no password or key may be in it, for names are written down."""
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


def _fault(key: str, equals: str, known: dict[str, Any]) -> str:
    if not equals:
        return f"expected key=value, got {key!r}"
    if key in known:
        return f"option {key} is given twice"
    return f"no option is called {key!r} here; known: {', '.join(known)}"


def _read(key: str, text: str, default: str | int | float | bool) -> str | int | float | bool:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() in ("yes", "true", "1", "on", "no", "false", "0", "off"):
            return text.lower() in ("yes", "true", "1", "on")
        raise PlanError(f"option {key} must be yes or no, got {text!r}")
    kind = "a whole number" if isinstance(default, int) else "a number"
    try:
        value = type(default)(text)
        sound = math.isfinite(value)
    except (ValueError, OverflowError):
        sound = False
    if not sound:
        raise PlanError(f"option {key} must be {kind}, got {text!r}")
    return value
