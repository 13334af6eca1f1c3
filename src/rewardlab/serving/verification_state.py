"""State of the verify page: rows, who judges which next, live agreement, and frames as JPEG."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.records import none_if_nan
from rewardlab.core.seeding import digest, rng_for
from rewardlab.data.row_listing import ListedRow, RowListing, rows_on_lines, stored_verdicts
from rewardlab.data.safe_files import path_inside
from rewardlab.data.video import VideoFile, frame_policy
from rewardlab.metrics.annotator_agreement import cohen_kappa, krippendorff_alpha
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.verdicts import FLAGGED, REJECTED, Decision, Verdict, VerdictStore, is_disputed, is_sound_cause
from rewardlab.serving.verified_split import VerifiedSplit, verified_split

_LEASE_SECONDS = 15 * 60  # a row that one person is shown is not given to others for so long


@dataclass(frozen=True)
class Progress:
    """How far one person and all together are."""

    rows: int
    mine: int  # rows that this person judged
    left: int  # rows that still wait for this person
    done: int  # rows that need no further verdict
    disputed: int


@dataclass(eq=False)
class Assignments:
    """The verdicts that stand, by row and person, and who is looking at which row."""

    rows: Sequence[ListedRow]
    overlap: float
    seed: int
    clock: Callable[[], float] = time.monotonic
    verdicts: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _by_person: dict[str, dict[str, Verdict]] = field(default_factory=dict)  # the newest last
    _unfinished: dict[str, bool] = field(default_factory=dict)  # begun rows that need more, and whether disputed
    _leases: dict[str, dict[str, float]] = field(default_factory=dict)  # person, row, until when

    def __post_init__(self) -> None:
        self.by_key = {row.key: row for row in self.rows}
        shuffled = [self.rows[place] for place in rng_for(self.seed, "order of rows").permutation(len(self.rows))]
        self._order = [row.key for row in sorted(shuffled, key=lambda row: not row.provenance.doubted)]

    def reset(self, standing: Iterable[Verdict]) -> None:
        """Take these as all verdicts that stand; those on rows that are not here are left alone."""
        self.verdicts, self._by_person, self._unfinished = {}, {}, {}
        for verdict in standing:
            self.record(verdict)

    def record(self, verdict: Verdict) -> None:
        """Note a verdict, in place of an earlier one of the same person."""
        if verdict.item not in self.by_key:
            return
        self._forget(verdict)
        self.verdicts.setdefault(verdict.item, {})[verdict.annotator] = verdict
        self._by_person.setdefault(verdict.annotator, {})[verdict.item] = verdict
        self._leases.get(verdict.annotator, {}).pop(verdict.item, None)
        self._weigh(verdict.item)

    def remove(self, verdict: Verdict) -> None:
        """Forget a verdict that was undone, and keep its row for the person who judged it."""
        if verdict.item not in self.by_key:
            return
        self._forget(verdict)
        self._weigh(verdict.item)
        self._lease(verdict.item, verdict.annotator)

    def next_rows(self, annotator: str, count: int) -> list[ListedRow]:
        """Return the rows for a person to judge, first those that they were shown already; others do not get them."""
        chosen: dict[str, ListedRow] = {}
        for key in self._candidates(annotator):
            if len(chosen) == count:
                break
            if key not in chosen and self._is_open(key, annotator):
                chosen[key] = self.by_key[key]
        for key in chosen:
            self._lease(key, annotator)
        return list(chosen.values())

    def last_of(self, annotator: str) -> Verdict | None:
        """Return the newest verdict of a person that stands."""
        return next(reversed(self._by_person.get(annotator, {}).values()), None)

    def progress(self, annotator: str) -> Progress:
        """Return how far one person and all together are."""
        mine = self._by_person.get(annotator, {})
        done = len(self.verdicts) - len(self._unfinished)
        left = len(self.rows) - done - sum(key in mine for key in self._unfinished)
        return Progress(len(self.rows), len(mine), left, done, sum(self._unfinished.values()))

    def _candidates(self, annotator: str) -> Iterator[str]:
        """Yield rows that a person may be given, the most useful first."""
        now = self.clock()
        yield from [key for key, until in self._leases.get(annotator, {}).items() if until > now]
        yield from [key for key, disputed in self._unfinished.items() if disputed]
        yield from list(self._unfinished)
        yield from (key for key in self._order if key not in self.verdicts)

    def _is_open(self, key: str, annotator: str) -> bool:
        given, now = self.verdicts.get(key, {}), self.clock()
        looking = sum(held.get(key, 0.0) > now for name, held in self._leases.items() if name != annotator)
        return annotator not in given and len(given) + looking < self._wanted(key)

    def _wanted(self, key: str) -> int:
        """Return how many verdicts a row needs: one, two for a share of them, and one more while they disagree."""
        given = self.verdicts.get(key, {})
        if is_disputed(given.values()):
            return len(given) + 1
        return 2 if int(digest(self.seed, "overlap", key), 16) < self.overlap * 2**64 else 1

    def _weigh(self, key: str) -> None:
        """Note whether a row with verdicts needs another."""
        given = self.verdicts.get(key, {})
        self._unfinished.pop(key, None)
        if given and len(given) < self._wanted(key):
            self._unfinished[key] = is_disputed(given.values())

    def _forget(self, verdict: Verdict) -> None:
        given = self.verdicts.get(verdict.item, {})
        given.pop(verdict.annotator, None)
        self._by_person.get(verdict.annotator, {}).pop(verdict.item, None)
        if not given:
            self.verdicts.pop(verdict.item, None)

    def _lease(self, key: str, annotator: str) -> None:
        self._leases.setdefault(annotator, {}).setdefault(key, 0.0)  # a row that was shown keeps its place
        self._leases[annotator][key] = self.clock() + _LEASE_SECONDS


# Agreement so far: kappa of each pair of annotators, and Krippendorff's alpha of all.

Labels = NDArray[np.float64]  # rows of the dataset x annotators; nan without a verdict


@dataclass(frozen=True)
class PairAgreement:
    """Two annotators: rows that both judged, the share judged alike, and kappa; None where it is not defined."""

    first: str
    second: str
    rows: int
    alike: float | None
    kappa: float | None
    weighted_kappa: float | None  # of levels, by the square of their distance


@dataclass(frozen=True)
class Agreement:
    """All annotators: rows that two or more judged, and alpha of outcomes and of levels."""

    rows: int
    alpha: float | None  # of outcomes: a level or a rejection
    alpha_of_levels: float | None  # ordinal
    pairs: tuple[PairAgreement, ...]


def live_agreement(verdicts: Iterable[Mapping[str, Verdict]]) -> Agreement:
    """Return the agreement over rows, each with its verdicts by annotator; flags are no labels and do not count."""
    rows = [{name: v.outcome for name, v in row.items() if v.outcome != FLAGGED} for row in verdicts]
    shared = [row for row in rows if len(row) > 1]
    names = sorted({name for row in shared for name in row})
    outcomes = np.array([[row.get(name, np.nan) for name in names] for row in shared]).reshape(len(shared), len(names))
    levels = np.where(outcomes == REJECTED, np.nan, outcomes)
    alpha, of_levels = krippendorff_alpha(outcomes), krippendorff_alpha(levels, "ordinal")
    pairs = [_pair(names[i], names[j], outcomes[:, [i, j]]) for i, j in combinations(range(len(names)), 2)]
    known = tuple(pair for pair in pairs if pair.rows)
    return Agreement(len(shared), none_if_nan(alpha), none_if_nan(of_levels), known)


def _pair(first: str, second: str, outcomes: Labels) -> PairAgreement:
    both = outcomes[~np.isnan(outcomes).any(axis=1)]
    levels = np.where(both == REJECTED, np.nan, both)
    alike = float((both[:, 0] == both[:, 1]).mean()) if len(both) else None
    kappa, weighted = cohen_kappa(both[:, 0], both[:, 1]), cohen_kappa(levels[:, 0], levels[:, 1], "quadratic")
    return PairAgreement(first, second, len(both), alike, none_if_nan(kappa), none_if_nan(weighted))


AHEAD = 3  # rows that a page gets at once, so that it can load the next clip early
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
        """Start to import the decoder in a thread: it is slow to import, and the first clip is needed soon."""
        self._decoders.submit(import_module, "av")

    def state_for(self, annotator: str) -> dict[str, Any]:
        """Return what the page of one person shows: the rows to judge, the progress, and what can be undone."""
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
                raise RequestRejected(404, f"{annotator} gave no verdict {number}; there is nothing to undo")
            self.assignments.remove(undone)
            return self._state(annotator, undone.item)

    def agreement(self) -> dict[str, Any]:
        """Return the agreement of the annotators."""
        with self._lock:
            self._refresh()
            return asdict(live_agreement(self.assignments.verdicts.values()))

    def verified(self) -> VerifiedSplit:
        """Return the outcome of each row with verdicts so far."""
        with self._lock:
            self._refresh()
            return verified_split(self.listing, self.assignments.verdicts)

    def rationale(self, key: str) -> list[dict[str, Any]]:
        """Return the validator's verdicts on a row, with their reasons."""
        listed = self.row(key)
        _, row = next(rows_on_lines(self.listing, {listed.line}))
        return [asdict(verdict) for verdict in stored_verdicts(row)]

    async def pictures(self, key: str, kind: str) -> bytes:
        """Return the frames of a row's clip, or its last one, decoded in a thread."""
        draw, name = played_frames if kind == "frames" else last_frame, self.row(key).file_name
        return await asyncio.get_running_loop().run_in_executor(self._decoders, draw, self.listing.folder, name)

    def row(self, key: str) -> ListedRow:
        """Return a row by its key; reject with 404 if there is none."""
        if key not in self.assignments.by_key:
            raise RequestRejected(404, "there is no such row in this dataset")
        return self.assignments.by_key[key]

    def close(self) -> None:
        """Close the file of verdicts."""
        self._decoders.shutdown(cancel_futures=True)
        self.store.close()

    def _refresh(self) -> None:
        if self.store.changed_elsewhere():
            self.assignments.reset(self.store.standing())

    def _state(self, annotator: str, first: str = "") -> dict[str, Any]:
        rows = self.assignments.next_rows(annotator, AHEAD)
        if first in self.assignments.by_key:
            rows = [self.assignments.by_key[first], *(row for row in rows if row.key != first)][:AHEAD]
        last = self.assignments.last_of(annotator)
        return {
            "rows": [
                {
                    "key": row.key,
                    "file_name": row.file_name,
                    "instruction": row.instruction,
                    "level": row.level,
                    "source": row.source,
                    "failure_cause": row.failure_cause,
                    "failure_frame": row.failure_frame,
                    "stage": row.provenance.stage,
                    "explained": row.provenance.explained,
                }
                for row in rows
            ],
            "progress": asdict(self.assignments.progress(annotator)),
            "undo": None if last is None else {"id": last.id, "decision": last.decision, "level": last.level},
            "data": self.listing.folder.name,
            "problems": len(self.listing.problems),
        }


