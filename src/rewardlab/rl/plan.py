"""The plan of an RL study (TOML), its training runs, and where their files are."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.core.records import record_from_json, record_to_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import read_toml
from rewardlab.core.trial import SEVERITIES
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.rl.diffusion_policy import DemonstrationMix, DiffusionSettings
from rewardlab.rl.dsrl import Algorithm, SacSettings
from rewardlab.rl.rendering import WatchSettings, parse_condition
from rewardlab.rl.results import RESULT, TRAINING_RUNS
from rewardlab.rl.rewards import HEAD, TRUE, HeadSettings, parse_head
from rewardlab.rl.rollouts import Control
from rewardlab.worlds.metaworld.physics import TASKS

Figure = Literal["curves", "types", "quality", "severity"]

# Table 5, and what the columns of Table 6 share. 24,000 initial steps are 80 episodes of Robomimic's 300 steps (Square:
# 32,000 and 400).
_ROBOMIMIC = {
    "rate": 3e-4,
    "batch": 256,
    "target_entropy": 0.0,
    "tau": 0.005,
    "layers": 3,
    "hidden": 2048,
    "gradient_steps": 20,
    "noise_critic_steps": 10,
    "discount": 0.99,
    "magnitude": 1.5,
    "initial_episodes": 80,
}
_MOST_SEEDS = 1000
_DENOISING = {"train_denoising": 20, "denoising": 8}
_SHARED: dict[str, Any] = {"algorithms": ["dsrl-na"], "control": {"chunk": 4}, "schedule": {"simulators": 4}}

# RoboReward's hyper-parameters as tables of a plan; docs/howto/rl.md says what differs all the same.
PRESETS: dict[str, dict[str, Any]] = {
    "robomimic-lift": _SHARED | {"sac": _ROBOMIMIC | {"gradient_steps": 30}, "policy": _DENOISING},
    "robomimic-can": _SHARED | {"sac": _ROBOMIMIC, "policy": _DENOISING},
    "robomimic-square": _SHARED
    | {"sac": _ROBOMIMIC | {"discount": 0.999}, "policy": _DENOISING | {"train_denoising": 100}},
    "widowx": {
        "algorithms": ["dsrl"],
        "sac": {"hidden": 1024, "gradient_steps": 30, "discount": 0.97, "magnitude": 1.5, "initial_episodes": 20},
    },
}


@dataclass(frozen=True)
class Schedule:
    """Length of a training run and its evaluations, by the simulator's success on scenes that are not trained on."""

    episodes: int = 200
    simulators: int = 4  # side by side; the policy is updated after each round of them
    evaluations: int = 4  # along training, beside those before and after it
    evaluated: int = 16  # episodes of each evaluation along training
    final: int = 40  # episodes of the evaluations before and after training
    clips: int = 1  # of the final policy that are kept
    hacked: int = 4  # clips of false successes that are kept

    def __post_init__(self) -> None:
        least = (self.episodes, self.simulators, self.evaluated, self.final)
        if min(least) < 1 or min(self.evaluations, self.clips, self.hacked) < 0:
            raise PlanError("episodes, simulators, evaluated and final must be at least 1, the others at least 0")


@dataclass(frozen=True)
class OfflineSettings:
    """The held-out episodes on which rewards are measured, and how they are perturbed."""

    episodes: int = 20  # of each task; 0 measures nothing
    perturbations: tuple[str, ...] = ("gaussian_noise", "low_light", "world_table_texture", "world_camera")
    severities: tuple[int, ...] = (2, 4)

    def __post_init__(self) -> None:
        for name in self.perturbations:
            find(PERTURBATIONS, name, "perturbation")
        if self.episodes < 0 or not {*self.severities} <= {*SEVERITIES} - {0}:
            raise PlanError("offline needs 0 episodes or more and severities from 1 to 4")


@dataclass(frozen=True)
class TrainingRun:
    """One training run: task, reward, the condition of what the reward model sees, algorithm and seed."""

    task: str
    reward: str
    condition: str
    algorithm: Algorithm
    seed: int

    @property
    def id(self) -> str:
        """Return the name of its folder."""
        return f"{self.task}-{digest(self.task, self.reward, self.condition, self.algorithm, self.seed)}"


