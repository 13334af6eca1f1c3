"""Clips from the simulator: pocket's rollouts, rendered from one camera each; no video file comes in between."""

from functools import partial
from pathlib import Path

import numpy as np

from rewardlab.core.catalog_lookup import find
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.runner.dispatch import map_items
from rewardlab.training.live_view import LiveView
from rewardlab.training.objective_training.clips import TEST, TRAIN, VALIDATION, ClipFact, ClipTable, write_shard
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.pocket.plan import CAMERA_SHARES, PocketPlan
from rewardlab.training.pocket.rollouts import SHARD_SIZE, Rollout, Shard, load_rollouts, shards_of, simulate_all
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.task_splits import FOLDS, unseen_tasks

KEPT = 24  # frames of a rollout, as pocket keeps them; a clip shows some of these
_SEVERAL_STEPS = ("carry", "tool")  # families of tasks in which something is fetched before it is used or placed


def chosen_tasks(plan: ObjectivePlan) -> tuple[str, ...]:
    """Return the tasks of a plan; PlanError where nothing is left to train on or to judge by."""
    if not 0 <= plan.fold < FOLDS:
        raise PlanError(f"folds are numbers from 0 to {FOLDS - 1}, got {plan.fold}")
    known = {task: task for task in TASKS}
    named = TASKS if plan.tasks == ("all",) else tuple(find(known, task, "Meta-World task") for task in plan.tasks)
    unseen = unseen_tasks(plan.fold)
    if all(task in unseen for task in named):
        raise PlanError(f"fold {plan.fold} trains on none of these tasks; name others, or another --fold")
    return named


def simulate(plan: ObjectivePlan) -> None:
    """Simulate the rollouts that are not there yet: of unseen tasks only those that are judged."""
    simulate_all(_pocket(plan), _shards(plan))


def _pocket(plan: ObjectivePlan) -> PocketPlan:
    return PocketPlan(
        "pocket",
        rollouts=plan.rollouts,
        near=plan.near,
        checks=plan.checks,
        tasks=chosen_tasks(plan),
        kept=KEPT,
        seed=plan.seed,
        workers=plan.workers,
        out=plan.out,
    )


def _shards(plan: ObjectivePlan) -> list[Shard]:
    unseen = unseen_tasks(plan.fold)
    return [shard for shard in shards_of(_pocket(plan)) if shard.part == "check" or shard.task not in unseen]


def render_clips(plan: ObjectivePlan) -> list[Path]:
    """Render the clips of each task that are not there yet, and return the shards of all."""
    folder = plan.out / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    shards = {task: folder / f"{task}.npz" for task in chosen_tasks(plan)}
    missing = [task for task, path in shards.items() if not path.exists()]
    view = LiveView("rendering tasks", len(shards), len(shards) - len(missing))
    try:
        for done, _ in enumerate(map_items(partial(_render_task, plan), missing, plan.workers), start=1):
            view.step(len(shards) - len(missing) + done)
    finally:
        view.close()
    return list(shards.values())


def _render_task(plan: ObjectivePlan, task: str) -> None:
    clips, progress, pixels = [], [], []
    for shard in _shards(plan):
        if shard.task != task:
            continue
        rollouts = load_rollouts(plan.out / "rollouts" / shard.name)[: shard.count]
        for index, rollout in enumerate(rollouts, start=shard.number * SHARD_SIZE):
            frames = np.linspace(0, KEPT - 1, plan.frames).round().astype(np.int64)
            clips.append(_fact(plan, shard, index, rollout))
            progress.append(rollout.trajectory.progress[frames])
            rng = rng_for(plan.seed, "camera", shard.name, index)
            camera = str(rng.choice(np.array(list(CAMERA_SHARES)), p=np.array(list(CAMERA_SHARES.values()))))
            pixels.append(
                render_rollout(rollout.trajectory, frames.tolist(), CameraView(camera, plan.size), tiled=True)
            )
    table = ClipTable(tuple(clips), np.array(progress, np.float64), np.stack(pixels))
    write_shard(plan.out / "clips" / f"{task}.npz", table)


def _fact(plan: ObjectivePlan, shard: Shard, index: int, rollout: Rollout) -> ClipFact:
    seen = shard.task not in unseen_tasks(plan.fold)
    part = TRAIN if shard.part != "check" else VALIDATION if seen and index % 2 else TEST
    name = f"{shard.part}-{shard.task}-{index:03d}"
    last = rollout.trajectory.readings[-1]
    return ClipFact(
        name,
        shard.task,
        rollout.texts,
        pick(rollout.held_out_texts, rng_for(plan.seed, "asked", name)),
        part,
        seen,
        PROGRESS_SPECS[shard.task].family in _SEVERAL_STEPS,
        last.level,
        int(last.level == 5),
    )
