"""What lives between requests: the rows, the verdicts on disk and in memory, and the threads that decode clips."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rewardlab.core.errors import DataError
from rewardlab.data.row_listing import ListedRow, RowListing, rows_on_lines, stored_verdicts
from rewardlab.http_server.refused_request import RefusedRequest
from rewardlab.verification.assignments import Assignments
from rewardlab.verification.live_agreement import live_agreement
from rewardlab.verification.verdict_store import VerdictStore
from rewardlab.verification.verdicts import Decision, Verdict
from rewardlab.verification.verified_split import VerifiedSplit, verified_split

Result = TypeVar("Result")

AHEAD = 3  # rows that a page is given at once, so that the next clip is there before it is asked for
_DECODERS = 2


@dataclass(eq=False)
class VerificationServer:
    """The state of a server; one request at a time touches the verdicts."""

    listing: RowListing
    assignments: Assignments
    store: VerdictStore
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _decoders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_DECODERS, "rewardlab decoder"))

    def __post_init__(self) -> None:
        self.assignments.reset(self.store.standing())

    def prepare(self) -> None:
        """Begin to load what decodes clips, in a thread: that takes a while, and the first is asked for soon."""
        self._decoders.submit(_pictures)

    def state_for(self, annotator: str) -> dict[str, Any]:
        """Return what the page of one person shows: the rows to judge, how far it is, and what can be undone."""
        with self._lock:
            self._refresh()
            return self._state(annotator)

    def record(self, verdict: Verdict, request: str) -> dict[str, Any]:
        """Write a verdict to disk, and return the state after it."""
        self.row(verdict.item)
        with self._lock:
            self._refresh()
            kept = self.store.record(verdict, request)
            if kept is not None:
                self.assignments.record(kept)
            return self._state(verdict.annotator)

    def undo(self, annotator: str, number: int) -> dict[str, Any]:
        """Take back a verdict, and return the state after it, with its row first."""
        with self._lock:
            self._refresh()
            undone = self.store.undo(annotator, number)
            if undone is None:
                raise RefusedRequest(404, f"{annotator} has given no verdict {number}; there is nothing to undo")
            self.assignments.remove(undone)
            return self._state(annotator, undone.item)

    def agreement(self) -> dict[str, Any]:
        """Return how far the annotators agree."""
        with self._lock:
            self._refresh()
            return asdict(live_agreement(self.assignments.verdicts.values()))

    def verified(self) -> VerifiedSplit:
        """Return what the verdicts so far say of each row."""
        with self._lock:
            self._refresh()
            return verified_split(self.listing, self.assignments.verdicts)

    def rationale(self, key: str) -> list[dict[str, Any]]:
        """Return what the validator said of a row."""
        listed = self.row(key)
        _, row = next(rows_on_lines(self.listing, {listed.line}))
        return [asdict(verdict) for verdict in stored_verdicts(row)]

    async def pictures(self, key: str, kind: str) -> bytes:
        """Return the frames of a row's clip, or its last one, decoded in a thread."""
        name = self.row(key).file_name
        return await self._decoded(lambda: _pictures()[kind](self.listing.folder, name))

    def row(self, key: str) -> ListedRow:
        """Return a row by its key; a request for another is refused."""
        if key not in self.assignments.by_key:
            raise RefusedRequest(404, "there is no such row in this dataset")
        return self.assignments.by_key[key]

    def close(self) -> None:
        """Close the file of verdicts."""
        self._decoders.shutdown(cancel_futures=True)
        self.store.close()

    async def _decoded(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work)

    def _refresh(self) -> None:
        if self.store.changed_elsewhere():
            self.assignments.reset(self.store.standing())

    def _state(self, annotator: str, first: str = "") -> dict[str, Any]:
        rows = self.assignments.next_rows(annotator, AHEAD)
        if first in self.assignments.by_key:
            rows = [self.assignments.by_key[first], *(row for row in rows if row.key != first)][:AHEAD]
        last = self.assignments.last_of(annotator)
        return {
            "rows": [_row_json(row) for row in rows],
            "progress": asdict(self.assignments.progress(annotator)),
            "undo": None if last is None else {"id": last.id, "decision": last.decision, "level": last.level},
            "data": self.listing.folder.name,
            "problems": len(self.listing.problems),
        }


def _pictures() -> Mapping[str, Callable[[Path, str], bytes]]:
    """Return what makes pictures of a clip, with the libraries that it will need."""
    import av  # noqa: F401  # VideoFile would load it when it opens the first clip

    from rewardlab.verification.shown_frames import last_frame, played_frames

    return {"frames": played_frames, "last": last_frame}


def require_judgeable(row: ListedRow, decision: Decision, level: int | None) -> tuple[Decision, int | None]:
    """Return decision and level of a verdict on a row as they are kept; DataError where they make no sense."""
    if decision == "accept" and row.level is None:
        raise DataError("this row states no level to accept; give one from 1 to 5")
    if decision == "correct" and level is None:
        raise DataError("a correction needs a level from 1 to 5")
    if decision == "correct":
        return ("accept" if level == row.level else "correct"), level
    return decision, row.level if decision == "accept" else None


def _row_json(row: ListedRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "file_name": row.file_name,
        "instruction": row.instruction,
        "level": row.level,
        "source": row.source,
        "stage": row.provenance.stage,
        "explained": row.provenance.explained,
    }
