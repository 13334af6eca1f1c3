"""Removing runs: only folders that hold a sound run, lie below the one that is named, and are written by nobody."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rewardlab.analysis.run_collection import RunEntry
from rewardlab.core.errors import RunError
from rewardlab.core.run import RECORD, locked, writable


def remove_runs(folder: Path, entries: Sequence[RunEntry]) -> None:
    """Remove these runs; nothing is removed where one of them is being written or leads elsewhere."""
    for entry in entries:
        _require_removable(folder, entry)
    for entry in entries:
        with writable(entry.run.folder):
            shutil.rmtree(entry.run.folder)


def _require_removable(folder: Path, entry: RunEntry) -> None:
    path = entry.run.folder
    if entry.state == "unreadable":  # a run.json may be anybody's
        raise RunError(f"{path} cannot be read as a run, so it is not removed; remove it by hand if it is yours")
    if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()) or not (path / RECORD).is_file():
        raise RunError(f"{path} is no run folder below {folder}; remove it by hand if it is yours")
    with locked(entry.run):
        pass
