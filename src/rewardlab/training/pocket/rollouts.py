"""Rollouts for training: simulated once, kept as states, progress and the instructions that apply to them."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.training.pocket import PocketSettings
from rewardlab.worlds.metaworld.instructions import PHRASINGS, counterfactuals, describe_displacement, phrasings
from rewardlab.worlds.metaworld.physics import Trajectory, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy
from rewardlab.worlds.metaworld.task_progress import ProgressReading

Ints = NDArray[np.int64]

SHARD_SIZE = 100  # rollouts in a file
_STEPS = (80, 300)  # least and most steps of a rollout, drawn independently of the outcome
# How often each quality is drawn; the failures together are more than the successes.
_SHARES = {"expert": 4.0, "stops_early": 3.0, "drops": 2.0, "other_goal": 2.0}
_COUNTERFACTUAL_FRAMES = 3  # frames of a rollout at which counterfactual instructions are labelled
_NEAR_MISSES = ("stops_early", "drops", "overshoots", "retries", "noise_mid")
_NEAR_LEVEL, _NEAR_TRIES = 4, 4
_ARRAYS = ("qpos", "body_pos", "gripper_pos", "object_pos", "goal")  # of a trajectory, as they are stored


def draw_by_share(shares: Mapping[str, float], rng: Generator) -> str:
    """Draw one of the names, each as often as its share of all."""
    weights = np.array(list(shares.values()))
    return str(rng.choice(np.array(list(shares)), p=weights / weights.sum()))


@dataclass(frozen=True, eq=False)
class Rollout:
    """A trajectory subsampled to the frames that are kept, and the instructions with their levels."""

    trajectory: Trajectory
    quality: str
    texts: tuple[str, ...]
    held_out_texts: tuple[str, ...]
    counterfactuals: tuple[tuple[int, str, int], ...]  # for something else: frame, text, and level at that frame


@dataclass(frozen=True)
class Shard:
    """Some rollouts of one task; `part` is train, near (misses), check or policy, and says where they come from."""

    part: str
    task: str
    number: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.part}-{self.task}-{self.number:03d}.npz"


def shards_of(settings: PocketSettings) -> list[Shard]:
    """Return the files, in the order in which rollouts are numbered."""
    parts = {"train": settings.rollouts, "near": settings.near_misses, "check": settings.val_rollouts}
    wanted = [(part, task, count) for part, count in parts.items() for task in settings.all_tasks]
    simulated = [
        Shard(part, task, first // SHARD_SIZE, min(SHARD_SIZE, count - first))
        for part, task, count in wanted
        for first in range(0, count, SHARD_SIZE)
    ]
    return simulated + (_policy_shards(settings) if settings.policy_rollouts else [])


def _policy_shards(settings: PocketSettings) -> list[Shard]:
    """Return the shards of policies that are there for the tasks."""
    found = []
    for path in sorted(Path(settings.policy_rollouts).glob("policy-*-*.npz")):
        _, task = path.stem.rsplit("-", 1)[0].split("-", 1)
        if task in settings.all_tasks:
            with np.load(path) as table:
                found.append(Shard("policy", task, int(path.stem.rsplit("-", 1)[1]), len(table["readings"])))
    if not found:
        raise DataError(f"{settings.policy_rollouts} must hold policy-TASK-NUMBER.npz of a trained task, found none")
    return found


def simulate_all(settings: PocketSettings, shards: Sequence[Shard] | None = None) -> None:
    """Simulate every shard, or these, that is not there yet; those of policies are copied."""
    folder = settings.out / "rollouts"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = shards_of(settings) if shards is None else shards
    for shard in wanted:
        if shard.part == "policy":
            shutil.copy(Path(settings.policy_rollouts) / shard.name, folder)
    missing = [shard for shard in wanted if not (folder / shard.name).exists()]
    for number, _ in enumerate(map_items(partial(_simulate_shard, settings), missing, settings.workers), start=1):
        if number % 50 == 0 or number == len(missing):
            print(f"simulated {number} of {len(missing)} shards", flush=True)


def _simulate_shard(settings: PocketSettings, shard: Shard) -> None:
    first = shard.number * SHARD_SIZE
    made = [_rollout(settings, shard, index) for index in range(first, first + shard.count)]
    save_rollouts(settings.out / "rollouts" / shard.name, made)


def _rollout(settings: PocketSettings, shard: Shard, index: int) -> Rollout:
    rng = rng_for(settings.seed, "pocket", shard.part, shard.task, index)
    if shard.part == "near":
        trajectory, quality = _near_miss(shard.task, rng)
    else:
        quality = draw_by_share({name: _SHARES.get(name, 1.0) for name in POLICIES}, rng)
        seed, steps = int(rng.integers(2**31)), int(rng.integers(_STEPS[0], _STEPS[1] + 1))
        limit = float(rng.uniform(0.05, 1.0)) if quality in ("stops_early", "drops") else None
        trajectory = simulate(shard.task, seed, steps, make_policy(quality, shard.task, seed, limit))
    kept = np.linspace(0, len(trajectory.qpos) - 1, settings.frames_per_rollout).round().astype(np.int64)
    texts, held_out = instructions_of(trajectory)
    # Counterfactual instructions are labelled at the end of the rollout and at some frames before it.
    ends = {len(kept) - 1, *rng.integers(len(kept) // 4, len(kept), _COUNTERFACTUAL_FRAMES - 1).tolist()}
    others: list[tuple[int, str, int]] = []
    for end in sorted(ends):
        prefix = at_steps(trajectory, np.arange(int(kept[end]) + 1))
        others += [(end, other.text, other.level) for other in counterfactuals(prefix, rng)]
    return Rollout(at_steps(trajectory, kept), quality, texts, held_out, tuple(others))


def _near_miss(task: str, rng: Generator) -> tuple[Trajectory, str]:
    """Return a rollout that ends just short of success, the last one tried where none does."""
    steps = int(rng.integers(_STEPS[0] * 2, _STEPS[1] + 1))
    for _ in range(_NEAR_TRIES):
        quality = pick(_NEAR_MISSES, rng)
        seed, limit = int(rng.integers(2**31)), float(rng.uniform(0.7, 0.97))
        trajectory = simulate(task, seed, steps, make_policy(quality, task, seed, limit))
        if trajectory.readings[-1].level == _NEAR_LEVEL:
            break
    return trajectory, quality


def instructions_of(trajectory: Trajectory) -> list[tuple[str, ...]]:
    """Return the phrasings of its task to train on, and those that are held out."""
    displacement = describe_displacement(trajectory.goal - trajectory.object_pos[0])
    lists = phrasings()[trajectory.task]
    return [tuple(text.replace("{where}", displacement) for text in lists[kind]) for kind in PHRASINGS]


def at_steps(trajectory: Trajectory, steps: Ints) -> Trajectory:
    """Return these steps of a trajectory alone."""
    return replace(
        trajectory,
        qpos=trajectory.qpos[steps],
        gripper_pos=trajectory.gripper_pos[steps],
        object_pos=trajectory.object_pos[steps],
        readings=tuple(trajectory.readings[step] for step in steps),
    )


def save_rollouts(path: Path, rollouts: list[Rollout]) -> None:
    """Write rollouts of one task; the actions are left out, for the states are enough to render."""
    kept = ("quality", "texts", "held_out_texts", "counterfactuals")
    metadata = [
        {"seed": r.trajectory.seed, "task": r.trajectory.task, **{name: vars(r)[name] for name in kept}}
        for r in rollouts
    ]
    trajectories = [r.trajectory for r in rollouts]
    arrays: dict[str, Any] = {
        name: np.stack([vars(t)[name] for t in trajectories]).astype(np.float32) for name in _ARRAYS
    }
    readings = [[(r.progress, r.success, r.distance, r.reward) for r in t.readings] for t in trajectories]
    with atomic_write(path) as partial_path, partial_path.open("wb") as handle:
        np.savez_compressed(
            handle,
            metadata=np.frombuffer(json.dumps(metadata).encode(), np.uint8),
            **arrays,
            readings=np.array(readings, np.float32),
        )


def load_rollouts(path: Path) -> list[Rollout]:
    """Read the rollouts of one file."""
    with np.load(path) as table:
        metadata = json.loads(bytes(table["metadata"]).decode())
        arrays = {name: table[name].astype(np.float64) for name in _ARRAYS}
        readings = table["readings"]
    return [
        Rollout(
            Trajectory(
                task=row["task"],
                seed=row["seed"],
                actions=np.zeros((0, 4), np.float32),
                readings=tuple(  # older files have no reward
                    ProgressReading(float(p), bool(s), *(float(number) for number in more))
                    for p, s, *more in readings[i]
                ),
                **{name: values[i] for name, values in arrays.items()},
            ),
            row["quality"],
            tuple(row["texts"]),
            tuple(row["held_out_texts"]),
            tuple((int(end), str(text), int(level)) for end, text, level in row["counterfactuals"]),
        )
        for i, row in enumerate(metadata)
    ]
