"""Run: a folder that holds a plan, its trials and its report, and can be resumed after any interruption."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.errors import RunError
from rewardlab.core.seeding import digest
from rewardlab.core.summary import Measurement, Summary, is_older_summary
from rewardlab.core.trial import Trial, TrialTable, to_arrow, trial_schema

if TYPE_CHECKING:
    import pandas
    import pyarrow

RECORD, SUMMARY = "run.json", "summary.json"
_SHOWN = {"macro_mae": "MAE", "success_accuracy": "success accuracy", "kendall_tau_b": "tau-b"}  # in a notebook


@dataclass(frozen=True)
class Run:
    """A run folder: `run.json` says what was planned, `trials/*.parquet` what came out."""

    folder: Path

    @property
    def record(self) -> dict[str, object]:
        """Return what run.json says: the plan, the command, the versions."""
        path = self.folder / RECORD
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            raise RunError(
                f"{self.folder} is not a run folder: it has no {RECORD}; give the folder `stress` printed"
            ) from None
        except json.JSONDecodeError as error:
            raise RunError(
                f"{path} is not JSON ({error}); restore it or start the run anew in another folder"
            ) from error
        if not isinstance(record, dict):
            raise RunError(f"{path} must hold a JSON object, got {type(record).__name__}")
        return record

    def parts(self) -> list[Path]:
        """Return the Parquet parts written so far."""
        return sorted((self.folder / "trials").glob("*.parquet"))

    def trials(self) -> TrialTable:
        """Return every trial once, ordered by id, so that no result depends on the order of work."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = [_read_part(path) for path in self.parts()]
        table = pa.concat_tables(tables) if tables else trial_schema().empty_table()
        table = table.take(pc.sort_indices(table, [("id", "ascending"), ("status", "descending")]))
        ids = table["id"].to_pylist()
        first = [i for i, trial_id in enumerate(ids) if i == 0 or trial_id != ids[i - 1]]
        return TrialTable(table.take(pa.array(first, type=pa.int64())))

    def to_arrow(self) -> "pyarrow.Table":
        """Return every trial as an Arrow table, one column per field of Trial."""
        return self.trials().arrow

    def to_pandas(self) -> "pandas.DataFrame":
        """Return every trial as a pandas DataFrame; pandas must be installed."""
        return self.to_arrow().to_pandas()

    @property
    def page(self) -> Path:
        """Return where the report of this run is, or will be."""
        return self.folder / "report.html"

    @property
    def summary(self) -> Summary:
        """Return everything measured and found, as summary.json holds it; a run that was stopped has none yet."""
        found = self.stored_summary()
        if found is None:
            raise RunError(f"{self.folder} has no {SUMMARY} of this version: finish the run, its command goes on")
        return found

    def stored_summary(self) -> Summary | None:
        """Return what summary.json holds; None where there is none, or where an earlier version wrote it."""
        path = self.folder / SUMMARY
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return None if is_older_summary(content) else Summary.from_json(content)
        except FileNotFoundError:
            return None
        except ValueError as error:  # bytes that are no text are one too
            hint = "remove it, and it is made anew"
            raise RunError(f"{path} is not a summary of this version: {error}; {hint}") from error

    def _repr_html_(self) -> str:
        """Show the models on clean episodes and a link to the report, in a notebook."""
        summary = self.summary
        head = "".join(f"<th>{heading}</th>" for heading in ("model", *_SHOWN.values(), "scored"))
        rows = "".join(
            _html_row(model, [summary.clean(model, metric) for metric in _SHOWN]) for model in summary.models
        )
        link = f'<a href="{escape(self.page.resolve().as_uri())}">{escape(str(self.page))}</a>'
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{link if self.page.exists() else ''}"

    def append(self, trials: Sequence[Trial]) -> None:
        """Write trials as one part; afterwards they survive any crash of this process."""
        if trials:
            name = digest(*(trial.id for trial in trials))
            write_parquet(to_arrow(trials), self.folder / "trials" / f"part-{name}.parquet")

    def compact(self) -> None:
        """Join all parts into one, so that a finished run is the same file however it got there."""
        old = self.parts()
        table = self.trials().arrow
        target = self.folder / "trials" / "all.parquet"
        write_parquet(table, target)
        for path in old:
            if path != target:
                path.unlink()

    def save(self, name: str, content: object) -> None:
        """Write a JSON file of the run in one step."""
        with atomic_write(self.folder / name) as partial:
            partial.write_text(json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")


def start_run(folder: Path, record: dict[str, object]) -> Run:
    """Create the run folder, or reopen it if it was planned alike; refuse to mix two plans."""
    run = Run(folder)
    if (folder / RECORD).exists():
        if run.record.get("plan") != json.loads(json.dumps(record["plan"])):
            raise RunError(f"{folder} holds a run with other settings; choose another --out or remove that folder")
        return run
    with writable(folder):
        (folder / "trials").mkdir(parents=True, exist_ok=True)
    run.save(RECORD, record)
    return run


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Hold the run for this process; a second writer is told so at once. The lock dies with the process."""
    try:
        import fcntl
    except ImportError:
        raise RunError("runs are written on Linux and macOS, whose file locks they need; use WSL on Windows") from None
    with writable(run.folder):
        handle = (run.folder / "lock").open("w")
    with handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{run.folder} is being written by another process; wait for it or choose another --out"
            ) from None
        yield


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free the space or fix the permission, "
            "then run the same command again: finished cells are kept"
        ) from error


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` and rename it when done, so that readers never see half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writable(path):
        try:
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_parquet(table: object, path: Path) -> None:
    """Write an Arrow table in one step."""
    import pyarrow.parquet as pq

    with atomic_write(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def _read_part(path: Path) -> "object":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, schema=trial_schema())
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(
            f"cannot read {path}: {error}; remove that part and run again: its cells are scored anew"
        ) from error


def _html_row(model: str, found: Sequence[Measurement]) -> str:
    cells = [f"<td>{escape(model)}</td>"]
    for m in found:
        ends = "" if m.low is None or m.high is None else f" [{m.low:.2f}, {m.high:.2f}]"
        cells.append(f"<td>{'-' if m.value is None else f'{m.value:.2f}'}{ends}</td>")
    return f"<tr>{''.join(cells)}<td>{found[0].scored}/{found[0].asked}</td></tr>"
