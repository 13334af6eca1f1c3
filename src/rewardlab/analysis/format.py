"""Numbers as text: cells of tables, intervals, coverage and p-values; and text from outside for Markdown."""

import math
import re
from datetime import datetime
from typing import Protocol


class WithInterval(Protocol):
    """Anything measured with an interval."""

    @property
    def low(self) -> float | None:
        """Return the lower end, None where it is undefined."""

    @property
    def high(self) -> float | None:
        """Return the upper end, None where it is undefined."""


class WithCoverage(Protocol):
    """Anything measured on some of the trials that were asked for."""

    @property
    def scored(self) -> int:
        """Return the trials behind it."""

    @property
    def asked(self) -> int:
        """Return the trials that should have been behind it."""


def format_number(value: float | None, decimals: int = 2) -> str:
    """Return a number for people; a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.{decimals}f}"


def format_interval(measured: WithInterval, decimals: int = 2) -> str:
    """Return the 95 % interval of a number, nothing where it has none."""
    low, high = measured.low, measured.high
    return "" if low is None or high is None else f"[{low:.{decimals}f}, {high:.{decimals}f}]"


def format_coverage(measured: WithCoverage) -> str:
    """Return how many of the asked trials are behind a number."""
    return f"{measured.scored}/{measured.asked}"


def format_threshold(threshold: int | None) -> str:
    """Return a severity threshold in words that fit a cell."""
    if threshold is None:
        return "-"
    return "none" if threshold < 0 else str(threshold)


def format_date(text: str) -> str:
    """Return a time as people write it; what is no time in ISO 8601 stays as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.day} {time:%B %Y, %H:%M} {time.tzname() or ''}".strip()


def format_p_value(p: float | None, at_floor: bool = False) -> str:
    """Return a p-value as people write it; one at its floor, the least that the draws can show, is at most that."""
    if p is None or math.isnan(p):
        return "p unknown"
    if at_floor:
        return f"p ≤ {p:.2g}"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def markdown_text(text: str) -> str:
    """Return text that stays in its line and its cell of Markdown, and is no HTML, no code and no link."""
    return re.sub(r"([\\`<|]|\](?=[(\[:]))", r"\\\1", " ".join(text.split()))
