"""Commands `runs list / sql / join / prune`: runs below a folder."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rewardlab.core.errors import PlanError, RewardlabError, RunError, require_packages
from rewardlab.core.run import ATTACK, RECORD, SUMMARY, Run
from rewardlab.core.settings import Help, several
from rewardlab.core.storage import atomic_write, csv_text, locked, writable
from rewardlab.core.trial_table import INFO_COLUMNS, TRIAL_COLUMNS, trial_schema

if TYPE_CHECKING:
    import pyarrow

State = Literal["finished", "scored", "open", "unreadable"]
FILTERS = ("name", "kind", "model", "data", "state", "version", "before", "after")
_DEEPEST = 4  # folders below the one that is searched
RunsFolder = Annotated[Path | str, Help("folder that holds run folders")]
RunFilter = Annotated[
    str | Sequence[str],
    Help(f"only runs that match; * stands for anything; keys: {', '.join(FILTERS)}", metavar="KEY=PATTERN"),
]


@dataclass(frozen=True)
class RunEntry:
    """A run as a list shows it: `planned` trials, `trials` on disk; `problem` says why it cannot be read."""

    run: Run
    name: str
    state: State
    kind: str = ""
    models: tuple[str, ...] = ()
    data: str = ""
    version: str = ""
    created: str = ""
    episodes: int = 0
    planned: int = 0
    trials: int = 0
    problem: str = ""


def runs_list(folder: RunsFolder = "runs", *, where: RunFilter = ()) -> list[RunEntry]:
    """List the runs below a folder, the oldest first.

    A filter is KEY=PATTERN; before=DATE and after=DATE compare when a run was created.

    Examples:
        rewardlab runs list
        rewardlab runs list runs --where model=pocket*,state=finished
    """
    top = Path(folder)
    if not top.is_dir():
        raise PlanError(f"no folder at {str(top)!r}; name one that holds run folders")
    conditions = [_condition(text) for text in several(where)]
    found: list[RunEntry] = []
    for place, folders, names in os.walk(top):  # which follows no links to folders
        depth = len(Path(place).relative_to(top).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < _DEEPEST else []
        if RECORD in names:
            folders.clear()  # nothing below a run is searched
            found.append(_entry(top, Path(place)))
    kept = [entry for entry in found if all(_matches(entry, key, value) for key, value in conditions)]
    return sorted(kept, key=lambda entry: (entry.created, entry.name))


def _entry(folder: Path, path: Path) -> RunEntry:
    run, name = Run(path), path.relative_to(folder).as_posix()
    name = name if name != "." else path.resolve().name
    try:
        record = run.record
        made = (record.version, record.created, record.episodes, record.trials, _stored_trials(run))
    except RewardlabError as error:
        return RunEntry(run, name, "unreadable", problem=str(error))
    return RunEntry(run, name, _state(run, record.kind), record.kind, record.evaluated, record.settings.data, *made)


def _state(run: Run, kind: str) -> State:
    """Return how far a run is: `relabel` keeps no result beside its trials, and a shard has none of its own."""
    if any((run.folder / name).is_file() for name in (SUMMARY, ATTACK)):
        return "finished"
    if not run.is_compact:
        return "open"
    return "finished" if kind == "relabel" else "scored"


def _stored_trials(run: Run) -> int:
    """Return how many trials the footers of the files state, unchecked; trials scored again count twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = 0
    for path in run.parts():
        try:
            found += pq.read_metadata(path).num_rows if path.is_file() else 0
        except (pa.ArrowException, OSError, ValueError):  # whoever reads the trials reports it
            continue
    return found


