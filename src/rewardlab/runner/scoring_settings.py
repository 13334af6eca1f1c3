"""The settings that every command that scores has in common."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.analysis.wrong_rewards import MOST
from rewardlab.core.command_settings import setting
from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.models.contract import Budget
from rewardlab.runner.engines.contract import EngineSettings

FRAMES_HELP = "frames shown to the model: uniform:N, fps:X or all"


@dataclass(frozen=True)
class ScoringSettings:
    """How cells are scored: the seed, how many episodes, on how many processes, at what cost, and where to."""

    seed: int = setting("seed of everything that is random", 0)
    limit: int | None = setting("use only the first N episodes", None)
    skip_bad: bool = setting("leave out rows and videos with problems instead of stopping", False)
    retry_failures: bool = setting("score cells again that failed in an earlier attempt", False)
    workers: int = setting("processes; 0 takes one per core", 0)
    batch: int = setting("episodes given to a model at once", 8)
    timeout: float = setting("seconds a model may take for one batch before it is stopped", 120.0)
    load_timeout: float = setting("seconds the models may take to load", 900.0)
    max_restarts: int = setting("stop when worker processes died more than N times", 100)
    max_failures: int = setting("stop when the first N answers of a model all fail alike; 0 never stops", 20)
    max_requests: int | None = setting("stop before more than N requests to paid models", None)
    max_cost: float | None = setting("stop before paid models have cost more than this", None)
    describe_failures: int = setting(
        f"ask vision-language models to describe N of the clips they misjudged, up to {MOST}; 0 asks nothing", 0
    )
    quiet: bool = setting("print neither the size of the run nor its progress", False, short="-q")
    name: tuple[str, ...] = setting("short names of the models in tables and pages, in their order", ())
    shard: str = setting("score only part I of N of the episodes, written I/N; `merge` puts the parts together", "")
    engine_settings: EngineSettings = EngineSettings()
    out: Path | None = setting("run folder; by default runs/ plus a name made from the plan", None)

    def __post_init__(self) -> None:
        require_limit(self.limit)
        shard_of((), self.shard)
        if self.batch < 1 or self.workers < 0:
            raise PlanError(f"batch must be at least 1 and workers not negative, got {self.batch} and {self.workers}")
        if self.max_restarts < 0 or self.max_failures < 0:
            given = f"{self.max_restarts} and {self.max_failures}"
            raise PlanError(f"max-restarts and max-failures must be 0 or more, got {given}")
        if not 0 <= self.describe_failures <= MOST:
            raise PlanError(f"describe-failures must be from 0 to {MOST}, got {self.describe_failures}")
        timeouts = (self.timeout, self.load_timeout)
        if not all(0 < seconds < math.inf for seconds in timeouts):
            raise PlanError(f"timeout and load-timeout must be seconds above 0, got {timeouts}")
        if (self.max_requests or 0) < 0 or not 0 <= (self.max_cost or 0) < math.inf:
            raise PlanError("max-requests and max-cost must be 0 or more; leave out what has no limit")

    def budget(self, folder: Path) -> Budget:
        """Return what models may spend; what they paid for is written down in the run folder."""
        return Budget(self.max_requests, self.max_cost, folder)


def shard_of(episodes: Sequence[Episode], shard: str) -> Sequence[Episode]:
    """Return the episodes of part I of N, which is every N-th one; all where no part is named."""
    if not shard:
        return episodes
    part, _, parts = shard.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and len(parts) < 7 and 1 <= int(part) <= int(parts)):
        raise PlanError(f"shard must be I/N with I from 1 to N, such as 1/4, got {shard[:40]!r}")
    return episodes[int(part) - 1 :: int(parts)]


def require_limit(limit: int | None) -> None:
    """Check the number of episodes to use."""
    if limit is not None and limit < 1:
        raise PlanError(f"limit must be at least 1, got {limit}")


def require_selection(perturbations: tuple[str, ...], severities: tuple[int, ...]) -> None:
    """Check that perturbations are named and that the severities exist."""
    if not perturbations:
        raise PlanError("name at least one perturbation, a category, or all")
    if not severities or any(severity not in (0, 1, 2, 3, 4) for severity in severities):
        raise PlanError(f"severities must be among 0, 1, 2, 3, 4, got {severities}")
