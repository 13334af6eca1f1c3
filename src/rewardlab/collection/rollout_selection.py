"""Which rollout becomes an episode: any of the wanted quality, or the one nearest to the level that is wanted."""

from dataclasses import dataclass

import numpy as np

from rewardlab.collection.collection_settings import CollectPlan
from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.physics import TASKS, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy

SUBSET = "metaworld"
_ATTEMPTS = 12  # rollouts tried for a wanted level; rollouts are cheap beside rendering
# Where a wanted level is mostly found.
_LIKELY = {
    1: ("random", "other_task", "other_goal", "stops_early", "noise_high"),
    2: ("stops_early", "drops", "other_goal", "noise_high", "overshoots"),
    3: ("stops_early", "drops", "other_goal", "overshoots", "noise_mid"),
    4: ("stops_early", "drops", "overshoots", "retries", "noise_mid"),
    5: ("expert", "hesitates", "retries", "noise_low", "expert"),
}
# The progress at which a rollout that stops or lets go does so, for each wanted level.
_STOPS = {1: (0.01, 0.08), 2: (0.12, 0.35), 3: (0.42, 0.65), 4: (0.72, 0.95), 5: (0.98, 1.0)}


@dataclass(frozen=True)
class PlannedEpisode:
    """One episode to record: a task and its number."""

    task: str
    index: int

    @property
    def stem(self) -> str:
        """Return the path of its files below the dataset folder, without the ending."""
        return f"{SUBSET}/{self.task}-{self.index:04d}"


def plan_episodes(plan: CollectPlan) -> list[PlannedEpisode]:
    """Return the episodes of a plan in their order in the dataset."""
    tasks = TASKS if "all" in plan.tasks else plan.tasks
    return [PlannedEpisode(task, index) for task in dict.fromkeys(tasks) for index in range(plan.episodes)]


def select_rollout(plan: CollectPlan, planned: PlannedEpisode, steps: int) -> tuple[Trajectory, str]:
    """Return a rollout and its quality; where levels are balanced, the one nearest to the level that is wanted."""
    wanted = 1 + planned.index % 5
    tried: list[tuple[int, Trajectory, str]] = []
    for attempt in range(_ATTEMPTS if plan.balance else 1):
        rng = rng_for(plan.seed, "rollout", planned.task, planned.index, attempt)
        seed = int(rng.integers(2**31))
        quality = _quality(plan, planned, rng)
        limit = float(rng.uniform(*_STOPS[wanted])) if plan.balance else None
        trajectory = simulate(planned.task, seed, steps, make_policy(quality, planned.task, seed, limit))
        tried.append((abs(trajectory.readings[-1].level - wanted), trajectory, quality))
        if tried[-1][0] == 0:
            break
    _, trajectory, quality = min(tried, key=lambda found: found[0])
    return trajectory, quality


def _quality(plan: CollectPlan, planned: PlannedEpisode, rng: np.random.Generator) -> str:
    allowed = list(POLICIES) if "all" in plan.quality else list(plan.quality)
    if not plan.balance:
        return allowed[planned.index % len(allowed)]
    likely = [name for name in _LIKELY[1 + planned.index % 5] if name in allowed]
    names = likely if likely and rng.random() < 0.8 else allowed
    return pick(names, rng)
