"""JSON from strangers: bounded in size, depth and length of numbers, finite, and made of text that can be written."""

import json
import math
import re
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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


def json_parser(*, allow_nonfinite: bool = False, unique_keys: bool = False) -> Callable[[str], Any]:
    """Return what parses as `parse_json` does, with the limits as they are now: for many small texts."""
    most_deep = JSON_DEPTH.value
    decoder = _decoder(NUMBER_DIGITS.value, allow_nonfinite, unique_keys)

    def parse(words: str) -> Any:
        if words.count("[") + words.count("{") > most_deep:
            _check_depth(words, most_deep)
        try:
            found, end = decoder.raw_decode(words)  # `decode` would look for spaces around the value first
            if words[end:] not in _ENDS:
                found = _decoded_or_told(decoder, words)
        except json.JSONDecodeError:
            found = _decoded_or_told(decoder, words)
        if "\\u" in words and _SURROGATE.search(words):
            _check_text(found)
        return found

    return parse


def _decoded_or_told(decoder: json.JSONDecoder, words: str) -> Any:
    """Decode what does not begin with its value, or say where it is wrong."""
    try:
        return decoder.decode(words)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None


@cache
def _decoder(digits: int, allow_nonfinite: bool, unique_keys: bool) -> json.JSONDecoder:
    """Return the decoder with these rules; making one takes longer than reading a row with it."""
    whole = lambda number: int(number) if len(number) <= digits else _refuse_digits(number)
    number, constant = (float, float) if allow_nonfinite else (_finite, _refuse)
    pairs = _unique if unique_keys else None
    return json.JSONDecoder(parse_int=whole, parse_float=number, parse_constant=constant, object_pairs_hook=pairs)


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; a ValueError says what is wrong with it, an OSError that it cannot be read."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device may have no end, and no size
        raise ValueError("it is no regular file")
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


def _refuse_digits(text: str) -> int:
    raise ValueError(f"a whole number of {len(text):,} digits, {NUMBER_DIGITS.describe()}")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"a number too large for a computer: {text[:40]}")
    return number


def _refuse(text: str) -> float:
    raise ValueError(f"{text}, which is no JSON number")


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