def require_judgeable(row: ListedRow, decision: Decision, level: int | None) -> tuple[Decision, int | None]:
    """Return decision and level of a verdict as they are stored; DataError if they do not fit the row."""
    if decision == "accept" and row.level is None:
        raise DataError("this row has no level to accept; give one from 1 to 5")
    if decision == "correct" and level is None:
        raise DataError("a correction needs a level from 1 to 5")
    if decision == "correct":
        return ("accept" if level == row.level else "correct"), level
    return decision, row.level if decision == "accept" else None


def require_sound_cause(server: VerificationServer, verdict: Verdict) -> None:
    """Raise DataError if the cause of a failure, or its frame, does not fit the verdict and the row's video."""
    cause, frame = verdict.failure_cause, verdict.failure_frame
    if not is_sound_cause(cause, frame, verdict.level):
        raise DataError(f"a cause of failure needs a level from 1 to 4, and a frame a cause; got {cause!r}, {frame}")
    if frame is not None:
        video = VideoFile(path_inside(server.listing.folder, server.row(verdict.item).file_name, "file_name"))
        if frame >= video.count:
            raise DataError(f"failure_frame must be a frame from 0 to {video.count - 1}, got {frame}")


# The frames of a clip for the page: decoded here, so that every codec plays and each step is one frame.

