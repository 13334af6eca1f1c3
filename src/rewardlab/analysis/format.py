"""Numbers as text: cells of tables, intervals, coverage and p-values."""

from rewardlab.analysis.measurements import Row


def number(value: float | None, decimals: int = 2) -> str:
    """Return a number for people; a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.{decimals}f}"


def interval(row: Row, decimals: int = 2) -> str:
    """Return the 95 % interval of a number, nothing where it has none."""
    return "" if row.low is None or row.high is None else f"[{row.low:.{decimals}f}, {row.high:.{decimals}f}]"


def coverage(row: Row) -> str:
    """Return how many of the asked trials are behind a number."""
    return f"{row.scored}/{row.asked}"


def severity_reached(value: float | None) -> str:
    """Return a reliability threshold in words that fit a cell."""
    if value is None:
        return "-"
    return "none" if value < 0 else f"{value:.0f}"


def format_p_value(p: float | None) -> str:
    """Return a p-value as people write it."""
    return "p unknown" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
