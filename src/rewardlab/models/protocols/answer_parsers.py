"""Reading a level out of what a model wrote: each published protocol under its own name."""

import math
import re
from collections.abc import Callable

from rewardlab.core.episode import LEVELS
from rewardlab.core.trial import Answer, Failure, Score

Parser = Callable[[str], Answer]

UNREADABLE = "unreadable answer"  # every failure to read an answer begins with this, so that its rate can be told

_STRICT = re.compile(r"\bANSWER\s*:\s*([1-5])(?![\w%/]|[.,-]\d)", re.IGNORECASE)
_ANY_ANSWER = re.compile(r"\bANSWER\s*:", re.IGNORECASE)
# HELM, branch `rob` (Apache-2.0): the number after "answer:", else the number the text begins with.
_HELM = re.compile(r"(?i)\banswer\b\s*:\s*(-?\d+(?:\.\d+)?)")
_LEADING = re.compile(r"\s*(-?\d+(?:\.\d+)?)\b")
# robometer (MIT), `robometer/evals/baselines/roboreward.py`; a number outside 1 to 5 counts as not found.
_ROBOMETER = re.compile(r"ANSWER:\s*(\d+)", re.IGNORECASE)
_LONE_LEVEL = re.compile(r"\b[1-5]\b")


def strict(raw: str) -> Answer:
    """Return the level where the text holds exactly one `ANSWER: n` with n a whole number from 1 to 5."""
    found = _STRICT.findall(raw)
    if len(found) == 1 and len(_ANY_ANSWER.findall(raw)) == 1:
        return Score(float(found[0]), raw=raw)
    return _unreadable("one 'ANSWER: n' with n from 1 to 5", raw)


def helm(raw: str) -> Answer:
    """Return the number HELM reads where it is a level; HELM does not clip, and a Score cannot be outside 1 to 5.

    What HELM makes of a number outside, and of an unreadable answer (an error of 4), is up to its protocol: see
    `helm_number`.
    """
    number = helm_number(raw)
    if number is None:
        return _unreadable("a number after 'answer:' or at the start", raw)
    if not LEVELS[0] <= number <= LEVELS[-1]:
        return Failure(f"answer out of range: expected 1 to 5, got {number:g}", raw)
    return Score(number, raw=raw)


def helm_number(raw: str) -> float | None:
    """Return the number that HELM reads, in range or not; None where it reads none."""
    found = _HELM.search(raw) or _LEADING.match(raw)
    number = float(found[1]) if found else math.nan
    return number if math.isfinite(number) else None


def robometer(raw: str) -> Answer:
    """Return the level robometer reads: after 'ANSWER:', else the last lone 1 to 5, else its documented default 1."""
    found = _ROBOMETER.search(raw)
    if found and float(found[1]) in LEVELS:
        return Score(float(found[1]), raw=raw)
    return Score(float((_LONE_LEVEL.findall(raw) or ["1"])[-1]), raw=raw)


def _unreadable(expected: str, raw: str) -> Failure:
    return Failure(f"{UNREADABLE}: expected {expected}", raw)


PARSERS: dict[str, Parser] = {"strict": strict, "helm": helm, "robometer": robometer}
