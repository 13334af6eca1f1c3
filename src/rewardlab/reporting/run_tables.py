"""`rewardlab runs`: the runs of a folder as a table, what a query says of their trials, and how they are removed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from rewardlab.analysis.run_collection import FILTERS, RunEntry
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.core.terminal_console import safe_markup

if TYPE_CHECKING:
    import pyarrow

_CELL = 60  # characters of a value in a table
_ROWS = 200  # of a query's answer on a terminal


@dataclass(frozen=True)
class RunsPlan:
    """List the runs below a folder, ask their trials in SQL, join them in one file, or remove runs."""

    folder: Path = setting("folder that holds run folders", Path("runs"), positional=True)
    where: tuple[str, ...] = setting(f"only runs that match KEY=PATTERN, * for anything, of {', '.join(FILTERS)}", ())
    sql: str | None = setting("one SELECT over the tables trials and runs (extra sql)", None)
    join: Path | None = setting("write the trials of all these runs into one .parquet or .csv file", None)
    prune: bool = setting("remove these runs; without --yes it says which", False)
    yes: bool = setting("remove without asking again", False)
    json: bool = setting("print JSON", False)

    def __post_init__(self) -> None:
        if sum((self.sql is not None, self.join is not None, self.prune)) > 1:
            raise PlanError("choose one of sql, join and prune")
        if self.prune and not self.where:
            raise PlanError("prune needs a condition, such as --where state=open; name=* is every run")


def run_table(entries: Sequence[RunEntry]) -> Table:
    """Return the runs as a table, one line each."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "kind", "models", "data", "episodes", "cells", "made"):
        table.add_column(heading, justify="right" if heading in ("episodes", "cells") else "left")
    for entry in entries:
        cells = f"{entry.trials:,}/{entry.cells:,}" if entry.trials != entry.cells else f"{entry.cells:,}"
        made = (entry.kind, ", ".join(entry.models), entry.data, f"{entry.episodes:,}", cells, entry.created[:16])
        if entry.state == "unreadable":
            made = (entry.problem, "", "", "", "", "")
        table.add_row(*(safe_markup(text[:_CELL]) for text in (entry.name, entry.state, *made)))
    return table


def answer_table(answer: "pyarrow.Table") -> Table:
    """Return the answer to a query as a table; only the first rows where there are many."""
    table = Table(box=None, pad_edge=False)
    for name in answer.column_names:
        table.add_column(safe_markup(name))
    for row in answer.slice(0, _ROWS).to_pylist():
        table.add_row(*(safe_markup(_shown(value)) for value in row.values()))
    if answer.num_rows > _ROWS:
        table.caption = f"{answer.num_rows - _ROWS:,} more rows; --json prints all"
    return table


def rows_json(rows: Sequence[Any]) -> str:
    """Return rows as JSON lines; values that JSON lacks as text."""
    return "\n".join(json.dumps(row, default=str, ensure_ascii=False) for row in rows)


def entry_row(entry: RunEntry) -> dict[str, object]:
    """Return a run as JSON holds it."""
    return {name: str(value.folder) if name == "run" else value for name, value in vars(entry).items()}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)[:_CELL]
