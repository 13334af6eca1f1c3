"""What is measured for a report on a dataset: rows, lengths of a sample of videos, copies, and blind models."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewardlab.analysis.blind_models import BlindScore, LabelledRows, blind_scores
from rewardlab.analysis.dataset_overview import VideoLength, task_name
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.data.contract import Problem
from rewardlab.data.dataset_files import path_inside
from rewardlab.data.duplicates import find_duplicates
from rewardlab.data.exact_copies import ExactCopies, VideoName, exact_copies
from rewardlab.data.row_listing import RowListing, list_splits
from rewardlab.data.video_decoding import VideoFile
from rewardlab.reporting.data_report_plan import DataReportPlan
from rewardlab.runner.thread_map import map_threads

_THREADS = 4

Listings = Mapping[str, RowListing]


@dataclass(frozen=True)
class NearCopy:
    """Two videos that show nearly the same, in one split or in two."""

    first: VideoName
    second: VideoName

    @property
    def leaks(self) -> bool:
        """Tell whether they are in different splits."""
        return self.first[0] != self.second[0]


@dataclass(frozen=True, eq=False)
class DataFacts:
    """All that was measured of a dataset, for the page to tell."""

    data: str
    listings: Listings
    videos: tuple[VideoName, ...]
    lengths: Mapping[VideoName, VideoLength]
    unreadable: tuple[Problem, ...]
    copies: ExactCopies
    near_copies: tuple[NearCopy, ...] | None  # None where nobody looked
    blind: tuple[BlindScore, ...]


def measure_data(plan: DataReportPlan) -> DataFacts:
    """Read the rows, open a sample of the videos, and measure."""
    listings = list_splits(plan.data)
    if not any(listing.rows for listing in listings.values()):
        raise DataError(f"{plan.data} holds no sound row; `rewardlab check {plan.data}` says what is wrong")
    videos = tuple(
        (split, name)
        for split, listed in listings.items()
        for name in dict.fromkeys([row.file_name for row in listed.rows])
    )
    drawn = rng_for(plan.seed, "opened videos").permutation(len(videos))[: plan.videos]
    opened = [videos[place] for place in sorted(drawn)]
    lengths, unreadable = _lengths(listings, opened)
    folders = {split: listing.folder for split, listing in listings.items()}
    return DataFacts(
        plan.data,
        listings,
        videos,
        lengths,
        unreadable,
        exact_copies(folders, videos),
        _near_copies(listings, list(lengths)) if plan.near_duplicates else None,
        blind_scores(_labelled(listings, lengths), plan.seed),
    )


def video_of(listings: Listings, video: VideoName) -> VideoFile:
    """Return a video of a split; DataError where its name leads out of the folder."""
    split, name = video
    return VideoFile(path_inside(listings[split].folder, name, "file_name"))


def _lengths(
    listings: Listings, opened: Sequence[VideoName]
) -> tuple[dict[VideoName, VideoLength], tuple[Problem, ...]]:
    def measure(video: VideoName) -> VideoLength | DataError:
        try:
            info = video_of(listings, video).info
        except DataError as error:
            return error
        return VideoLength(info.count, info.count / info.fps)

    found = list(zip(opened, map_threads(measure, opened, _THREADS)))
    problems = [Problem(name, str(made)) for (_, name), made in found if isinstance(made, DataError)]
    return {video: made for video, made in found if not isinstance(made, DataError)}, tuple(problems)


def _labelled(listings: Listings, lengths: Mapping[VideoName, VideoLength]) -> LabelledRows:
    """Return the rows that have a level, as blind models see them."""
    rows = [(split, row) for split, listed in listings.items() for row in listed.rows if row.level is not None]
    tasks: dict[str, int] = {}
    codes = [tasks.setdefault(task_name(row), len(tasks)) for _, row in rows]
    frames = [lengths[key].frames if (key := (split, row.file_name)) in lengths else np.nan for split, row in rows]
    levels = np.array([row.level for _, row in rows], np.int64)
    texts = [row.instruction for _, row in rows]
    return LabelledRows(levels, np.array(codes, np.int64), texts, np.array(frames, np.float64))


def _near_copies(listings: Listings, videos: Sequence[VideoName]) -> tuple[NearCopy, ...]:
    """Return the pairs of opened videos that show nearly the same, and are not the same bytes."""
    episodes = [Episode(str(place), "", video_of(listings, video).clip()) for place, video in enumerate(videos)]
    with tempfile.TemporaryDirectory() as folder:
        found = find_duplicates(episodes, None, Path(folder), lambda work, items: map_threads(work, items, _THREADS))
    near: Iterable[Mapping[str, str]] = (copy for copy in found["copies"] if copy["kind"] == "near")
    return tuple(NearCopy(videos[int(copy["other"])], videos[int(copy["episode"])]) for copy in near)
