"""Checking a dataset: every problem with its place, and whether there is any."""

from dataclasses import dataclass

from rewardlab.core.settings import setting


@dataclass(frozen=True)
class CheckPlan:
    """List every problem of a dataset with its place."""

    data: str = setting("dataset folder or a shipped name such as sample", positional=True)
