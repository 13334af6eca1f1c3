"""Recording one episode: simulate, render, encode, and the rows of metadata with the exact truth."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from rewardlab.collection.collection_settings import CollectPlan, parse_world
from rewardlab.collection.rollout_selection import PlannedEpisode, select_rollout
from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import pick, rng_for
from rewardlab.h264_encoding import encode
from rewardlab.worlds.metaworld.captions import caption
from rewardlab.worlds.metaworld.instructions import Counterfactual, ask_for_thing, counterfactuals, draw_instruction
from rewardlab.worlds.metaworld.physics import STEPS_PER_SECOND, Trajectory
from rewardlab.worlds.metaworld.render import camera_view
from rewardlab.worlds.metaworld.replay import RolloutRecord, record_json, video_steps
from rewardlab.worlds.metaworld.scene_edits import ROBOT_EDIT, THINGS_EDIT, render_rollout
from rewardlab.worlds.metaworld.task_splits import split_of_task
from rewardlab.worlds.metaworld.thing_placement import place_things

_CRF = 21


@dataclass(frozen=True)
class RecordedEpisode:
    """The rows of metadata of one recorded episode and the seconds that each stage took."""

    rows: tuple[dict[str, Any], ...]
    seconds: dict[str, float]


def record_episode(plan: CollectPlan, planned: PlannedEpisode) -> RecordedEpisode:
    """Roll out, render and write one episode; what comes out depends on the plan's seed and the planned alone."""
    clock = [time.perf_counter()]
    rng = rng_for(plan.seed, "collect", planned.task, planned.index)
    steps = int(rng.integers(plan.frames[0] - 1, plan.frames[1])) * plan.stride
    view = camera_view(str(rng.choice(np.array(plan.camera))), plan.size, plan.marker)
    world = str(rng.choice(np.array(plan.world)))
    trajectory, quality = select_rollout(plan, planned, steps)
    clock.append(time.perf_counter())
    progress, edits, seed = float(trajectory.progress[-1]), _scene_edits(world, rng), planned.index
    things = place_things(trajectory, plan.things, seed) if plan.things else ()
    edits = (*edits, (THINGS_EDIT, (plan.things, seed))) if things else edits
    record = RolloutRecord(planned.task, trajectory.seed, steps, plan.stride, progress, view, edits)
    frames, record, world = _film(trajectory, record, world)
    clock.append(time.perf_counter())
    video, fps = plan.out / f"{planned.stem}.mp4", STEPS_PER_SECOND / plan.stride
    with atomic_write(video) as partial:
        encode(frames, partial, fps, crf=_CRF)
    with atomic_write(plan.out / f"{planned.stem}.npy") as partial, partial.open("wb") as handle:
        np.save(handle, trajectory.actions)
    clock.append(time.perf_counter())
    extra = {"file": f"{planned.stem}.npy", "video": sha256(video.read_bytes()).hexdigest()[:16]}
    row = {"file_name": f"{planned.stem}.mp4", "fps": fps, "quality": quality, "world_change": world}
    row |= {"world": record_json(trajectory, record) | extra}
    row |= {"things": [thing.name for thing in things]} if plan.things else {}
    row |= {"caption": _caption(trajectory, [thing.name for thing in things])} if plan.captions else {}
    seconds = dict(zip(("simulate", "render", "encode"), np.diff(clock).tolist()))
    asked = [ask_for_thing(pick(thing.state.tasks, rng), plan.phrasings, rng) for thing in things]
    return RecordedEpisode(_rows(plan, trajectory, row, asked, rng), seconds)


def _rows(
    plan: CollectPlan,
    trajectory: Trajectory,
    row: dict[str, Any],
    asked: Sequence[Counterfactual],
    rng: np.random.Generator,
) -> tuple[dict[str, Any], ...]:
    """Return the row of an episode and those of other instructions for it, among them what is asked of other things."""
    kept = video_steps(len(trajectory.actions), plan.stride)
    last = trajectory.readings[-1]
    row |= {
        "task_id": trajectory.task,
        "split": split_of_task(trajectory.task),
        "embodiment": _embodiment(row["world"]["changes"]),
        "camera": row["world"]["camera"],
        "license": "MIT",
        "source": "Meta-World",
    }
    labels = {
        "task": draw_instruction(trajectory, plan.phrasings, rng),
        "reward": last.level,
        "success": last.success,
        "progress": [round(float(value), 4) for value in trajectory.progress[kept]],
    }
    others = [*counterfactuals(trajectory, rng), *asked]
    chosen = [others[i] for i in sorted(rng.permutation(len(others))[: plan.counterfactuals])]
    more = [
        row | {"task": o.text, "reward": o.level, "success": o.level == 5, "counterfactual": o.kind} for o in chosen
    ]
    return (row | labels, *more)


def _caption(trajectory: Trajectory, things: Sequence[str]) -> str:
    """Return what moved, and what else stands in the scene."""
    moved = caption(trajectory.task, trajectory.gripper_pos, trajectory.object_pos)
    return f"{moved}; beside it: {', '.join(things)}" if things else moved


def _film(trajectory: Trajectory, record: RolloutRecord, world: str) -> tuple[Frames, RolloutRecord, str]:
    """Return the frames, and the record and world they were filmed in: plain, where another arm cannot follow."""
    steps = record.video_steps().tolist()
    try:
        return render_rollout(trajectory, steps, record.view, record.changes), record, world
    except NotApplicable:
        plain = replace(record, changes=tuple(change for change in record.changes if change[0] != ROBOT_EDIT))
        if plain == record:  # any other change that has no meaning here is a mistake in the plan
            raise
        return render_rollout(trajectory, steps, record.view, plain.changes), plain, "plain"


def _embodiment(changes: Sequence[Sequence[Any]]) -> str:
    other = any(name == ROBOT_EDIT and amounts[0] for name, *amounts in changes)
    return "Franka Panda, simulated" if other else "Sawyer, simulated"


def _scene_edits(text: str, rng: np.random.Generator) -> tuple[tuple[str, tuple[float, ...]], ...]:
    name, severity = parse_world(text)
    if not severity:
        return ()
    from rewardlab.perturbations.rerendered_world import WORLD_EDITS

    entry = WORLD_EDITS[name]
    return ((entry.edit, entry.sample(entry.table[severity - 1], rng)),)
