"""Runs below a folder: what each is, how far it got, and which of them a filter keeps."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.run import RECORD, SUMMARY, Run
from rewardlab.core.run_record import RunRecord

State = Literal["finished", "open", "unreadable"]
FILTERS = ("name", "kind", "model", "data", "state", "version", "before", "after")
_DEEPEST = 4  # folders below the one that is searched


@dataclass(frozen=True)
class RunEntry:
    """A run as a list shows it; `cells` are planned and `trials` there, `problem` says why it cannot be read."""

    run: Run
    name: str
    state: State
    kind: str = ""
    models: tuple[str, ...] = ()
    data: str = ""
    version: str = ""
    created: str = ""
    episodes: int = 0
    cells: int = 0
    trials: int = 0
    problem: str = ""


def find_runs(folder: Path, where: Sequence[str] = ()) -> list[RunEntry]:
    """Return the runs below a folder, or the run that it is, that match every condition, the oldest first.

    A condition is KEY=PATTERN, where * stands for anything; before=DATE and after=DATE compare when a run was made.
    """
    if not folder.is_dir():
        raise PlanError(f"no folder at {str(folder)!r}; name one that holds run folders")
    conditions = [_condition(text) for text in where]
    found = (_entry(folder, path) for path in _run_folders(folder))
    kept = [entry for entry in found if all(_matches(entry, key, value) for key, value in conditions)]
    return sorted(kept, key=lambda entry: (entry.created, entry.name))


def _run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders with a record; links to folders are not followed, and nothing below a run is searched."""
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < _DEEPEST else []
        if RECORD in names:
            folders.clear()
            yield Path(place)


def _entry(folder: Path, path: Path) -> RunEntry:
    run, name = Run(path), path.relative_to(folder).as_posix()
    name = name if name != "." else path.resolve().name
    try:
        return _readable(run, name, run.record)
    except RewardlabError as error:
        return RunEntry(run, name, "unreadable", problem=str(error))


def _readable(run: Run, name: str, record: RunRecord) -> RunEntry:
    state: State = "finished" if (run.folder / SUMMARY).is_file() else "open"
    made = (record.version, record.created, record.episodes, record.cells)
    return RunEntry(run, name, state, record.kind, record.judged, record.settings.data, *made, _stored_trials(run))


def _stored_trials(run: Run) -> int:
    """Return how many trials the files promise by their footers, nothing checked; cells asked again count twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = 0
    for path in run.parts():
        try:
            found += pq.read_metadata(path).num_rows if path.is_file() else 0
        except (pa.ArrowException, OSError, ValueError):  # told by whoever reads the trials
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
    if key == "model":
        return any(fnmatchcase(model, value) for model in entry.models)
    texts = {"name": entry.name, "kind": entry.kind, "data": entry.data, "state": entry.state, "version": entry.version}
    return fnmatchcase(texts[key], value)
