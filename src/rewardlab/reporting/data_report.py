"""What is measured for a report on a dataset: rows, lengths and last frames of videos, copies, and blind models."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.analysis.blind_models import BlindScore, LabelledRows, blind_scores
from rewardlab.analysis.dataset_overview import RowCounts, VideoLength, count_rows, task_name
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.data.contract import Problem
from rewardlab.data.dataset_files import path_inside
from rewardlab.data.exact_copies import ExactCopies, VideoName, exact_copies
from rewardlab.data.roboreward_row import METADATA
from rewardlab.data.row_listing import ListedRow, RowListing, draw_videos, folders_of_splits, list_splits
from rewardlab.data.video_decoding import VideoFile
from rewardlab.reporting.data_report_plan import DataReportPlan
from rewardlab.reporting.video_opening import VideoOpening, open_beside
from rewardlab.runner.thread_map import map_threads

_THREADS = 4
_MANY_BYTES = 4_000_000  # of rows; where there are more, a second process opens the videos
_FRAMES_PER_LEVEL = 4
_FRAME_HEIGHT = 150

Listings = Mapping[str, RowListing]
LabelledRowsOfSplits = list[tuple[str, ListedRow]]


@dataclass(frozen=True)
class NearCopy:
    """Two videos that show nearly the same, in one split or in two."""

    first: VideoName
    second: VideoName

    @property
    def leaks(self) -> bool:
        """Tell whether they are in different splits."""
        return self.first[0] != self.second[0]


@dataclass(frozen=True)
class LastFrame:
    """The last frame of a row's video, small, as JPEG."""

    row: ListedRow
    jpeg: bytes


@dataclass(frozen=True, eq=False)
class DataFacts:
    """All that was measured of a dataset, for the page to tell."""

    data: str
    listings: Listings
    counts: RowCounts
    videos: tuple[VideoName, ...]
    lengths: Mapping[VideoName, VideoLength]
    unreadable: tuple[Problem, ...]
    copies: ExactCopies
    near_copies: tuple[NearCopy, ...] | None  # None where nobody looked
    blind: tuple[BlindScore, ...]
    last_frames: tuple[LastFrame, ...]


def measure_data(plan: DataReportPlan) -> DataFacts:
    """Read the rows, open a sample of the videos, and measure."""
    folders = folders_of_splits(plan.data)
    size = sum((folder / METADATA).stat().st_size for folder in folders.values())
    with open_beside(size > _MANY_BYTES) as opening:
        drawn = draw_videos(folders, plan.videos, rng_for(plan.seed, "opened videos"))
        measured = opening.begin(_length, [(folders[split], name) for split, name in drawn])
        listings = list_splits(folders)
        return _measured(plan, listings, lambda: dict(zip(drawn, measured())), opening)


def _measured(
    plan: DataReportPlan,
    listings: Listings,
    measured: Callable[[], Mapping[VideoName, VideoLength | DataError]],
    opening: VideoOpening,
) -> DataFacts:
    """Measure the rest, in an order in which a second process has done its part when that is needed."""
    if not any(listing.rows for listing in listings.values()):
        raise DataError(f"{plan.data} holds no sound row; `rewardlab check {plan.data}` says what is wrong")
    named = dict.fromkeys((split, row.file_name) for split, listed in listings.items() for row in listed.rows)
    videos = tuple(named)
    folders = {split: listing.folder for split, listing in listings.items()}
    rows = _labelled(listings)
    found = {video: made for video, made in measured().items() if video in named}
    lengths = {video: made for video, made in found.items() if not isinstance(made, DataError)}
    shown = _shown(rows, lengths)
    copies = opening.begin(_copies, [(folders, videos)])
    pictured = opening.begin(_last_frame, [(folders[split], row.file_name) for split, row in shown])
    counts, blind = count_rows(listings), blind_scores(_blind_rows(rows), _frame_counts(rows, lengths), plan.seed)
    near = _near_copies(folders, list(lengths)) if plan.near_duplicates else None
    return DataFacts(
        plan.data,
        listings,
        counts,
        videos,
        lengths,
        tuple(Problem(name, str(made)) for (_, name), made in found.items() if isinstance(made, DataError)),
        copies()[0],
        near,
        blind,
        tuple(LastFrame(row, jpeg) for (_, row), jpeg in zip(shown, pictured()) if jpeg),
    )


