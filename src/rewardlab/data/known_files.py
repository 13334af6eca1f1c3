"""What earlier commands found out about the files of large datasets, so that a file that stays is read once."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Lock

from rewardlab.core.storage import cache_folder

_TOGETHER = 1000  # findings written at once; fewer are found again sooner than a database is opened
_SETTLED_SECONDS = 2.0  # a file that changed later than this might change again without its times showing it
_WAIT_SECONDS = 1.0  # for another command that writes
_TABLE = "CREATE TABLE IF NOT EXISTS found (kind TEXT, path BLOB, stamp TEXT, what TEXT, PRIMARY KEY (kind, path))"
_KEEP = "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)"
_FIND = "SELECT what FROM found WHERE kind = ? AND path = ? AND stamp = ?"

_lock = Lock()
_new: dict[tuple[str, bytes], tuple[str, str]] = {}  # kind and path: stamp and finding, not yet written
_opened: dict[Path, sqlite3.Connection | None] = {}  # None where there is no database, or none that can be used


def found_of_file(kind: str, path: Path, find: Callable[[], str], depends_on: str = "") -> str:
    """Return what `find` says of a file, or what it said to an earlier command if the file is still the same.

    It is the same if device, inode, size and both times (in nanoseconds) are. The system sets the time of change at
    every write, and programs cannot set it back as they can the date: a file that was replaced or rewritten is read
    again, also with its old size and date. Nothing is kept of a file that changed in the last two seconds, or whose
    file system has no time of change. `depends_on` names what else the finding depends on: versions, limits.
    Findings are kept a thousand at a time, so a small dataset leaves none, in `~/.cache/rewardlab/files.sqlite`; it may
    be deleted at any time, and where it cannot be used files are read.
    """
    stamp, name = _stamp(path, depends_on), os.fsencode(os.path.abspath(path))
    known = _known(kind, name, stamp) if stamp else None
    if known is None:
        known = find()
        if stamp and stamp == _stamp(path, depends_on):  # else it changed meanwhile
            _keep(kind, name, stamp, known)
    return known


def _stamp(path: Path, depends_on: str) -> str:
    """Return what changes whenever the file does; empty where that cannot be known."""
    try:
        facts = path.stat()
    except OSError:
        return ""  # whoever reads it says what is wrong
    if not facts.st_ctime_ns or time.time() - max(facts.st_ctime, facts.st_mtime) < _SETTLED_SECONDS:
        return ""
    numbers = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return " ".join([*map(str, numbers), depends_on])


def _known(kind: str, name: bytes, stamp: str) -> str | None:
    with _lock:
        if (kind, name) in _new:
            kept, what = _new[kind, name]
            return what if kept == stamp else None
        database = _database()
        try:
            row = database.execute(_FIND, (kind, name, stamp)).fetchone() if database else None
        except sqlite3.Error:
            _close_all()  # it is asked no more: each time might wait as long
            return None
    return str(row[0]) if row else None


def _keep(kind: str, name: bytes, stamp: str, what: str) -> None:
    with _lock:
        _new[kind, name] = (stamp, what)
        if len(_new) < _TOGETHER:
            return
        rows = [(*key, *finding) for key, finding in _new.items()]
        _new.clear()
        try:
            place = _place()
            place.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(place, timeout=_WAIT_SECONDS)) as database, database:
                database.execute(_TABLE)
                database.executemany(_KEEP, rows)
        except (OSError, RuntimeError, sqlite3.Error):
            return  # the next command reads these files again
        if _opened.get(place) is None:
            _opened.pop(place, None)  # now there is one


def _database() -> sqlite3.Connection | None:
    """Return the database of earlier commands, opened once in a process; None where there is none."""
    try:
        place = _place()
        if place not in _opened:
            there = place.is_file()
            _opened[place] = sqlite3.connect(place, timeout=_WAIT_SECONDS, check_same_thread=False) if there else None
    except (OSError, RuntimeError, sqlite3.Error):  # RuntimeError: there is no home
        return None
    return _opened[place]


def _close_all() -> None:
    """Close every database; this process opens none of them again."""
    for database in filter(None, _opened.values()):
        database.close()
    _opened.update(dict.fromkeys(_opened))


def _place() -> Path:
    return cache_folder() / "files.sqlite"


def _begin_again() -> None:
    """Forget, in a forked process, what must not be shared with the process that it came from."""
    global _lock
    _lock = Lock()
    _new.clear()
    _opened.clear()


os.register_at_fork(after_in_child=_begin_again)
