"""What people decided, in SQLite."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from rewardlab.core.episode import FAILURE_CAUSES, LEVELS
from rewardlab.core.errors import RunError
from rewardlab.serving.listening import RequestRejected

Decision = Literal["accept", "reject", "correct", "flag"]
DECISIONS: tuple[Decision, ...] = get_args(Decision)
REJECTED, FLAGGED = 0, -1  # outcomes beside the levels 1 to 5


@dataclass(frozen=True)
class Verdict:
    """The verdict of one person on one row; `level` is the correct level, None if the row should have none.

    Where the rollout failed, the person may say why, and at which frame of the video.
    """

    item: str
    annotator: str
    decision: Decision
    level: int | None
    note: str = ""
    rationale_seen: bool = False
    seconds: float = 0.0
    id: int = 0  # in the file of verdicts; 0 before it is written
    made_at: str = ""
    failure_cause: str = ""
    failure_frame: int | None = None

    @property
    def outcome(self) -> int:
        """Return the level, or REJECTED or FLAGGED."""
        if self.decision == "flag":
            return FLAGGED
        return REJECTED if self.level is None else self.level


def is_sound(verdict: Verdict) -> bool:
    """Return whether a verdict from a file is valid; the file may be hostile."""
    if not isinstance(verdict.annotator, str) or not isinstance(verdict.note, str) or verdict.decision not in DECISIONS:
        return False
    if not is_sound_cause(verdict.failure_cause, verdict.failure_frame, verdict.level):
        return False
    leveled = verdict.decision in ("accept", "correct")
    return verdict.level in LEVELS if leveled else verdict.level is None


def is_sound_cause(cause: object, frame: object, level: int | None) -> bool:
    """Return whether a cause is one of a failure, and its frame could be one; no cause and no frame is sound."""
    if not cause and frame is None:
        return cause == ""
    failed = level is not None and level in LEVELS[:-1]
    return cause in FAILURE_CAUSES and failed and (frame is None or (type(frame) is int and frame >= 0))


def majority(verdicts: Iterable[Verdict]) -> int | None:
    """Return the outcome that more than half of them have, None if there is none."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    if not outcomes:
        return None
    outcome, count = outcomes.most_common(1)[0]
    return outcome if 2 * count > outcomes.total() else None


def is_disputed(verdicts: Iterable[Verdict]) -> bool:
    """Return whether another person should look: there is no majority, or a single person flagged the row."""
    given = list(verdicts)
    return bool(given) and (majority(given) is None or (len(given) == 1 and given[0].outcome == FLAGGED))


# Verdicts on disk: an SQLite file in WAL mode; an acknowledged verdict survives a crash of process or machine.

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request TEXT NOT NULL UNIQUE,
    item TEXT NOT NULL,
    annotator TEXT NOT NULL,
    decision TEXT NOT NULL,
    level INTEGER,
    note TEXT NOT NULL,
    rationale_seen INTEGER NOT NULL,
    seconds REAL NOT NULL,
    made_at TEXT NOT NULL,
    standing INTEGER NOT NULL DEFAULT 1,
    failure_cause TEXT NOT NULL DEFAULT '',
    failure_frame INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS one_standing_verdict ON verdicts (item, annotator) WHERE standing = 1;
"""
_LATER = {"failure_cause": "TEXT NOT NULL DEFAULT ''", "failure_frame": "INTEGER"}  # columns that older files lack
_SETTINGS = (
    "PRAGMA trusted_schema = OFF",  # the file may be part of an untrusted dataset
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit returns when it is on the disk
    "PRAGMA busy_timeout = 5000",
)
_COLUMNS = ", ".join(field.name for field in fields(Verdict))


class VerdictStore:
    """The open file; verdicts are only added, and one that is undone or replaced is marked as not standing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _explained_errors(path):
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            with _explained_errors(path):
                for setting in _SETTINGS:
                    self._file.execute(setting)
                self._file.executescript(_SCHEMA)
                there = {name for _, name, *_ in self._file.execute("PRAGMA table_info(verdicts)")}
                for name in _LATER.keys() - there:
                    self._file.execute(f"ALTER TABLE verdicts ADD COLUMN {name} {_LATER[name]}")
            self._version = self._data_version()
        except BaseException:
            self._file.close()
            raise

    def changed_elsewhere(self) -> bool:
        """Return whether another process has written since the last call."""
        before, self._version = self._version, self._data_version()
        return before != self._version

    def standing(self) -> list[Verdict]:
        """Return the verdicts that stand, in the order in which they were given."""
        with _explained_errors(self.path):
            rows = self._file.execute(f"SELECT {_COLUMNS} FROM verdicts WHERE standing = 1 ORDER BY id").fetchall()
        return [verdict for verdict in map(_verdict, rows) if is_sound(verdict)]

    def record(self, verdict: Verdict, request: str) -> Verdict | None:
        """Return the verdict as it is on disk; a request that is sent again changes nothing.

        None if its verdict has been undone since; 409 if the request brought another verdict before.
        """
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        given = {**asdict(replace(verdict, made_at=made_at)), "request": request}
        del given["id"]  # the file gives it
        with self._transaction():
            known = self._file.execute(
                f"SELECT standing, {_COLUMNS} FROM verdicts WHERE request = ?", (request,)
            ).fetchone()
            if known is not None:
                kept = _verdict(known[1:])
                if replace(verdict, id=kept.id, made_at=kept.made_at) != kept:
                    reason = f"request {request} brought another verdict before; send this one under a new id"
                    raise RequestRejected(409, reason)
                return kept if known[0] else None
            self._file.execute(
                "UPDATE verdicts SET standing = 0 WHERE item = ? AND annotator = ?", (verdict.item, verdict.annotator)
            )
            marks = ", ".join("?" * len(given))
            insert = f"INSERT INTO verdicts ({', '.join(given)}) VALUES ({marks})"
            added = self._file.execute(insert, tuple(given.values()))
        return replace(verdict, id=added.lastrowid or 0, made_at=made_at)

    def undo(self, annotator: str, number: int) -> Verdict | None:
        """Return the verdict that is undone; None if this person gave none, 409 if a later one replaced it."""
        with self._transaction():
            mine = (number, annotator)
            found = self._file.execute(
                f"SELECT {_COLUMNS} FROM verdicts WHERE id = ? AND annotator = ?", mine
            ).fetchone()
            later = "SELECT id FROM verdicts WHERE standing = 1 AND id > ? AND annotator = ? AND item = ?"
            if found is not None and self._file.execute(later, (*mine, _verdict(found).item)).fetchone():
                raise RequestRejected(409, f"{annotator} has judged this row again since; undo the later verdict")
            self._file.execute("UPDATE verdicts SET standing = 0 WHERE id = ? AND annotator = ?", mine)
        return None if found is None else _verdict(found)

    def close(self) -> None:
        """Close the file; its log is folded into it."""
        self._file.close()

    def _data_version(self) -> int:
        with _explained_errors(self.path):
            return int(self._file.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what the block does, as a whole or not at all."""
        with _explained_errors(self.path):
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")


def _verdict(row: tuple[Any, ...]) -> Verdict:
    made = Verdict(*row)
    return replace(made, rationale_seen=bool(made.rationale_seen))


@contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    """Raise RunError with one sentence for an error of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(
            f"{path} cannot be used as a file of verdicts ({error}); free the disk, fix the permission, "
            "or name another file with --verdicts"
        ) from error