@dataclass(frozen=True)
class RlPlan:
    """Every task with every reward in every condition, by every algorithm, so many seeds."""

    title: str = "rewards and policies"
    figure: Figure = "curves"
    tasks: tuple[str, ...] = ("reach",)
    rewards: tuple[str, ...] = (TRUE,)
    conditions: tuple[str, ...] = ("clean",)
    algorithms: tuple[Algorithm, ...] = ("dsrl",)
    seeds: int = 3
    seed: int = 0
    control: Control = field(default_factory=Control)
    demonstrations: DemonstrationMix = field(default_factory=DemonstrationMix)
    policy: DiffusionSettings = field(default_factory=DiffusionSettings)
    sac: SacSettings = field(default_factory=SacSettings)
    schedule: Schedule = field(default_factory=Schedule)
    watch: WatchSettings = field(default_factory=WatchSettings)
    heads: HeadSettings = field(default_factory=HeadSettings)
    offline: OfflineSettings = field(default_factory=OfflineSettings)

    def __post_init__(self) -> None:
        for what in ("tasks", "rewards", "conditions", "algorithms"):
            given = getattr(self, what)
            if len({*given}) < len(given):
                raise PlanError(f"{what} of a plan are named once each, got {', '.join(given)}")
        for task in self.tasks:
            find({name: name for name in TASKS}, task, "Meta-World task")
        for condition in self.conditions:
            parse_condition(condition)
        for reward in self.rewards:
            step = parse_head(reward)[1] if reward.startswith(HEAD) else None
            if step is not None and step not in (0, *self.heads.checkpoints):
                known = self.heads.checkpoints
                raise PlanError(f"{reward} asks for step {step}, which is none of the checkpoints {known}")
        if self.figure in ("quality", "severity") and {"dsrl", "dsrl-na"} <= {*self.algorithms}:
            raise PlanError(f"the figure {self.figure} needs one of dsrl and dsrl-na, got both; write a plan for each")
        wrong = [name for name in self.algorithms if name not in get_args(Algorithm)]
        if (
            wrong
            or not 1 <= self.seeds <= _MOST_SEEDS
            or not (self.tasks and self.rewards and self.conditions and self.algorithms)
        ):
            raise PlanError(
                "a plan needs tasks, rewards, conditions, algorithms (dsrl, dsrl-na or sac), "
                f"and 1 to {_MOST_SEEDS:,} seeds"
            )

    def training_runs(self) -> list[TrainingRun]:
        """Return every training run of the plan, seed by seed, so that an early stop leaves whole seeds."""
        axes = (range(self.seeds), self.algorithms, self.tasks, self.conditions, self.rewards)
        return [
            TrainingRun(task, reward, condition, algorithm, seed)
            for seed, algorithm, task, condition, reward in itertools.product(*axes)
            if reward != TRUE or condition == self.conditions[0]  # the truth is the same in every condition
        ]


def read_rl_plan(path: Path) -> RlPlan:
    """Return the plan of a TOML file; what it leaves out keeps its default."""
    return plan_from_json(read_toml(path, "results/rl has examples"), str(path))


def plan_from_json(written: dict[str, Any], where: str) -> RlPlan:
    """Return the plan of a table of settings; what it leaves out is that of its `preset`, if any, or the default."""
    written = dict(written)
    defaults = record_to_json(RlPlan())
    if "preset" in written:
        defaults = _merged(defaults, find(PRESETS, str(written.pop("preset")), "preset"))
    try:
        return record_from_json(RlPlan, _merged(defaults, written))
    except ValueError as error:
        raise PlanError(f"{where} is no plan: {error}") from None


def _merged(defaults: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    nested = {name: value for name, value in defaults.items() if isinstance(value, dict)}
    tables = {name: value for name, value in written.items() if name in nested and isinstance(value, dict)}
    return defaults | written | {name: _merged(nested[name], value) for name, value in tables.items()}


@dataclass(frozen=True)
class StudyFolder:
    """Where the files of a study are: base policies, reward heads, and a folder per training run."""

    path: Path

    @property
    def plan(self) -> Path:
        """Return the file with the plan that the folder belongs to."""
        return self.path / "plan.json"

    @property
    def heads(self) -> Path:
        """Return the folder of the reward heads."""
        return self.path / "heads"

    @property
    def offline(self) -> Path:
        """Return the folder of the rewards of held-out episodes, a file per task and condition."""
        return self.path / "offline"

    def policy(self, task: str) -> Path:
        """Return the weights of the base policy of a task."""
        return self.path / "policies" / f"{task}.pt"

    def policy_facts(self, task: str) -> Path:
        """Return the file with the success of the base policy of a task."""
        return self.path / "policies" / f"{task}.json"

    def training_run(self, run: TrainingRun) -> Path:
        """Return the folder of a training run."""
        return self.path / TRAINING_RUNS / run.id

    def result(self, run: TrainingRun) -> Path:
        """Return the record of a finished training run; it exists only once the run is finished."""
        return self.training_run(run) / RESULT

    def failure(self, run: TrainingRun) -> Path:
        """Return the record of a failed training run; the next start repeats it."""
        return self.training_run(run) / "failed.json"

    def checkpoint(self, run: TrainingRun) -> Path:
        """Return the file from which an unfinished training run continues."""
        return self.training_run(run) / "checkpoint.pt"

    def starts(self, run: TrainingRun) -> Path:
        """Return the file that counts how often this command started the training run."""
        return self.training_run(run) / "starts"
