"""Record one episode: choose a rollout, render it, encode it, and make its rows with the exact label."""

import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import FailureEvent, Frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.video_encoding import encode
from rewardlab.data.roboreward_rows import stage_row
from rewardlab.worlds.edits import WORLD_EDITS
from rewardlab.worlds.metaworld.distractors import place_distractors
from rewardlab.worlds.metaworld.instructions import (
    Counterfactual,
    ask_for_distractor,
    caption,
    counterfactuals,
    draw_instructions,
    joined_text,
)
from rewardlab.worlds.metaworld.physics import MAX_STEPS, STEPS_PER_SECOND, TASKS, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, failure_of, make_policy
from rewardlab.worlds.metaworld.render import camera_view
from rewardlab.worlds.metaworld.replay import RolloutRecord, record_json, video_steps
from rewardlab.worlds.metaworld.scene_edits import DISTRACTOR_OBJECTS_EDIT, ROBOT_EDIT, render_rollout
from rewardlab.worlds.metaworld.tasks import CHAINS, split_of_task
from rewardlab.worlds.plan import (
    CRF,
    Collection,
    PlannedEpisode,
    RecordedEpisode,
    Row,
    Simulator,
    failure_row,
    parse_world,
    stage_of,
    wanted_level,
)

_CHAINS = "chains"  # in place of a task: all of them


def check(plan: Collection) -> None:
    """Raise PlanError where the settings name something that Meta-World has not."""
    for names, catalog, what in ((plan.tasks, (*TASKS, *CHAINS, _CHAINS), "task"), (plan.quality, POLICIES, "quality")):
        for name in names:
            find({**dict.fromkeys(catalog), "all": None}, name, what)
    if (plan.marker or plan.captions) and any(each.task in CHAINS for each in plan_episodes(plan)):
        raise PlanError("a chain has several goals, and captions are of one task; leave out --marker and --captions")
    for camera in plan.camera:
        camera_view(camera, plan.size, plan.marker)
    if (plan.frames[1] - 1) * stride_of(plan) > MAX_STEPS:
        raise PlanError(f"{plan.frames[1]} frames at {plan.fps:g} fps are more than the {MAX_STEPS} steps there are")


def stride_of(plan: Collection) -> int:
    """Return how many simulation steps lie between two frames."""
    return max(1, round(STEPS_PER_SECOND / plan.fps))


# Which rollout becomes an episode: any of the wanted quality, or the one nearest to the level that is wanted.

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


def plan_episodes(plan: Collection) -> list[PlannedEpisode]:
    """Return the episodes of a plan in their order in the dataset."""
    several = {"all": TASKS, _CHAINS: tuple(CHAINS)}
    tasks = [task for name in plan.tasks for task in several.get(name, (name,))]
    return [
        PlannedEpisode(plan.simulator, task, index) for task in dict.fromkeys(tasks) for index in range(plan.episodes)
    ]


def select_rollout(
    plan: Collection, planned: PlannedEpisode, steps: int
) -> tuple[Trajectory, str, FailureEvent | None]:
    """Return a rollout, its quality and why it failed.

    Where levels are balanced, it is the one nearest to the level that is wanted.
    """
    wanted = wanted_level(planned, plan_episodes(plan), plan.episodes)
    allowed = list(POLICIES) if "all" in plan.quality else list(plan.quality)
    likely = [name for name in _LIKELY[wanted] if name in allowed]
    tried: list[tuple[int, Trajectory, str, list[int]]] = []
    for attempt in range(_ATTEMPTS if plan.balance else 1):
        rng = rng_for(plan.seed, "rollout", planned.task, planned.index, attempt)
        seed = int(rng.integers(2**31))
        quality, limit = allowed[planned.index % len(allowed)], None
        if plan.balance:
            quality = pick(likely if likely and rng.random() < 0.8 else allowed, rng)
            limit = float(rng.uniform(*_STOPS[wanted]))
        left: list[int] = []
        trajectory = simulate(planned.task, seed, steps, make_policy(quality, planned.task, seed, limit, left))
        tried.append((abs(trajectory.readings[-1].level - wanted), trajectory, quality, left))
        if tried[-1][0] == 0:
            break
    _, trajectory, quality, left = min(tried, key=lambda found: found[0])
    return trajectory, quality, failure_of(trajectory, quality, left)


