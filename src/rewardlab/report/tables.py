"""The tables of a summary, as text for cells: used by the terminal and by the page."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rewardlab.bench.summarise import Row
from rewardlab.report.summary import Summary

HEADLINE = (  # metric, heading, decimals
    ("macro_mae", "MAE", 2),
    ("micro_mae", "micro", 2),
    ("exact_accuracy", "exact", 2),
    ("within_one_accuracy", "±1", 2),
    ("success_accuracy", "success", 2),
    ("kendall_tau_b", "tau-b", 2),
)


def number(value: float | None, decimals: int = 2) -> str:
    """Return a number for people; a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.{decimals}f}"


def coverage(row: Row) -> str:
    """Return how many of the asked trials are behind a number."""
    return f"{row.scored}/{row.asked}"


def severity_reached(value: float | None) -> str:
    """Return a reliability threshold in words that fit a cell."""
    if value is None:
        return "-"
    return "none" if value < 0 else f"{value:.0f}"


def print_summary(summary: Summary, console: Console) -> None:
    """Print how good the models are when clean, and how far they can be pushed."""
    console.print(_clean_table(summary))
    if summary.categories:
        console.print(_stress_table(summary))


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("model", no_wrap=True)
    return table


def _clean_table(summary: Summary) -> Table:
    """Return the clean numbers; a value that rests on other trials than the first one says so itself."""
    table = _table("Clean episodes")
    for _, heading, _ in HEADLINE:
        table.add_column(heading, justify="right")
    table.add_column("trials", justify="right")
    table.add_column("failed", justify="right")
    for model in summary.models:
        cells = [(summary.clean(model, metric), decimals) for metric, _, decimals in HEADLINE]
        usual = coverage(cells[0][0])
        values = [number(row.value, decimals) + _unusual(coverage(row), usual) for row, decimals in cells]
        table.add_row(_name(summary, model), *values, usual, str(summary.counts.get(model, {}).get("failed", 0)))
    return table


def _unusual(cover: str, usual: str) -> str:
    return "" if cover == usual else f" [dim]{cover}[/dim]"


def _stress_table(summary: Summary) -> Table:
    least = f"{summary.reliable_at:.2f}"
    table = _table(f"Success accuracy at severity 4, trials, and the last severity with {least} or more")
    for category in summary.categories:
        table.add_column(category, justify="right")
    for model in summary.models:
        table.add_row(_name(summary, model), *(_worst(summary, model, category) for category in summary.categories))
    return table


def _worst(summary: Summary, model: str, category: str) -> str:
    row = summary.row(model, category, 4, "success_accuracy")
    reached = severity_reached(summary.reliability.get(model, {}).get(category))
    return f"{number(row.value)} [dim]{coverage(row)}[/dim] {reached:>4}"


def _name(summary: Summary, model: str) -> str:
    safe = model.replace("[", r"\[")
    return f"[bold]{safe}[/bold]" if model in summary.judged else safe
