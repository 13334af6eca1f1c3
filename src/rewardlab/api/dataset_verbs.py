"""Verbs about datasets: open one, and list its problems."""

import os

from rewardlab.api.options import Place
from rewardlab.data import open_dataset as read_dataset
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.video_check import check_videos
from rewardlab.runner.dispatch import map_threads

_THREADS = min(4, os.cpu_count() or 1)  # each holds the frames that its decoder refers to


def open_dataset(data: Place) -> Contents:
    """Return the sound episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME.

    No frame is decoded; `check` does that.
    """
    return read_dataset(str(data))


def check(data: Place) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with its place; every frame of every video is decoded."""
    return checked_dataset(data).problems


def checked_dataset(data: Place) -> Contents:
    """Return the episodes whose videos decode, and every problem."""
    return check_videos(open_dataset(data), lambda work, videos: map_threads(work, videos, _THREADS))
