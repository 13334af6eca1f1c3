"""The settings of `rewardlab convert`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.data.conversion.task_splits import parse_shares
from rewardlab.data.writers import WRITERS


@dataclass(frozen=True)
class ConvertPlan:
    """Write a dataset in another layout, maybe fewer of its rollouts, split by task and without copies."""

    source: str = setting("dataset folder or name; DATA@CAMERA or DATA@all chooses cameras", positional=True)
    out: Path = setting("folder to write, which must not be there yet", positional=True)
    to: str = setting(f"layout to write: {', '.join(WRITERS)}", "roboreward")
    fps: float | None = setting("show rollouts at this rate: the latest frame at every tick, and the last one", None)
    sample: int | None = setting("keep so many rollouts, drawn by the seed", None)
    splits: tuple[str, ...] = setting("splits and their shares, such as train=0.8,test=0.2; no task is in two", ())
    duplicates: bool = setting("leave out rollouts whose video and instruction are there already, or nearly", True)
    skip_bad: bool = setting("leave out rollouts with problems instead of stopping", False)
    seed: int = setting("seed of everything that is random", 0)

    def __post_init__(self) -> None:
        find(WRITERS, self.to, "layout")
        if self.fps is not None and not 0 < self.fps < 1000:
            raise PlanError(f"fps must be above 0 and below 1000, got {self.fps}")
        if self.sample is not None and self.sample < 1:
            raise PlanError(f"sample must be at least 1, got {self.sample}")
        self.shares()

    def shares(self) -> dict[str, float]:
        """Return the share of each split, together 1; none where the dataset is not split."""
        return parse_shares(self.splits)
