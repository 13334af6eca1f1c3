"""The trials of many runs as one table: those of each run checked, with the run that they are of in front."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.analysis.run_collection import RunEntry
from rewardlab.core.csv_export import csv_text
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import atomic_write
from rewardlab.core.trial import TRIAL_COLUMNS, trial_schema

if TYPE_CHECKING:
    import pyarrow

_OF_RUN = ("run", "kind", "data")  # columns before those of the trials


def joined_schema(columns: Sequence[str] = TRIAL_COLUMNS) -> "pyarrow.Schema":
    """Return the columns of a joined table."""
    import pyarrow as pa

    trial = trial_schema()
    return pa.schema([*((name, pa.string()) for name in _OF_RUN), *(trial.field(name) for name in columns)])


def trials_of_runs(entries: Sequence[RunEntry], columns: Sequence[str] = TRIAL_COLUMNS) -> Iterator["pyarrow.Table"]:
    """Yield the trials of each run, one run at a time; a run that cannot be read is refused by its name."""
    import pyarrow as pa

    schema = joined_schema(columns)
    for entry in entries:
        if entry.state == "unreadable":
            raise RunError(f"{entry.name}: {entry.problem}; leave it out with --where state=finished")
        kept = tuple(dict.fromkeys((*columns, "id", "status")))
        trials = entry.run.trials(kept).arrow.select(list(columns))
        stated = [pa.array([text] * len(trials), pa.string()) for text in (entry.name, entry.kind, entry.data)]
        yield pa.table([*stated, *trials.columns], schema=schema)


def write_joined(entries: Sequence[RunEntry], path: Path) -> int:
    """Write the trials of all runs into one Parquet or CSV file, and return how many there are."""
    import pyarrow.parquet as pq

    if path.suffix not in (".parquet", ".csv"):
        raise PlanError(f"trials are joined in a .parquet or .csv file, got {str(path)!r}")
    count = 0
    with atomic_write(path) as partial:
        if path.suffix == ".csv":
            rows = [row for table in trials_of_runs(entries) for row in table.to_pylist()]
            names = joined_schema().names
            partial.write_text(csv_text([names, *([row[name] for name in names] for row in rows)]), encoding="utf-8")
            return len(rows)
        with pq.ParquetWriter(partial, joined_schema(), compression="zstd") as writer:
            for table in trials_of_runs(entries):
                writer.write_table(table)
                count += table.num_rows
    return count
