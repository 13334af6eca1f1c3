"""The settings of `rewardlab augment`."""

import math
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.core.object_store import store_address
from rewardlab.data.conversion.task_splits import parse_shares
from rewardlab.runner.engines.contract import EngineSettings

STAGES = ("rewrite", "counterfactual", "clip", "validate", "split")  # in this order
ALL = "all"


@dataclass(frozen=True)
class AugmentPlan:
    """Make failures and near misses of the successes of a dataset, validate them, and split by task."""

    data: str = setting("dataset folder or name, or the folder of an earlier stage", positional=True)
    out: Path = setting("folder to write: one dataset, or one folder for each of several stages", Path("augmented"))
    stage: tuple[str, ...] = setting(f"stages to do: {', '.join(STAGES)}; all does them in this order", (ALL,))
    vision: str = setting("teacher that sees: analysis, plan, validation; scripted, openai:... or hf:...", "scripted")
    text: str = setting("teacher that writes: rewriting and commands; scripted, openai:... or hf:...", "scripted")
    attempts: int = setting("times a teacher is asked for one thing before it is given up", 3)
    per_source: int = setting("episodes of each source that are used, drawn by the seed; 0 takes all", 1200)
    splits: tuple[str, ...] = setting("splits and their shares", ("train=0.8", "val=0.1", "test=0.1"))
    calls: Path | None = setting("folder of every answer of a teacher, maybe shared; by default in --out", None)
    max_requests: int | None = setting("stop before more than N requests to paid teachers", None)
    max_cost: float | None = setting("stop before paid teachers have cost more than this", None)
    skip_bad: bool = setting("leave out rows and videos with problems instead of stopping", False)
    quiet: bool = setting("print no estimate", False, short="-q")
    seed: int = setting("seed of everything that is random", 0)
    workers: int = setting("processes that teachers without a server and videos are spread over; 0: one per core", 0)
    engine_settings: EngineSettings = EngineSettings()

    def __post_init__(self) -> None:
        for name in self.stage:
            find({stage: stage for stage in (*STAGES, ALL)}, name, "stage")
        if store_address(self.out):
            raise PlanError(f"out must be a folder, one that all machines share for --engine ray, got {self.out}")
        if self.workers < 0:
            raise PlanError(f"workers must be 0 or more, got {self.workers}")
        if not self.stage or self.attempts < 1 or self.per_source < 0:
            raise PlanError("name a stage; attempts must be at least 1 and per-source 0 or more")
        if (self.max_requests or 0) < 0 or not 0 <= (self.max_cost or 0) < math.inf:
            raise PlanError("max-requests and max-cost must be 0 or more; leave out what has no limit")
        if not parse_shares(self.splits):
            raise PlanError("splits must name at least one split, such as train=1")

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages to do in their order."""
        return STAGES if ALL in self.stage else tuple(stage for stage in STAGES if stage in self.stage)

    @property
    def calls_folder(self) -> Path:
        """Return where answers and the ledger of what was paid are."""
        return self.out / ".calls" if self.calls is None else self.calls


@dataclass(frozen=True)
class AugmentCommand:
    """Make failures and near misses of the successes of a dataset, validate them, and split by task."""

    plan: AugmentPlan
    dry_run: bool = setting("print what would be asked at most, and ask and write nothing", False)
