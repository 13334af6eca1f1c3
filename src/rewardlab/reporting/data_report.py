"""What `data report` counts and measures of a dataset."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import cloudpickle
import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.data.contract import Problem
from rewardlab.data.duplicates import ExactCopies, VideoName, exact_copies
from rewardlab.data.roboreward_rows import METADATA
from rewardlab.data.row_listing import ListedRow, RowListing, draw_videos, folders_of_splits, list_splits
from rewardlab.data.safe_files import path_inside
from rewardlab.data.video import VideoFile, map_threads
from rewardlab.evaluation.engines.processes import Process, start_worker
from rewardlab.evaluation.engines.worker_process import serve_items
from rewardlab.evaluation.vision_free import BaselineScore, LabelledRows, vision_free_scores

NOT_STATED = "not stated"


@dataclass(frozen=True)
class VideoLength:
    """How long a video is."""

    frames: int
    seconds: float


@dataclass(frozen=True)
class GroupCounts:
    """Rows, tasks and videos of a source, split, embodiment or perspective, and its rows per level; None is none."""

    name: str
    rows: int
    tasks: int
    videos: int
    levels: Mapping[int | None, int]


@dataclass(frozen=True)
class LevelLengths:
    """The clips at one level: how many were measured, and the quartiles of their seconds."""

    level: int
    clips: int
    quartiles: tuple[float, float, float]


@dataclass(frozen=True)
class RowConflicts:
    """Rows that say the same twice, and questions (a video and an instruction) that are answered differently."""

    repeated: int
    contradictions: tuple[tuple[str, str, tuple[int | None, ...]], ...]  # video, instruction, levels


@dataclass(frozen=True)
class RowCounts:
    """What is counted of rows by their text alone."""

    everything: GroupCounts
    splits: tuple[GroupCounts, ...]
    sources: tuple[GroupCounts, ...]  # the largest first, as in the next two
    embodiments: tuple[GroupCounts, ...]
    perspectives: tuple[GroupCounts, ...]
    shared_tasks: Mapping[str, tuple[str, ...]]  # tasks in more than one split, and in which
    conflicts: RowConflicts


def count_rows(listings: Mapping[str, RowListing]) -> RowCounts:
    """Count the rows of all splits."""
    rows = [row for listing in listings.values() for row in listing.rows]
    return RowCounts(
        group_counts("all", rows),
        tuple(group_counts(name, listing.rows) for name, listing in listings.items()),
        _grouped(rows, attrgetter("source")),
        _grouped(rows, attrgetter("embodiment")),
        _grouped(rows, attrgetter("perspective")),
        shared_tasks(listings),
        row_conflicts(listings),
    )


def _grouped(rows: Sequence[ListedRow], name_of: Callable[[ListedRow], str]) -> tuple[GroupCounts, ...]:
    groups: dict[str, list[ListedRow]] = defaultdict(list)
    for row in rows:
        groups[name_of(row) or NOT_STATED].append(row)
    found = (group_counts(name, own) for name, own in groups.items())
    return tuple(sorted(found, key=lambda group: -group.rows))


@lru_cache(maxsize=100_000)
def task_name(task: str) -> str:
    """Return what tells tasks apart: the words of the task, whatever their case, spaces and full stop."""
    return " ".join(task.casefold().split()).rstrip(".!")


def group_counts(name: str, rows: Sequence[ListedRow]) -> GroupCounts:
    """Return the counts of some rows."""
    tasks, videos = {task_name(task) for task in {row.task for row in rows}}, {row.file_name for row in rows}
    return GroupCounts(name, len(rows), len(tasks), len(videos), Counter([row.level for row in rows]))


def level_lengths(
    listings: Mapping[str, RowListing], lengths: Mapping[VideoName, VideoLength]
) -> tuple[LevelLengths, ...]:
    """Return how long the clips at each level are."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for split, listing in listings.items():
        for row in listing.rows:
            if row.level is not None and (split, row.file_name) in lengths:
                seconds[row.level].append(lengths[split, row.file_name].seconds)
    return tuple(
        LevelLengths(level, len(found), tuple(np.quantile(found, (0.25, 0.5, 0.75)).tolist()))
        for level in LEVELS
        if (found := seconds[level])
    )


def row_conflicts(listings: Mapping[str, RowListing]) -> RowConflicts:
    """Return what rows say twice, and where they contradict each other."""
    said = [
        (split, row.file_name, row.instruction, row.level)
        for split, listing in listings.items()
        for row in listing.rows
    ]
    answers = dict.fromkeys(said)  # each once, in order
    questions = Counter([answer[:3] for answer in answers])
    given: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for split, name, instruction, level in answers if len(questions) < len(answers) else ():
        if questions[split, name, instruction] > 1:
            given[f"{split}/{name}".lstrip("/"), instruction].append(level)
    contradictions = tuple((*question, tuple(levels)) for question, levels in given.items())
    return RowConflicts(len(said) - len(answers), contradictions)


