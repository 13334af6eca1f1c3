"""The settings of `rewardlab montecarlo`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError

MOST_TRIALS = 5_000  # episodes a condition up to which single trials are worth keeping


@dataclass(frozen=True)
class MonteCarloPlan:
    """Run the perturbation paper's simulated study, or fit its equation to your own accuracies, and say what holds."""

    episodes: int = setting("episodes sampled per condition", 500)
    seed: int = setting("seed of everything drawn by chance", 0)
    severities: tuple[int, ...] = setting("severities to simulate", (0, 1, 2, 3, 4))
    steps: int = setting("steps of an episode (T)", 4)
    rho: float = setting("correlation of the noise from one step to the next", 0.40)
    noise: float = setting("noise of a model without any competence (k), in units of progress", 0.42)
    correlation: float = setting("correlation between the errors of the three members that vote", 0.0)
    reliable_at: float = setting("level below which a model counts as unreliable", 0.70)
    fit: Path | None = setting("CSV of your accuracies (model,category,severity,accuracy) to fit and extrapolate", None)
    power: bool = setting("say how many episodes a study needs to certify --reliable-at, and stop", False)
    trials: bool = setting(f"write every episode as a trial, up to {MOST_TRIALS:,} a condition, with a report", True)
    out: Path | None = setting("folder to write to; by default runs/ plus a name made from the plan", None)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise PlanError(f"seed must not be negative, got {self.seed}")
