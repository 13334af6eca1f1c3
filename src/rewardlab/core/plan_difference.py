"""Which setting differs, where a run folder holds a run with other settings."""

from collections.abc import Iterator, Mapping
from typing import Any

_WORDS = {"data_digest": "the episodes", "definitions": "the definition of perturbation", "models": "the model"}
_MAX_TEXT = 60


def plan_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting of two plans, as JSON holds them, with its old and its new value where they differ."""
    for key in dict.fromkeys((*old, *new)):
        before, now = old.get(key), new.get(key)
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            yield from (f"{_WORDS.get(key, key)} {_member(name, before, now)}" for name in _changed(before, now))
        elif key == "data_digest":
            yield "the episodes of the dataset are others"
        else:
            yield f"{key} was {_text(before)} and is {_text(now)}"


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]


def _member(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if name not in now:
        return f"{name} was there and is not"
    return f"{name} was not there and is" if name not in before else f"{name} is another version of itself"


def _text(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