MOST_FRAMES = 300  # of a clip that are shown; the first and the last always are
_MOST_PIXELS = 960  # along the longer side, while it plays
_PLAYED_QUALITY, _ENLARGED_QUALITY = 88, 95


def played_frames(folder: Path, name: str) -> bytes:
    """Return a clip as one body: length of the header (4 bytes), header (JSON), and the frames as JPEG."""
    video = VideoFile(path_inside(folder, name, "file_name"))
    info = video.info
    most = max(2, min(MOST_FRAMES, CLIP_MB.in_bytes // info.frame_bytes))
    shown = frame_policy(f"uniform:{most}")(info.positions, info.fps)
    images = [_jpeg(frame, _PLAYED_QUALITY, _MOST_PIXELS) for frame in video.read(shown)]
    header = {
        "frames": [int(place) for place in shown],
        "seconds": [round(float(info.positions[place]) / info.fps, 4) for place in shown],
        "fps": round(info.fps, 3),
        "count": info.count,
        "width": info.width,
        "height": info.height,
        "bytes": [len(image) for image in images],
    }
    head = json.dumps(header).encode()
    return b"".join((len(head).to_bytes(4, "big"), head, *images))


def last_frame(folder: Path, name: str) -> bytes:
    """Return the last frame in full size, as JPEG."""
    video = VideoFile(path_inside(folder, name, "file_name"))
    return _jpeg(video.read(np.array([video.count - 1]))[0], _ENLARGED_QUALITY)


def _jpeg(frame: Frames, quality: int, most: int = sys.maxsize) -> bytes:
    """Return a frame as JPEG, reduced to `most` pixels along its longer side."""
    import cv2

    scale = most / max(frame.shape[:2])
    if scale < 1:
        size = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
        frame = np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), np.uint8)
    done, image = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise DataError(f"a frame of shape {frame.shape} cannot be shown; encode the video again")
    return bytes(image)