def record_episode(plan: Collection, planned: PlannedEpisode) -> RecordedEpisode:
    """Roll out, render and write one episode; what comes out depends on the plan's seed and the planned alone."""
    clock = [time.perf_counter()]
    rng = rng_for(plan.seed, "collect", planned.task, planned.index)
    steps = int(rng.integers(plan.frames[0] - 1, plan.frames[1])) * stride_of(plan)
    view = camera_view(str(rng.choice(np.array(plan.camera))), plan.size, plan.marker)
    world = str(rng.choice(np.array(plan.world)))
    trajectory, quality, failure = select_rollout(plan, planned, steps)
    clock.append(time.perf_counter())
    progress, seed = float(trajectory.progress[-1]), planned.index
    name, severity = parse_world(world)
    edits: tuple[tuple[str, tuple[float, ...]], ...] = ()
    if severity:
        entry = WORLD_EDITS[name]
        edits = ((entry.edit, entry.sample(entry.table[severity - 1], rng)),)
    distractors = place_distractors(trajectory, plan.distractors, seed) if plan.distractors else ()
    edits = (*edits, (DISTRACTOR_OBJECTS_EDIT, (plan.distractors, seed))) if distractors else edits
    record = RolloutRecord(planned.task, trajectory.seed, steps, stride_of(plan), progress, view, edits)
    frames, record, world = _render(trajectory, record, world)
    clock.append(time.perf_counter())
    video, fps = plan.out / f"{planned.stem}.mp4", STEPS_PER_SECOND / stride_of(plan)
    with atomic_write(video) as partial:
        encode(frames, partial, fps, crf=CRF)
    with atomic_write(plan.out / f"{planned.stem}.npy") as partial, partial.open("wb") as handle:
        np.save(handle, trajectory.actions)
    clock.append(time.perf_counter())
    extra = {"file": f"{planned.stem}.npy", "video": sha256(video.read_bytes()).hexdigest()[:16]}
    row = {"file_name": f"{planned.stem}.mp4", "fps": fps, "quality": quality, "world_change": world}
    row |= {"world": record_json(trajectory, record) | extra}
    names = [distractor.name for distractor in distractors]
    row |= {"things": names} if plan.distractors else {}
    if plan.captions:  # what moved, and what else stands in the scene
        moved = caption(trajectory.task, trajectory.gripper_pos, trajectory.object_pos)
        row["caption"] = f"{moved}; beside it: {', '.join(names)}" if names else moved
    seconds = dict(zip(("simulate", "render", "encode"), np.diff(clock).tolist(), strict=True))
    asked = [ask_for_distractor(pick(distractor.state.tasks, rng), plan.phrasings, rng) for distractor in distractors]
    return RecordedEpisode(_rows(plan, trajectory, row, failure, asked, rng), seconds)


def _rows(
    plan: Collection,
    trajectory: Trajectory,
    row: Row,
    failure: FailureEvent | None,
    asked: Sequence[Counterfactual],
    rng: np.random.Generator,
) -> tuple[Row, ...]:
    """Return the row of an episode and those of other instructions for it, among them what is asked of distractors."""
    kept = video_steps(len(trajectory.actions), stride_of(plan))
    last = trajectory.readings[-1]
    other_arm = any(name == ROBOT_EDIT and amounts[0] for name, *amounts in row["world"]["changes"])
    row |= {
        "task_id": trajectory.name,
        "split": split_of_task(trajectory.name),
        "embodiment": "Franka Panda, simulated" if other_arm else "Sawyer, simulated",
        "camera": row["world"]["camera"],
        "license": "MIT",
        "source": "Meta-World",
    }
    texts = draw_instructions(trajectory, plan.phrasings, rng)
    labels: Row = {
        "task": joined_text(texts),
        "reward": last.level,
        "success": last.success,
        "progress": [round(float(value), 4) for value in trajectory.progress[kept]],
    }
    labels |= failure_row(failure, kept)
    if trajectory.stages:
        stages = (stage_of(text, stage.progress, kept) for text, stage in zip(texts, trajectory.stages, strict=True))
        labels["stages"] = [stage_row(stage) for stage in stages]
    others = [*([] if trajectory.stages else counterfactuals(trajectory, rng)), *asked]
    chosen = [others[i] for i in sorted(rng.permutation(len(others))[: plan.counterfactuals])]
    more = [
        row | {"task": o.text, "reward": o.level, "success": o.level == 5, "counterfactual": o.kind} for o in chosen
    ]
    return (row | labels, *more)


def _render(trajectory: Trajectory, record: RolloutRecord, world: str) -> tuple[Frames, RolloutRecord, str]:
    """Return the frames, and the record and world they were rendered in: plain, where another arm cannot follow."""
    steps = record.video_steps().tolist()
    try:
        return render_rollout(trajectory, steps, record.view, record.changes), record, world
    except NotApplicable:
        plain = replace(record, changes=tuple(change for change in record.changes if change[0] != ROBOT_EDIT))
        if plain == record:  # any other change that has no meaning here is a mistake in the plan
            raise
        return render_rollout(trajectory, steps, record.view, plain.changes), plain, "plain"


SIMULATOR = Simulator(check, plan_episodes, record_episode, camera="right")
