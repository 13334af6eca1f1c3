"""Validation of the simulator: do the experts succeed, is progress sound, and how often can another arm follow?

Run as a module; it prints Markdown.

python results/worlds/simulator_validation.py experts
python results/worlds/simulator_validation.py soundness
python results/worlds/simulator_validation.py other_arm
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rewardlab.core.errors import NotApplicable
from rewardlab.worlds.metaworld.other_arm import with_other_arm
from rewardlab.worlds.metaworld.physics import TASKS, Floats, Policy, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy, noisy_expert

_SEEDS = 5
_STEPS = 400
_SHORT = 250  # steps of the soundness study, which has many rollouts
_FOLLOWED = ("expert", "noise_mid", "stops_early", "random")  # qualities that the other arm has to follow
_SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0)
_RISES = 0.9  # Spearman of an expert's progress with time, from the start to its first success


@dataclass(frozen=True)
class RolloutSummary:
    """What the validation keeps of a rollout."""

    task: str
    first_success: int | None
    end: float
    level: int
    success: bool
    rise: float  # rank correlation of progress with time up to the first success; nan where progress never changes


def summarise_rollout(trajectory: Trajectory) -> RolloutSummary:
    """Return the summary of a rollout, after checking what must hold for every state of it."""
    progress, last = trajectory.progress, trajectory.readings[-1]
    done = [step for step, reading in enumerate(trajectory.readings) if reading.success]
    for reading in trajectory.readings:
        assert reading.success == (reading.progress == 1.0) == (reading.level == 5), f"{trajectory.task}: {reading}"
    first = done[0] if done else None
    rise = rank_correlation(progress[: first + 1 if first is not None else None])
    return RolloutSummary(trajectory.task, first, last.progress, last.level, last.success, rise)


def rank_correlation(values: Floats) -> float:
    """Return Spearman's correlation of values with time; ties share their rank, nan if nothing changes."""
    below = np.searchsorted(np.sort(values), values, side="left")
    up_to = np.searchsorted(np.sort(values), values, side="right")
    ranks = (below + up_to) / 2
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) if np.ptp(ranks) > 0 else float("nan")


def experts() -> None:
    """Print how often each expert succeeds, when, whether it lasts, and how its progress rises."""
    print("| task | succeeded | still at the end | steps to success | Spearman with time |")
    print("|---|---|---|---|---|")
    ever = lasting = sound = 0
    for task in TASKS:
        rows = _rollouts(task, _noisy(task, 0.0))
        times = [row.first_success for row in rows if row.first_success is not None]
        rise = float(np.nanmedian([row.rise for row in rows]))
        ends = sum(row.success for row in rows)
        ever, lasting, sound = ever + len(times), lasting + ends, sound + (rise > _RISES)
        steps = f"{np.median(times):.0f}" if times else "-"
        print(f"| {task} | {len(times)}/{_SEEDS} | {ends}/{_SEEDS} | {steps} | {rise:.2f} |", flush=True)
    print(f"\n{ever} of {len(TASKS) * _SEEDS} rollouts succeed, {lasting} still at the end; {sound} of {len(TASKS)} ")
    print(f"tasks have a median Spearman correlation of progress with time above {_RISES}.")


def soundness() -> None:
    """Print the levels of every quality and what noise does to progress; every state is checked on the way."""
    print("| quality | " + " | ".join(f"level {level}" for level in range(1, 6)) + " | mean progress |")
    print("|---|---|---|---|---|---|---|")
    total = 0
    for quality in POLICIES:
        rows = [row for task in TASKS for row in _rollouts(task, _policy_maker(quality, task), range(1), _SHORT)]
        total += len(rows)
        _print_levels(quality, rows)
        if quality == "random":
            named = ", ".join(f"{row.task} (level {row.level})" for row in rows if row.level > 1)
    print(f"\nTasks in which the random policy got above level 1: {named}.")
    print("\n| noise | mean progress at the end | successes |\n|---|---|---|")
    for sigma in _SIGMAS:
        rows = [row for task in TASKS for row in _rollouts(task, _noisy(task, sigma), range(1), _SHORT)]
        total += len(rows)
        mean = np.mean([row.end for row in rows])
        print(f"| {sigma:g} | {mean:.3f} | {sum(row.success for row in rows)}/{len(rows)} |", flush=True)
    print(f"\n{total} rollouts; in every state of each, success, progress 1 and level 5 were the same thing.")


def other_arm() -> None:
    """Print in how many rollouts of each task and quality the other arm can follow the hand in every state."""
    follows = {(task, quality): _followed(task, quality) for task in TASKS for quality in _FOLLOWED}
    print("| quality | rollouts that the other arm can follow |\n|---|---|")
    for quality in _FOLLOWED:
        print(f"| {quality} | {sum(follows[task, quality] for task in TASKS)}/{len(TASKS)} |")
    missed = {task: [quality for quality in _FOLLOWED if not follows[task, quality]] for task in TASKS}
    print(f"\n{sum(follows.values())} of {len(follows)} rollouts. Not followed: ", end="")
    print("; ".join(f"{task} ({', '.join(names)})" for task, names in missed.items() if names) + ".")


def _followed(task: str, quality: str) -> bool:
    trajectory = simulate(task, 0, _SHORT, make_policy(quality, task, 0))
    try:
        with_other_arm(trajectory, range(len(trajectory.qpos)))
    except NotApplicable:
        return False
    return True


def _policy_maker(quality: str, task: str) -> Callable[[int], Policy]:
    return lambda seed: make_policy(quality, task, seed)


def _noisy(task: str, sigma: float) -> Callable[[int], Policy]:
    return lambda seed: noisy_expert(task, seed, sigma)


def _rollouts(
    task: str, make: Callable[[int], Policy], seeds: Iterable[int] = range(_SEEDS), steps: int = _STEPS
) -> list[RolloutSummary]:
    return [summarise_rollout(simulate(task, seed, steps, make(seed))) for seed in seeds]


def _print_levels(name: str, rows: list[RolloutSummary]) -> None:
    counts = Counter(row.level for row in rows)
    cells = " | ".join(str(counts[level]) for level in range(1, 6))
    print(f"| {name} | {cells} | {np.mean([row.end for row in rows]):.2f} |", flush=True)


if __name__ == "__main__":
    {"experts": experts, "soundness": soundness, "other_arm": other_arm}[sys.argv[1]]()