def shared_tasks(listings: Mapping[str, RowListing]) -> dict[str, tuple[str, ...]]:
    """Return the tasks that are in more than one split, each with these splits."""
    splits: dict[str, dict[str, None]] = defaultdict(dict)
    for split, listing in listings.items():
        for task in dict.fromkeys(row.task for row in listing.rows):
            splits[task_name(task)][split] = None
    return {task: tuple(names) for task, names in splits.items() if len(names) > 1}


Video = TypeVar("Video")
Result = TypeVar("Result")


@dataclass(frozen=True)
class VideoOpening:
    """Who opens videos: a process beside this one, else this one."""

    beside: Process | None

    def begin(self, work: Callable[[Video], Result], videos: Sequence[Video]) -> Callable[[], list[Result]]:
        """Begin to do this with every video; what is returned waits for the results.

        What was begun first is waited for first.
        """
        process = self.beside
        if process is not None:
            process.send(cloudpickle.dumps((work, videos)))

        def results() -> list[Result]:
            kind, content = "ended", list[Result]()
            if process is not None:
                with suppress(EOFError, OSError):
                    kind, content = cloudpickle.loads(process.pipe.recv_bytes())
            # Where the process failed or exited, the videos are opened here, which shows why.
            return content if kind == "done" else [work(video) for video in videos]

        return results


@contextmanager
def open_beside(many: bool) -> Iterator[VideoOpening]:
    """Give who opens videos; where there are many, a process is started at once, for that takes a while."""
    process = start_worker(cloudpickle.dumps(partial(serve_items, _opened)), 1) if many else None
    try:
        yield VideoOpening(process)
    finally:
        if process is not None:
            process.stop()


def _opened(asked: tuple[Callable[[Any], Any], Sequence[Any]]) -> list[Any]:
    work, videos = asked
    return [work(video) for video in videos]


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
    """Everything that was measured of a dataset, for the page."""

    data: str
    listings: Listings
    counts: RowCounts
    videos: tuple[VideoName, ...]
    lengths: Mapping[VideoName, VideoLength]
    unreadable: tuple[Problem, ...]
    copies: ExactCopies
    near_copies: tuple[NearCopy, ...] | None  # None if not looked for
    baselines: tuple[BaselineScore, ...]  # those that see no video
    last_frames: tuple[LastFrame, ...]


def measure_data(
    data: str, *, videos: int, near_duplicates: bool, seed: int, demonstrations: bool = False
) -> DataFacts:
    """Read the rows, open a sample of the videos, and measure."""
    folders = folders_of_splits(data)
    size = sum((folder / METADATA).stat().st_size for folder in folders.values())
    with open_beside(size > _MANY_BYTES) as opening:
        drawn = draw_videos(folders, videos, rng_for(seed, "opened videos"))
        measured = opening.begin(_length, [(folders[split], name) for split, name in drawn])
        listings = list_splits(folders, demonstrations=demonstrations)
        if not any(listing.rows for listing in listings.values()):
            raise DataError(f"{data} holds no sound row; `rewardlab data check {quote(str(data))}` lists the problems")
        # The rest is measured in an order that leaves a second process the time for its part.
        folders = {split: listing.folder for split, listing in listings.items()}
        named = dict.fromkeys((split, row.file_name) for split, listed in listings.items() for row in listed.rows)
        rows = [(split, row) for split, listed in listings.items() for row in listed.rows if row.level is not None]
        found = {video: made for video, made in zip(drawn, measured(), strict=True) if video in named}
        lengths = {video: made for video, made in found.items() if not isinstance(made, DataError)}
        shown = _shown(rows, lengths)
        copies = opening.begin(_copies, [(folders, tuple(named))])
        pictured = opening.begin(_last_frame, [(folders[split], row.file_name) for split, row in shown])
        baselines = _baselines(rows, lengths, seed)
        near = _near_copies(folders, list(lengths)) if near_duplicates else None
        return DataFacts(
            data,
            listings,
            count_rows(listings),
            tuple(named),
            lengths,
            tuple(Problem(name, str(made)) for (_, name), made in found.items() if isinstance(made, DataError)),
            copies()[0],
            near,
            baselines,
            tuple(LastFrame(row, jpeg) for (_, row), jpeg in zip(shown, pictured(), strict=True) if jpeg),
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


def _baselines(
    rows: LabelledRowsOfSplits, lengths: Mapping[VideoName, VideoLength], seed: int
) -> tuple[BaselineScore, ...]:
    """Return how vision-free baselines do; the length is known of videos that were opened."""
    tasks: dict[str, int] = {}
    codes = [tasks.setdefault(task_name(row.task), len(tasks)) for _, row in rows]
    levels = np.array([row.level for _, row in rows], np.int64)
    seen = LabelledRows(levels, np.array(codes, np.int64), [row.instruction for _, row in rows])
    known = {video: length.frames for video, length in lengths.items()}
    frames = np.array([known.get((split, row.file_name), np.nan) for split, row in rows], np.float64)
    return vision_free_scores(seen, frames, seed)


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
