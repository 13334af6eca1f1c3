"""Verbs about datasets: open one, and list its problems."""

from rewardlab.api.options import Place
from rewardlab.data import open_dataset as read_dataset
from rewardlab.data.contract import Contents, Problem


def open_dataset(data: Place) -> Contents:
    """Return the sound episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME."""
    return read_dataset(str(data))


def check(data: Place) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with its place."""
    return open_dataset(data).problems
