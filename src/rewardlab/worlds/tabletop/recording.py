"""Record one episode of the tabletop, and clips for training: rollouts with the progress of many instructions."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames, Indices, Stage, level_of_progress
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.video_encoding import encode
from rewardlab.data.roboreward_rows import stage_row
from rewardlab.worlds.edits import WORLD_EDITS
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
from rewardlab.worlds.tabletop.catalog import EVERYTHING, VERBS, Vocabulary, unseen_vocabulary
from rewardlab.worlds.tabletop.goals import Goal, draw_text, draw_texts, goals_of, joined_text, progress
from rewardlab.worlds.tabletop.render import render_states
from rewardlab.worlds.tabletop.replay import (
    THINGS_EDIT,
    Change,
    RolloutRecord,
    caption,
    edited,
    graded_commands,
    record_json,
    video_steps,
)
from rewardlab.worlds.tabletop.rollouts import QUALITIES, STEPS, Rollout, make_rollout
from rewardlab.worlds.tabletop.scene import CAMERAS

TASKS = (*VERBS, *STEPS)
_ATTEMPTS = 12  # rollouts tried for a wanted level
# Where a wanted level is mostly found.
_LIKELY = {
    1: ("missed_grasp", "wrong_thing", "idle", "undone"),
    2: ("stop", "drop", "wrong_place"),
    3: ("drop", "near_miss", "stop"),
    4: ("near_miss", "stop", "drop"),
    5: ("success", "success", "retried"),
}
_ARMS = {"panda": "Franka Panda, simulated", "sawyer": "Sawyer, simulated", "made": "made-up arm, simulated"}


def check(plan: Collection) -> None:
    """Raise PlanError where the settings name something that the tabletop has not."""
    for names, catalog, what in ((plan.tasks, TASKS, "task"), (plan.quality, QUALITIES, "quality")):
        for name in names:
            find({**dict.fromkeys(catalog), "all": None}, name, what)
    for camera in plan.camera:
        find({**dict.fromkeys(CAMERAS), "any": None}, camera, "camera")
    if plan.marker:
        raise PlanError("the tabletop shows its goals as things, so there is no marker; leave --marker out")


def plan_episodes(plan: Collection) -> list[PlannedEpisode]:
    """Return the episodes of a plan in their order in the dataset."""
    tasks = TASKS if "all" in plan.tasks else plan.tasks
    return [
        PlannedEpisode(plan.simulator, task, index) for task in dict.fromkeys(tasks) for index in range(plan.episodes)
    ]


def select_rollout(plan: Collection, planned: PlannedEpisode, camera: str) -> Rollout:
    """Return a rollout; where levels are balanced, the one nearest to the level that is wanted."""
    wanted = wanted_level(planned, plan_episodes(plan), plan.episodes)
    allowed = list(QUALITIES) if "all" in plan.quality else list(plan.quality)
    likely = [name for name in _LIKELY[wanted] if name in allowed]
    tried: list[tuple[int, Rollout]] = []
    for attempt in range(_ATTEMPTS if plan.balance else 1):
        rng = rng_for(plan.seed, "rollout", planned.task, planned.index, attempt)
        quality = allowed[planned.index % len(allowed)]
        if plan.balance:
            quality = pick(likely if likely and rng.random() < 0.8 else allowed, rng)
        rollout = make_rollout(int(rng.integers(2**31)), planned.task, quality, camera=camera)
        tried.append((abs(_level(rollout, rollout.goal) - wanted), rollout))
        if tried[-1][0] == 0:
            break
    return min(tried, key=lambda found: found[0])[1]


def _level(rollout: Rollout, goal: Goal) -> int:
    return level_of_progress(float(progress(rollout.scene, rollout.states, goal)[-1]))


def record_episode(plan: Collection, planned: PlannedEpisode) -> RecordedEpisode:
    """Make, render and write one episode; what comes out depends on the plan's seed and the planned alone."""
    clock = [time.perf_counter()]
    rng = rng_for(plan.seed, "collect", planned.task, planned.index)
    count = int(rng.integers(plan.frames[0], plan.frames[1] + 1))
    camera, world = (str(rng.choice(np.array(names))) for names in (plan.camera, plan.world))
    rollout = select_rollout(plan, planned, camera)
    own = progress(rollout.scene, rollout.states, rollout.goal)
    clock.append(time.perf_counter())
    changes: list[Change] = [(THINGS_EDIT, (plan.distractors, planned.index))] if plan.distractors else []
    name, severity = parse_world(world)
    if severity:
        entry = WORLD_EDITS[name]
        changes.append((entry.edit, entry.sample(entry.table[severity - 1], rng)))
    try:
        scene = edited(rollout, changes)
    except NotApplicable:  # such as an arm that cannot follow
        changes, world = changes[:-1], "plain"
        scene = edited(rollout, changes)
    record = RolloutRecord(rollout.seed, planned.task, rollout.quality, camera, count, plan.size,
                           round(float(own[-1]), 4), tuple(changes))  # fmt: skip
    steps = video_steps(rollout, count)
    frames = render_states(scene, rollout.states, steps, plan.size)
    clock.append(time.perf_counter())
    video = plan.out / f"{planned.stem}.mp4"
    with atomic_write(video) as partial:
        encode(frames, partial, plan.fps, crf=CRF)
    clock.append(time.perf_counter())
    row: Row = {
        "file_name": f"{planned.stem}.mp4",
        "fps": plan.fps,
        "quality": rollout.quality,
        "world_change": world,
        "world": record_json(record, rollout) | {"video": sha256(video.read_bytes()).hexdigest()[:16]},
        "task_id": "+".join(rollout.goal.verbs),
        "split": split_of(rollout),
        "embodiment": _ARMS[scene.arm.make],
        "camera": camera,
        "license": "Apache-2.0",
        "source": "tabletop",
        "things": [thing.kind for thing in (*rollout.scene.things, *scene.clutter)],
    }
    row |= {"caption": caption(rollout, rollout.states)} if plan.captions else {}
    seconds = dict(zip(("simulate", "render", "encode"), np.diff(clock).tolist(), strict=True))
    return RecordedEpisode(_rows(plan, rollout, row, own[steps], steps, rng), seconds)


