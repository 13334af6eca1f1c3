"""The instruction of an RLDS episode, in the variants that datasets write it: per step or once, text or numbers."""

import re
from collections.abc import Iterator, Mapping

from rewardlab.core.errors import DataError
from rewardlab.data.rlds.tf_example import Feature

_TEXTS = (  # last parts of the names, the best first
    *("language_instruction", "natural_language_instruction", "instruction", "language_instruction_2"),
    *("language_instruction_3", "language", "task_description", "task", "goal"),
)
_CODES = ("task_code", "task_name")  # such as lift-any
_PLACES = ("steps/", "steps/observation/", "episode_metadata/", "")


def instruction_of(features: Mapping[str, Feature], steps: int) -> str:
    """Return the first text that is not empty; empty where there is none."""
    for name in _candidates(features):
        text = _text(name, features[name], steps)
        if text:
            return re.sub(r"[-_]+", " ", text) if name.rpartition("/")[2] in _CODES else text
    return ""


def _candidates(features: Mapping[str, Feature]) -> Iterator[str]:
    names = (f"{place}{last}" for last in (*_TEXTS, *_CODES) for place in _PLACES)
    return (name for name in names if name in features)


def _text(name: str, feature: Feature, steps: int) -> str:
    if feature.kind == "int":  # the codes of the UTF-8 bytes, filled up with zeros to the same length in every step
        numbers = feature.numbers()
        codes = numbers[: len(numbers) // max(steps, 1)] if name.startswith("steps/") else numbers
        codes = codes[codes != 0]
        if codes.size == 0 or codes.min() < 0 or codes.max() > 255:
            return ""
        return _decoded(name, bytes(codes.astype("uint8")))
    return next((text for value in feature.each() if (text := _decoded(name, bytes(value)))), "")


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise DataError(f"{name} is not UTF-8 text; write it as text") from None
