"""Short names of models for tables and pages; a trial keeps the whole model string, which is its identity."""

import re
from collections.abc import Iterable, Mapping, Sequence

from rewardlab.core.errors import RewardlabError
from rewardlab.core.run_record import RunRecord
from rewardlab.models import name_model

FITS = 24  # characters of a name that a table of 80 columns has room for; a string that is no longer stays as it is
_PROTOCOLS = ("gvl", "topreward")  # other questions to the same model, so they stay in its name
_URL = re.compile(r"[a-z]+://([^/?]+)")
_PARTS = re.compile(r"[:/@?&+,\s]+")


def display_names(models: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each model that no other has: the chosen one, or one derived from its string."""
    wanted = {model: _cut(chosen.get(model) or derived_name(model)) for model in dict.fromkeys(models)}
    found: dict[str, str] = {}
    for model, name in wanted.items():
        alike = [other for other in wanted if wanted[other] == name and other != model]
        found[model] = _untaken(f"{name} ({own})" if (own := _own_part(model, alike)) else name, found.values())
    return found


def names_of_run(record: RunRecord, models: Iterable[str]) -> dict[str, str]:
    """Return what the models of a run are called where people read."""
    return display_names(list(dict.fromkeys((*record.judged, *models))), record.names)


def model_meant(text: str, names: Mapping[str, str]) -> str | None:
    """Return which of these models, each with its short name, a text means; None where it is none of them.

    It may be the whole string, the short name, or a string with options about speed and price.
    """
    if text in names:
        return text
    short = next((model for model, name in names.items() if name == text), None)
    return short if short is not None or "?" not in text else _at_another_speed(text, names)


def _at_another_speed(text: str, models: Iterable[str]) -> str | None:
    try:
        name = name_model(text).name
    except RewardlabError:  # such as a module that is not on this machine
        return None
    return name if name in set(models) else None


def derived_name(model: str) -> str:
    """Return the part of a model string that tells people which model it is."""
    if len(model) <= FITS:
        return model
    base, plus, calibration = model.partition("+")
    kind, _, argument = base.partition(":")
    if kind == "ensemble":
        return f"ensemble of {argument.count(',') + 1}"
    before = f"{kind}:" if kind in _PROTOCOLS else ""
    return before + (_last_part(argument) or kind) + (f"+{_last_part(calibration)}" if plus else "")


def _last_part(text: str) -> str:
    """Return the last part of a path or repository; of an address its host, of module:name the name."""
    text = re.sub(r"@(?=https?://).*", "", text, flags=re.DOTALL)
    address = _URL.match(text)
    if address:
        return address[1]
    return text.partition("?")[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]


def _own_part(model: str, alike: Sequence[str]) -> str:
    """Return the words of a string that none of those of the same name has, as many as fit."""
    others = {word for other in alike for word in _PARTS.split(other)}
    own = [word for word in _PARTS.split(model) if word and word not in others] if alike else []
    return " ".join(own)[:FITS]


def _cut(name: str) -> str:
    """Return a name that fits: of a longer one its beginning and its end."""
    words = " ".join(name.split())
    return words if len(words) <= FITS else f"{words[: FITS - 10]}…{words[-9:]}"


def _untaken(name: str, taken: Iterable[str]) -> str:
    known, number = set(taken), 2
    free = name
    while free in known:
        free, number = f"{name} {number}", number + 1
    return free
