"""The base policy of a task: cloned once, evaluated once, and shared by every cell."""

import json
from pathlib import Path

import numpy as np
import torch

from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import RunError
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import rng_for
from rewardlab.rl.demonstrations import collect_demonstrations
from rewardlab.rl.diffusion_policy import DiffusionPolicy, clone_policy
from rewardlab.rl.dsrl import SteeredPolicy
from rewardlab.rl.plan import RlPlan
from rewardlab.rl.rollouts import open_simulators, roll_out
from rewardlab.rl.run_folder import RunFolder

OBSERVATION_SIZE = 39  # of every Meta-World task


def make_base_policy(plan: RlPlan, folder: RunFolder, task: str) -> None:
    """Clone the base policy of a task and measure its success, unless that was done before."""
    if folder.policy_facts(task).exists():
        return
    torch.set_num_threads(1)
    demonstrations = collect_demonstrations(task, plan.demonstrations, plan.control, plan.seed)
    policy = clone_policy(demonstrations, plan.policy, plan.seed)
    folder.policy(task).parent.mkdir(parents=True, exist_ok=True)
    policy.save(folder.policy(task))
    simulators = open_simulators(task, plan.schedule.simulators)
    steered = SteeredPolicy(policy, "dsrl", plan.sac, plan.control, 1)
    scenes = evaluation_scenes(plan, task, plan.schedule.final)
    episodes = roll_out(simulators, scenes, steered.base_decisions(plan.seed), plan.control)
    facts = {
        "success": float(np.mean([episode.success for episode in episodes])),
        "demonstrations": demonstrations.successes / demonstrations.episodes,
    }
    with atomic_write(folder.policy_facts(task)) as partial:
        partial.write_text(json.dumps(facts) + "\n", encoding="utf-8")


def open_base_policy(plan: RlPlan, folder: RunFolder, task: str) -> DiffusionPolicy:
    """Return the base policy of a task."""
    policy = DiffusionPolicy(OBSERVATION_SIZE, plan.control.chunk_size, plan.policy)
    policy.load(folder.policy(task))
    return policy


def read_policy_facts(path: Path) -> tuple[float, float]:
    """Return the success of a base policy, and the share of successes among its demonstrations."""
    try:
        found = read_json(path)
        return float(found["success"]), float(found["demonstrations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); remove it to clone the policy again") from error


def evaluation_scenes(plan: RlPlan, task: str, count: int) -> list[int]:
    """Return the seeds of the scenes in which every policy of a task is evaluated."""
    return [int(rng_for(plan.seed, "evaluation", task, index).integers(2**30)) for index in range(count)]


def training_scene(cell_seed: int, task: str, index: int) -> int:
    """Return the seed of a scene that is learned from; no evaluation has one of these."""
    return int(rng_for(cell_seed, "training", task, index).integers(2**30)) + 2**30
