"""A model as one string, `NAME:ARGUMENT?key=value&key=value+CALIBRATION`, parsed once into its parts."""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rewardlab.core.errors import PlanError

CALIBRATION = "calibration.json"  # what stands in a folder named after the +
GUARD = "guard.json"  # or this

Pairs = tuple[tuple[str, str], ...]  # options as written: key and decoded value

FORM = "write options as ?key=value&key=value"
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
        raise PlanError(f"expected key=value, got {wrong!r}; {FORM}")
    return tuple((key, unquote(value)) for key, _, value in pairs)


def canonical_name(string: ModelString, options: Pairs) -> str:
    """Return `NAME:ARGUMENT` with these options, which replace those that were written."""
    text = f"{string.name}:{string.argument}" if string.argument else string.name
    return string.text if "?" in text and not options else with_options(text, options)


def with_options(text: str, options: Pairs) -> str:
    """Return `NAME:ARGUMENT` with these options behind it."""
    words = [f"{key}={value.replace('%', '%25').replace('&', '%26').replace('?', '%3F')}" for key, value in options]
    return f"{text}?{'&'.join(words)}" if words else text


def option_text(value: object) -> str:
    """Return the value of an option as it is written, one way for each value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def leave_to_members(string: ModelString, own: Collection[str]) -> ModelString:
    """Return the string of a composite; options that it does not know as its `own`, before a comma, are a member's."""
    if "," not in string.text.rpartition("?")[2] or all(key in own for key, _ in string.options):
        return string
    return replace(string, argument=string.text.partition(":")[2], options=())


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
