"""The settings of `rewardlab rl run`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.runner.engines.contract import EngineSettings


@dataclass(frozen=True)
class RlRunPlan:
    """Train policies against rewards: every cell of a plan, in processes; what is finished is not done again."""

    plan: Path = setting("TOML file of the plan", positional=True)
    out: Path = setting("folder of the study", Path("rl"))
    workers: int = setting("processes; 0 is one per core", 0)
    engine_settings: EngineSettings = EngineSettings()

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise PlanError(f"workers must be 0 or more, got {self.workers}")