def _copies(named: tuple[Mapping[str, Path], Sequence[VideoName]]) -> ExactCopies:
    return exact_copies(*named)


def _video(folder: Path, name: str) -> VideoFile:
    """Return a video of a split; DataError where its name leads out of the folder."""
    return VideoFile(path_inside(folder, name, "file_name"))


def _length(video: tuple[Path, str]) -> VideoLength | DataError:
    try:
        info = _video(*video).info
    except DataError as error:
        return error
    return VideoLength(info.count, info.count / info.fps)


def _shown(rows: LabelledRowsOfSplits, lengths: Mapping[VideoName, VideoLength]) -> LabelledRowsOfSplits:
    """Return the rows whose last frames are shown: a few of each level, of videos that were opened, each another."""
    found: LabelledRowsOfSplits = []
    used: set[VideoName] = set()
    counts: Counter[int | None] = Counter()
    for split, row in rows:
        video = (split, row.file_name)
        if video in lengths and video not in used and counts[row.level] < _FRAMES_PER_LEVEL:
            used.add(video)
            counts[row.level] += 1
            found.append((split, row))
    return found


def _last_frame(video: tuple[Path, str]) -> bytes:
    """Return the last frame, small, as JPEG; nothing where it cannot be decoded."""
    import cv2  # here: it is slow to load, and mostly another process needs it

    try:
        source = _video(*video)
        frame = source.read(np.array([source.count - 1]))[0]
    except DataError:
        return b""
    size = max(1, round(frame.shape[1] * _FRAME_HEIGHT / frame.shape[0])), _FRAME_HEIGHT
    small = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", small[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 82])
    return data.tobytes()


def _labelled(listings: Listings) -> LabelledRowsOfSplits:
    """Return the rows that have a level, each with its split."""
    return [(split, row) for split, listed in listings.items() for row in listed.rows if row.level is not None]


def _blind_rows(rows: LabelledRowsOfSplits) -> LabelledRows:
    """Return the rows as models see them that see no picture."""
    tasks: dict[str, int] = {}
    codes = [tasks.setdefault(task_name(row), len(tasks)) for _, row in rows]
    levels = np.array([row.level for _, row in rows], np.int64)
    return LabelledRows(levels, np.array(codes, np.int64), [row.instruction for _, row in rows])


def _frame_counts(rows: LabelledRowsOfSplits, lengths: Mapping[VideoName, VideoLength]) -> NDArray[np.float64]:
    """Return how many frames the video of each row has, nan where it was not opened."""
    known = {video: length.frames for video, length in lengths.items()}
    return np.array([known.get((split, row.file_name), np.nan) for split, row in rows], np.float64)


def _near_copies(folders: Mapping[str, Path], videos: Sequence[VideoName]) -> tuple[NearCopy, ...]:
    """Return the pairs of opened videos that show nearly the same, and are not the same bytes."""
    from rewardlab.data.duplicates import find_duplicates  # here: it loads OpenCV, which mostly another process needs

    episodes = [
        Episode(str(place), "", _video(folders[split], name).clip()) for place, (split, name) in enumerate(videos)
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = find_duplicates(episodes, None, Path(folder), lambda work, items: map_threads(work, items, _THREADS))
    near: Iterable[Mapping[str, str]] = (copy for copy in found["copies"] if copy["kind"] == "near")
    return tuple(NearCopy(videos[int(copy["other"])], videos[int(copy["episode"])]) for copy in near)