def _rows(
    plan: Collection, rollout: Rollout, row: Row, own: NDArray[np.float64], steps: Indices, rng: Generator
) -> tuple[Row, ...]:
    """Return the row of an episode and those of other instructions for it."""
    texts = draw_texts(rollout.scene, rollout.goal, plan.phrasings, rng)
    labels: Row = {
        "task": joined_text(texts),
        "reward": level_of_progress(float(own[-1])),
        "success": bool(own[-1] == 1),
        "progress": [round(float(value), 4) for value in own],
    }
    labels |= failure_row(rollout.failure, steps)
    if len(texts) > 1:
        labels["stages"] = [stage_row(stage) for stage in stages_of(rollout, texts, steps)]
    others = graded_commands(rollout, rng, plan.phrasings)[: plan.counterfactuals]
    more = [row | {"task": o.text, "reward": o.level, "success": False, "counterfactual": o.kind} for o in others]
    return (row | labels, *more)


def stages_of(rollout: Rollout, texts: Sequence[str], steps: Indices) -> list[Stage]:
    """Return the stages of a rollout at these steps."""
    return [
        stage_of(text, progress(rollout.scene, rollout.states, goal), steps)
        for text, goal in zip(texts, rollout.goal.steps, strict=True)
    ]


def split_of(rollout: Rollout) -> str:
    """Return the split of a rollout, by the kind of what is asked for: no such kind is in two splits."""
    kind = rollout.scene.things[rollout.goal.thing].kind
    if kind in unseen_vocabulary(0).kinds:
        return "test"
    return "val" if kind in sorted(unseen_vocabulary(1).kinds)[::2] else "train"


# Clips for training.


@dataclass(frozen=True, eq=False)
class Asked:
    """One instruction for a clip, and its progress in every frame."""

    text: str
    goal: Goal
    progress: NDArray[np.float32]  # (frames,)


@dataclass(frozen=True, eq=False)
class TrainingClip:
    """Frames of a rollout with its states at them; the first instruction is its own, the others are of its scene."""

    frames: Frames  # (frames, size, size, 3)
    rollout: Rollout  # with the states of the frames alone
    asked: tuple[Asked, ...]


def training_clips(
    seeds: Iterable[int], *, size: int = 168, frames: int = 16, others: int = 11, phrasings: str = "train",
    vocabulary: Vocabulary = EVERYTHING, render: bool = True,
) -> Iterator[TrainingClip]:  # fmt: skip
    """Yield the clip of every seed with up to so many other instructions; without `render`, frames are empty.

    One process renders one clip at a time: give every process seeds of its own.
    """
    for seed in seeds:
        rollout = make_rollout(seed, vocabulary=vocabulary)
        rng = rng_for(seed, "asked")
        steps = video_steps(rollout, frames)
        goals = [goal for goal in goals_of(rollout.scene, vocabulary) if goal != rollout.goal]
        chosen = [rollout.goal, *(goals[i] for i in rng.permutation(len(goals))[:others])]
        asked = tuple(
            Asked(
                draw_text(rollout.scene, goal, phrasings, rng),
                goal,
                progress(rollout.scene, rollout.states, goal)[steps].astype(np.float32),
            )
            for goal in chosen
        )
        shown = np.zeros((0, size, size, 3), np.uint8)
        if render:
            shown = render_states(rollout.scene, rollout.states, steps, size, tiled=True)
        yield TrainingClip(shown, replace(rollout, states=rollout.states.at(steps)), asked)


SIMULATOR = Simulator(check, plan_episodes, record_episode, camera="any")
