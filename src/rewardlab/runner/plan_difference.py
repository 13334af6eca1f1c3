"""Which setting differs, where a run folder holds a run with other settings."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import RunError
from rewardlab.core.run import RECORD

_WORDS = {"data_digest": "the episodes", "definitions": "the definition of perturbation", "models": "the model"}
_MAX_TEXT = 60


def require_same_plan(folder: Path, planned: Mapping[str, Any]) -> None:
    """Refuse a folder whose run was planned otherwise, and name each setting with its old and its new value."""
    try:
        old = read_json(folder / RECORD)["plan"]
    except (OSError, ValueError, TypeError, KeyError):  # none yet, or one that `start_run` says more about
        return
    new = json.loads(json.dumps(planned))
    if isinstance(old, dict) and old != new:
        differ = "; ".join(_differences(old, new))
        raise RunError(
            f"{folder} holds a run with other settings: {differ}; choose another --out or remove that folder"
        )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
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
