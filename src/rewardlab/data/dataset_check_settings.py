"""The settings of the check of a dataset."""

from dataclasses import dataclass

from rewardlab.core.command_settings import setting


@dataclass(frozen=True)
class CheckPlan:
    """List every problem of a dataset with its place; every frame of every video is decoded."""

    data: str = setting("dataset folder or a shipped name such as sample", positional=True)
