"""The settings of `rewardlab data-report`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError


@dataclass(frozen=True)
class DataReportPlan:
    """Write a page about a dataset: labels, sources, lengths, frames, duplicates, and what blind models reach on it."""

    data: str = setting("dataset in the RoboReward layout, or a folder of its splits", positional=True)
    out: Path = setting("file to write the page into", Path("data-report.html"))
    videos: int = setting("videos that are opened at most, drawn at random, to measure lengths", 200)
    near_duplicates: bool = setting("decode these videos as well and look for near copies among them", False)
    seed: int = setting("seed of what is drawn", 0)

    def __post_init__(self) -> None:
        if self.videos < 1:
            raise PlanError(f"videos must be at least 1, got {self.videos}")
