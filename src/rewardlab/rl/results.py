"""The records of an RL study: one per training run, and the offline measures of each reward."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from rewardlab.core.errors import RunError
from rewardlab.core.records import meaning, read_json, record_from_json, record_to_json
from rewardlab.core.storage import write_file

Kind = TypeVar("Kind")

RESULTS = "rl.json"
RESULT = "result.json"
TRAINING_RUNS = "training_runs"  # the folder that holds a folder per training run
_FAR = 1e6  # metres: nothing moves so far


@dataclass(frozen=True)
class CurvePoint:
    """The policy at one moment of its training, evaluated on scenes it never learned from."""

    episodes: int = meaning("episodes learned from so far")
    steps: int = meaning("simulator steps taken to learn so far")
    success: float = meaning("share of evaluation episodes that the simulator calls a success")
    progress: float = meaning("mean true progress at the end of an evaluation episode")


@dataclass(frozen=True)
class FalseSuccess:
    """How often a reward calls failures successes."""

    failures: int = meaning("scored episodes that the simulator calls failures")
    called: int = meaning("those of them that the reward calls successes")
    episodes: int = meaning("episodes that the reward model scored")


@dataclass(frozen=True)
class HackedEpisode:
    """An evaluation episode of the final policy that the reward calls a success and the simulator does not."""

    clip: str = meaning("path of its video in the folder of the study; empty where none was kept")
    level: float = meaning("level that the reward gives")
    true_level: int = meaning("level of its last state")
    progress: float = meaning("true progress of its last state")
    gripper: tuple[float, ...] = meaning("displacement of the gripper over the episode, in metres")
    moved: tuple[float, ...] = meaning("displacement of the object over the episode, in metres")
    distance: float = meaning("what is left of the distance that must shrink, in the unit of the task")

    def __post_init__(self) -> None:
        metres = (*self.gripper, *self.moved)
        if len(self.gripper) != 3 or len(self.moved) != 3 or not all(abs(each) < _FAR for each in metres):
            raise ValueError(f"gripper and moved of a false success must be three lengths each, got {metres}"[:200])


@dataclass(frozen=True)
class TrainingRunResult:
    """One training run."""

    task: str = meaning("Meta-World task")
    reward: str = meaning("`true`, a head of the study, or a model string")
    condition: str = meaning("perturbation of what the reward model sees, or clean")
    algorithm: str = meaning("`dsrl`, `dsrl-na` or `sac`")
    seed: int = meaning("seed of the training run")
    status: Literal["finished", "failed"] = meaning("whether it ran to its end")
    reason: str = meaning("why it failed; empty where it did not")
    base_success: float | None = meaning("success of the base policy on the same scenes")
    success: float | None = meaning("success of the final policy")
    points: tuple[CurvePoint, ...] = meaning("evaluations along training")
    queried: int = meaning("training episodes that the reward model was queried for")
    unscored: int = meaning("those of them without a score; they are not learned from")
    unscored_reason: str = meaning("the first reason for a missing score")
    before: FalseSuccess = meaning("false successes among the first episodes, of the base policy")
    after: FalseSuccess = meaning("false successes among the final evaluation")
    hacked: tuple[HackedEpisode, ...] = meaning("false successes of the final policy")
    clips: tuple[str, ...] = meaning("videos of the final policy, in the folder of the study")
    seconds: float = meaning("seconds that the training run took, over all its starts")
    reward_seconds: float = meaning("those of them spent on the reward: rendering and scoring")

    def __post_init__(self) -> None:
        if self.status == "finished" and (self.success is None or self.base_success is None):
            raise ValueError(f"a finished training run of {self.task} has no success")


@dataclass(frozen=True)
class OfflineMeasures:
    """Measures of a reward on held-out episodes of one task; null where nothing could be measured."""

    reward: str = meaning("the reward")
    task: str = meaning("the task; empty for all tasks together")
    episodes: int = meaning("held-out episodes")
    measures: dict[str, float | None] = meaning("the measures by name")


@dataclass(frozen=True)
class RlResults:
    """A whole study."""

    version: str = meaning("version of rewardlab that ran it")
    plan: str = meaning("the plan, as JSON text")
    title: str = meaning("title of the plan")
    figure: str = meaning("which figure the plan is for: curves, types, quality or severity")
    command: str = meaning("the command")
    wall_seconds: float = meaning("wall time of all starts of the command together")
    workers: int = meaning("processes")
    base: dict[str, float] = meaning("success of the base policy by task")
    demonstrations: dict[str, float] = meaning("share of successes among the demonstrations by task")
    training_runs: tuple[TrainingRunResult, ...] = meaning("the training runs")
    offline: tuple[OfflineMeasures, ...] = meaning("measures of the rewards on held-out episodes")

    def __post_init__(self) -> None:
        if self.base.keys() != self.demonstrations.keys():
            raise ValueError("base and demonstrations are of different tasks")


def write_results(results: RlResults, folder: Path) -> None:
    """Write the record of a study into its folder."""
    write_file(folder / RESULTS, json.dumps(record_to_json(results), indent=1) + "\n")


def read_results(folder: Path) -> RlResults:
    """Return the study of a folder."""
    return _read(RlResults, folder / RESULTS, "run `rewardlab study rl PLAN` first")


def write_training_run(result: TrainingRunResult, path: Path) -> None:
    """Write the record of one training run."""
    write_file(path, json.dumps(record_to_json(result)) + "\n")


def read_training_run(path: Path) -> TrainingRunResult:
    """Return the record of one training run."""
    return _read(TrainingRunResult, path, "remove it to repeat the training run")


def _read(kind: Callable[..., Kind], path: Path, advice: str) -> Kind:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); {advice}") from error
    try:
        return record_from_json(kind, content)
    except ValueError as error:
        raise RunError(f"{path} is not what `rewardlab study rl` writes: {error}; run it again") from error


def accuracy_at(perturbation: str, severity: int) -> str:
    """Return the name of the offline measure success accuracy under a perturbation."""
    return f"success_accuracy {perturbation}@{severity}"


def scored_at(perturbation: str, severity: int) -> str:
    """Return the name under which the offline measures count the clips with a score under a perturbation."""
    return f"scored {perturbation}@{severity}"
