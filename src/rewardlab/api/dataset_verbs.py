"""Verbs about datasets: open one, list its problems, write it in another layout, and make failures of successes."""

import os
from typing import Unpack

from rewardlab.api.options import AugmentOptions, ConvertOptions, Place, documented_by, plan_from
from rewardlab.augmentation.augment_dataset import Augmented, augment_dataset
from rewardlab.augmentation.augment_plan import AugmentPlan
from rewardlab.data import open_dataset as read_dataset
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.conversion.convert_dataset import Conversion, convert_dataset
from rewardlab.data.conversion.convert_plan import ConvertPlan
from rewardlab.data.video_check import check_videos
from rewardlab.runner.thread_map import map_threads

_THREADS = min(4, os.cpu_count() or 1)  # each holds the frames that its decoder refers to


def open_dataset(data: Place) -> Contents:
    """Return the sound episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME.

    No frame is decoded; `check` does that.
    """
    return read_dataset(str(data))


def check(data: Place) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with its place; every frame of every video is decoded."""
    return checked_dataset(data).problems


@documented_by(ConvertPlan)
def convert(source: Place, out: Place, **settings: Unpack[ConvertOptions]) -> Conversion:
    """Write a dataset in another layout and return what was written; a conversion that was stopped goes on.

    Rollouts that are left out are in the result with the reason.
    """
    return run_conversion(plan_from(ConvertPlan, {"source": source, "out": out, **settings}))


@documented_by(AugmentPlan)
def augment(data: Place, **settings: Unpack[AugmentOptions]) -> Augmented:
    """Make failures and near misses of the successes of a dataset and return what each stage made.

    What was stopped goes on, and no teacher is asked anything twice.
    """
    return augment_dataset(plan_from(AugmentPlan, {"data": str(data), **settings}))


def run_conversion(plan: ConvertPlan) -> Conversion:
    """Carry out a plan; with `skip_bad` every frame is decoded first, to leave out what is damaged."""
    contents = checked_dataset(plan.source) if plan.skip_bad else read_dataset(plan.source)
    return convert_dataset(plan, contents, lambda work, videos: map_threads(work, videos, _THREADS))


def checked_dataset(data: Place) -> Contents:
    """Return the episodes whose videos decode, and every problem."""
    return check_videos(open_dataset(data), lambda work, videos: map_threads(work, videos, _THREADS))