def _condition(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not mark or key.strip() not in FILTERS:
        raise PlanError(f"a condition must be KEY=PATTERN with a key among {', '.join(FILTERS)}, got {text!r}")
    return key.strip(), value.strip()


def _matches(entry: RunEntry, key: str, value: str) -> bool:
    if key == "before":
        return bool(entry.created) and entry.created < value
    if key == "after":
        return entry.created >= value
    texts = entry.models if key == "model" else (vars(entry)[key],)
    return any(fnmatchcase(text, value) for text in texts)


_OF_RUN = ("run", "kind", "data")  # columns before those of the trials


def runs_join(
    folder: RunsFolder = "runs",
    *,
    out: Annotated[Path | str, Help("the file to write: .parquet or .csv")],
    where: RunFilter = (),
) -> int:
    """Write the trials of many runs into one Parquet or CSV file and return how many there are.

    Examples:
        rewardlab runs join runs --out all.parquet
        rewardlab runs join runs --out pocket.csv --where model=pocket*,state=finished
    """
    import pyarrow.parquet as pq

    path, count = Path(out), 0
    if path.suffix not in (".parquet", ".csv"):
        raise PlanError(f"--out must be a file that ends in .parquet or .csv, got {str(path)!r}")
    entries = runs_list(folder, where=where)
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


def joined_schema(columns: Sequence[str] = TRIAL_COLUMNS) -> "pyarrow.Schema":
    """Return the columns of a joined table."""
    import pyarrow as pa

    trial = trial_schema()
    return pa.schema([*((name, pa.string()) for name in _OF_RUN), *(trial.field(name) for name in columns)])


def trials_of_runs(entries: Sequence[RunEntry], columns: Sequence[str] = TRIAL_COLUMNS) -> Iterator["pyarrow.Table"]:
    """Yield the trials of each run, one run at a time; RunError names a run that cannot be read."""
    import pyarrow as pa

    schema = joined_schema(columns)
    for entry in entries:
        if entry.state == "unreadable":
            raise RunError(f"{entry.name}: {entry.problem}; leave it out with --where state=finished")
        kept = tuple(dict.fromkeys((*columns, "id", "status")))
        trials = entry.run.trials(kept).arrow.select(list(columns))
        stated = [pa.array([text] * len(trials), pa.string()) for text in (entry.name, entry.kind, entry.data)]
        yield pa.table([*stated, *trials.columns], schema=schema)


_LOCKED = {  # settings that no query can change again
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
# Read where a query names them.
_LARGE = ("raw", "progress", "truth_progress", "truth_stages", "probabilities", "shown", *INFO_COLUMNS)


def runs_sql(
    sql: Annotated[str, Help("one SELECT over the tables `trials` and `runs`", metavar="SELECT")],
    folder: RunsFolder = "runs",
    *,
    where: RunFilter = (),
) -> "pyarrow.Table":
    """Query the trials of many runs in SQL; the result is an Arrow table. Needs the extra `sql`.

    A query can use only the tables `trials` and `runs`: no file, no address, no Python. The large columns
    (raw, progress, probabilities, shown) exist only if the query names them; `*` selects the others.

    Examples:
        rewardlab runs sql "SELECT model, avg(level) FROM trials GROUP BY model"
        rewardlab runs sql "SELECT count(*) FROM trials" runs --where state=finished --json
    """
    entries = runs_list(folder, where=where)
    require_packages("SQL", "duckdb", extra="sql")
    import duckdb
    import pyarrow as pa

    try:
        kinds = [str(statement.type).rpartition(".")[2] for statement in duckdb.extract_statements(sql)]
        if kinds != ["SELECT"]:
            raise PlanError(f"expected one SELECT, got {', '.join(kinds) or 'nothing'}; queries change nothing")
        named = set(re.findall(r"\w+", sql.lower()))
        columns = tuple(name for name in TRIAL_COLUMNS if name not in _LARGE or name in named)
        trials = pa.concat_tables([joined_schema(columns).empty_table(), *trials_of_runs(entries, columns)])
        with duckdb.connect(":memory:", config=_LOCKED) as connection:
            connection.register("trials", trials)
            connection.register("runs", _run_table(entries))
            return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        what = " ".join(str(error).split())[:400]
        raise PlanError(f"the query cannot be answered: {what}; the tables are trials and runs") from None


def _run_table(entries: Sequence[RunEntry]) -> "pyarrow.Table":
    import pyarrow as pa

    names = ("name", "state", "kind", "data", "version", "created", "episodes", "planned", "trials", "problem")
    columns = {name: [vars(entry)[name] for entry in entries] for name in names}
    numbers = ("episodes", "planned", "trials")
    fields = [(name, pa.int64() if name in numbers else pa.string()) for name in names]
    models = pa.array([list(entry.models) for entry in entries], pa.list_(pa.string()))
    return pa.table(columns, schema=pa.schema(fields)).append_column("models", models)


def runs_prune(
    folder: RunsFolder = "runs",
    *,
    where: RunFilter,
    yes: Annotated[bool, Help("remove them; without it they are only listed")] = False,
) -> list[RunEntry]:
    """Remove the runs that match and return them; without `yes` nothing is removed.

    Nothing is removed if one of the runs is being written, cannot be read, or leads outside the folder.

    Examples:
        rewardlab runs prune runs --where state=open
        rewardlab runs prune runs --where state=open --yes
    """
    if not several(where):
        raise PlanError("prune needs a condition, such as --where state=open; name=* is every run")
    entries, top = runs_list(folder, where=where), Path(folder).resolve()
    for entry in entries if yes else ():
        path = entry.run.folder
        if entry.state == "unreadable":  # a run.json may be anybody's
            raise RunError(f"{path} cannot be read as a run, so it is not removed; remove it by hand if it is yours")
        if path.is_symlink() or not path.resolve().is_relative_to(top) or not (path / RECORD).is_file():
            raise RunError(f"{path} is no run folder below {Path(folder)}; remove it by hand if it is yours")
        with locked(path):  # nobody is writing it
            pass
    for entry in entries if yes else ():
        with writable(entry.run.folder):
            shutil.rmtree(entry.run.folder)
    return entries
