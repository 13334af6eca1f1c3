"""Replay: a recorded rollout made again from its seed, rendered anew in an edited scene, and asked other commands."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames, Indices, level_of_progress
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.graded_commands import normal
from rewardlab.worlds.metaworld.instructions import Counterfactual
from rewardlab.worlds.metaworld.physics import simulator_versions
from rewardlab.worlds.plan import PHRASINGS
from rewardlab.worlds.tabletop.arms import within_reach
from rewardlab.worlds.tabletop.catalog import COLOURS, KINDS, VERBS, Triple
from rewardlab.worlds.tabletop.goals import (
    DIRECTIONS,
    Goal,
    States,
    goals_of,
    in_steps,
    joined_text,
    names_of,
    phrasings,
    progress,
    texts_of,
)
from rewardlab.worlds.tabletop.render import MAX_SIDE, render_states
from rewardlab.worlds.tabletop.rollouts import QUALITIES, STEPS, Rollout, make_rollout
from rewardlab.worlds.tabletop.scene import CAMERAS, Scene, Surface, Thing, draw_clutter

Amounts = Sequence[float]
Change = tuple[str, tuple[float, ...]]
EditScene = Callable[[Rollout, Amounts], Scene]

GENERATOR = 1  # raised when a seed gives another rollout
MOST_FRAMES = 1000
THINGS_EDIT = "things"  # at most how many more things, and the seed of which and where
_OTHER_ARM = {"made": "panda", "panda": "sawyer", "sawyer": "panda"}


@dataclass(frozen=True)
class RolloutRecord:
    """What is stored about a rollout: how it is made, how it is shown, and where it ends."""

    seed: int
    task: str  # a verb, or one of STEPS
    quality: str
    camera: str
    frames: int
    size: int
    end: float
    changes: tuple[Change, ...] = ()  # what was already changed when it was recorded


@dataclass(frozen=True, eq=False)
class ReplayedRollout:
    """A World: the rollout of a record, made again."""

    record: RolloutRecord
    rollout: Rollout

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Return these frames of the video rendered again, with a named edit of the scene or none."""
        more = ((change, tuple(amounts)),) if change else ()
        steps = video_steps(self.rollout, self.record.frames)[frames]
        scene = edited(self.rollout, (*self.record.changes, *more))
        return render_states(scene, self.rollout.states, steps, self.record.size)


def video_steps(rollout: Rollout, frames: int) -> NDArray[np.int64]:
    """Return the steps that become frames: so many, evenly from the first to the last."""
    return np.linspace(0, len(rollout.states) - 1, frames).round().astype(np.int64)


def record_json(record: RolloutRecord, rollout: Rollout) -> dict[str, object]:
    """Return the JSON record of a rollout."""
    things = [rollout.scene.things[number] for goal in rollout.goal.steps for number in (goal.thing, *goal.members)]
    return {
        "kind": "tabletop",
        **{name: value for name, value in vars(record).items() if name != "changes"},
        "changes": [[name, *amounts] for name, amounts in record.changes],
        "colours": sorted({thing.colour for thing in things}),
        "generator": GENERATOR,
        "mujoco": simulator_versions()["mujoco"],
    }


def open_record(record: Mapping[str, object]) -> ReplayedRollout:
    """Return the world of a record; DataError if its rollout cannot be made again here."""
    return _replayed(_read(record), int(str(record.get("generator", 0))))


@lru_cache(maxsize=16)  # a stress test asks for the same episode under many changes
def _replayed(record: RolloutRecord, generator: int) -> ReplayedRollout:
    rollout = make_rollout(record.seed, record.task, record.quality, camera=record.camera)
    end = float(progress(rollout.scene, rollout.states, rollout.goal)[-1])
    if generator != GENERATOR or abs(end - record.end) > 1e-3:
        raise DataError(
            f"{record.task} seed {record.seed} ends at progress {end:.3f} here, {record.end:.3f} when it was recorded "
            f"by generator {generator}; this is generator {GENERATOR}: collect the episode anew"
        )
    return ReplayedRollout(record, rollout)


def _read(record: Mapping[str, object]) -> RolloutRecord:
    row: Any = record
    try:
        find(dict.fromkeys((*VERBS, *STEPS)), str(row["task"]), "task")
        find(QUALITIES, str(row["quality"]), "quality")
        find({**CAMERAS, "any": None}, str(row["camera"]), "camera")
        if not 2 <= int(row["frames"]) <= MOST_FRAMES or not 0 < int(row["size"]) <= MAX_SIDE:
            raise ValueError(f"2 to {MOST_FRAMES} frames of at most {MAX_SIDE} pixels")
        changes = tuple((str(name), tuple(float(a) for a in amounts)) for name, *amounts in row["changes"])
        task, quality, camera = (str(row[name]) for name in ("task", "quality", "camera"))
        seed, frames, size = (int(row[name]) for name in ("seed", "frames", "size"))
        return RolloutRecord(seed, task, quality, camera, frames, size, float(row["end"]), changes)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"a tabletop record needs seed, task, quality, camera, frames, size, end and changes: {error}"
        ) from error


# Edits of the scene: what the camera sees changes, the rollout stays.


def edited(rollout: Rollout, changes: Sequence[Change]) -> Scene:
    """Return the scene of a rollout under these edits, one after the other."""
    scene = rollout.scene
    for name, amounts in changes:
        scene = find(SCENE_EDITS, name, "change of a world")(replace(rollout, scene=scene), amounts)
    return scene


def _camera(rollout: Rollout, amounts: Amounts) -> Scene:
    turn, lift, back = amounts
    camera = rollout.scene.camera
    elevation = float(np.clip(camera.elevation - lift, -89, -5))
    moved = replace(camera, azimuth=camera.azimuth + turn, elevation=elevation, distance=back * camera.distance)
    return replace(rollout.scene, camera=moved)


def _fov(rollout: Rollout, amounts: Amounts) -> Scene:
    camera = rollout.scene.camera
    half = np.arctan(amounts[0] * np.tan(np.radians(camera.fov / 2)))
    return replace(rollout.scene, camera=replace(camera, fov=float(np.degrees(2 * half))))


def _light_position(rollout: Rollout, amounts: Amounts) -> Scene:
    """Turn the lamps around the table, and let the first do more of the lighting."""
    turn, share = np.radians(amounts[0]), amounts[1]
    lamps = []
    for number, lamp in enumerate(rollout.scene.lamps):
        x, y, z = lamp.place
        place = (float(x * np.cos(turn) - y * np.sin(turn)), float(x * np.sin(turn) + y * np.cos(turn)), z)
        lamps.append(replace(lamp, place=place, light=_scaled(lamp.light, 1 + share if number == 0 else 1 - share)))
    room = replace(rollout.scene.room, ambient=rollout.scene.room.ambient * (1 - share))
    return replace(rollout.scene, lamps=tuple(lamps), room=room)


def _scaled(light: Triple, *factors: float) -> Triple:
    r, g, b = np.array(light) * factors
    return float(r), float(g), float(b)


def _light(rollout: Rollout, amounts: Amounts) -> Scene:
    lamps = tuple(replace(lamp, light=_scaled(lamp.light, *amounts)) for lamp in rollout.scene.lamps)
    return replace(rollout.scene, lamps=lamps)


def _covered(surface: Surface, amounts: Amounts) -> Surface:
    cover, seed = float(amounts[0]), int(amounts[1])
    other = rng_for(seed, "surface").uniform(0.15, 1.0, 3)
    return replace(surface, rgb=_mixed(surface.rgb, other, cover), other=seed, cover=cover)


def _mixed(one: Sequence[float], other: Any, cover: float) -> Triple:
    r, g, b = (1 - cover) * np.array(one) + cover * np.array(other)
    return float(r), float(g), float(b)


def _table(rollout: Rollout, amounts: Amounts) -> Scene:
    room = rollout.scene.room
    return replace(rollout.scene, room=replace(room, table=_covered(room.table, amounts)))


def _floor(rollout: Rollout, amounts: Amounts) -> Scene:
    room = rollout.scene.room
    return replace(rollout.scene, room=replace(room, floor=_covered(room.floor, amounts)))


def _robot_colour(rollout: Rollout, amounts: Amounts) -> Scene:
    *rgb, cover = amounts
    arm = rollout.scene.arm
    before = arm.paint[3] * (1 - cover)
    whole = before + cover
    paint = _mixed(arm.paint[:3], rgb, cover / whole) if whole else arm.paint[:3]
    return replace(rollout.scene, arm=replace(arm, paint=(*paint, whole)))


def _robot(rollout: Rollout, amounts: Amounts) -> Scene:
    """Film the same motion with another arm, other links and another paint."""
    other, thickness, *paint = amounts
    arm = replace(rollout.scene.arm, thickness=float(thickness))
    if other:
        arm = replace(arm, make=_OTHER_ARM[arm.make], base=(-0.53, 0.0, 0.0), yaw=0.0, paint=(1.0, 1.0, 1.0, 0.0))
        if not within_reach(arm, rollout.states):
            raise NotApplicable(
                f"the {arm.make.title()} cannot follow the recorded hand everywhere; show the recorded arm"
            )
    return _robot_colour(replace(rollout, scene=replace(rollout.scene, arm=arm)), paint)


def _distractors(rollout: Rollout, amounts: Amounts) -> Scene:
    count = int(amounts[0])
    scene = _more_things(rollout, amounts)
    if len(scene.clutter) < len(rollout.scene.clutter) + count:
        raise NotApplicable(f"the table has no room for {count} more objects away from the work")
    return scene


def _more_things(rollout: Rollout, amounts: Amounts) -> Scene:
    """Put up to so many more things on the table, of kinds that are not there, away from all that moves."""
    count, seed = (int(amount) for amount in amounts)
    scene = rollout.scene
    used = {thing.kind for thing in (*scene.things, *scene.clutter)}
    kinds = [name for name, kind in KINDS.items() if kind.role == "movable" and name not in used]
    found = draw_clutter(rng_for(seed, "distractors"), count, _footprints(rollout), kinds, margin=0.02)
    return replace(scene, clutter=(*scene.clutter, *found))


def _footprints(rollout: Rollout) -> list[Thing]:
    """Return everything that must stay free: all things where they begin and end, and the path of the hand."""
    scene, states = rollout.scene, rollout.states
    moved = [
        replace(thing, place=(float(x), float(y)))
        for step in (0, len(states) // 2, -1)
        for thing, (x, y) in zip(scene.things, states.place[step, :, :2], strict=True)
    ]
    finger = replace(scene.things[0], kind="block", size=1.2)
    low = states.hand[::6][states.hand[::6, 2] < 0.25]
    return [*moved, *scene.clutter, *(replace(finger, place=(float(x), float(y))) for x, y, _ in low)]


def _goal_hidden(_rollout: Rollout, _amounts: Amounts) -> Scene:
    raise NotApplicable("this world never shows its goal marker, so there is none to hide")


def _goal_decoys(rollout: Rollout, amounts: Amounts) -> Scene:
    count, seed = (int(amount) for amount in amounts)
    rng = rng_for(seed, "decoys")
    markers = [
        (float(x), float(y), float(z)) for x, y, z in rng.uniform((-0.2, -0.3, 0.03), (0.28, 0.3, 0.25), (count, 3))
    ]
    return replace(rollout.scene, markers=(*rollout.scene.markers, *markers))


def _object_colour(rollout: Rollout, amounts: Amounts) -> Scene:
    """Paint what the goal is about; not where another thing of its kind could then be meant."""
    *rgb, cover = amounts
    scene = rollout.scene
    meant = {number for goal in rollout.goal.steps for number in (goal.thing, *goal.members)}
    if any(
        thing.kind == scene.things[number].kind
        for number in meant
        for i, thing in enumerate(scene.things)
        if i not in meant
    ):
        raise NotApplicable("another thing of the same kind stands there, and colours tell them apart")
    things = [
        replace(thing, rgb=_mixed(thing.rgb, rgb, cover), texture=-1) if number in meant else thing
        for number, thing in enumerate(scene.things)
    ]
    return replace(scene, things=tuple(things))


SCENE_EDITS: dict[str, EditScene] = {
    **{"camera": _camera, "fov": _fov, "light_position": _light_position, "light": _light, "robot": _robot},
    **{"table_texture": _table, "floor_texture": _floor, "robot_colour": _robot_colour, "distractors": _distractors},
    **{"goal_hidden": _goal_hidden, "goal_decoys": _goal_decoys, "object_colour": _object_colour},
    THINGS_EDIT: _more_things,
}


# Other commands for the same rollout, with the level that a state has under each.


def goals_asked(rollout: Rollout) -> list[Goal]:
    """Return the goal of a rollout and every other goal of its scene."""
    return list(dict.fromkeys([rollout.goal, *goals_of(rollout.scene)]))


def graded_commands(rollout: Rollout, rng: Generator, kind: str = "train") -> list[Counterfactual]:
    """Return commands that the last state does not fulfil, in random order, each with its exact level below 5."""
    goals = [goal for goal in goals_asked(rollout) if goal != rollout.goal]
    found = []
    for goal in (goals[i] for i in rng.permutation(len(goals))):
        level = level_of_progress(float(progress(rollout.scene, rollout.states, goal)[-1]))
        if level < 5:
            text = pick(texts_of(rollout.scene, goal, kind), rng)
            found.append(Counterfactual(text, level, goal.verb))
    return found


def level_of_command(text: str, rollout: Rollout, step: int = -1) -> int | None:
    """Return the level of a state under a command, read from its words alone; None where nobody can say."""
    goal = goal_of_command(text, rollout)
    if goal is None:
        return None
    return level_of_progress(float(progress(rollout.scene, rollout.states, goal)[step]))


def goal_of_command(text: str, rollout: Rollout) -> Goal | None:
    """Return the goal that a command means in a scene; None where it means none that can be asked there."""
    known, said = _commands(rollout), normal(text)
    steps = _said_steps(said, known)
    return in_steps(steps) if steps else None


def _said_steps(said: str, known: Mapping[str, Goal]) -> list[Goal]:
    """Return the goals of one step that a text names with `and` between them; none where a part names none."""
    if said in known:
        return [known[said]]
    for place in (i for i in range(len(said)) if said.startswith(" and ", i)):
        rest = _said_steps(said[place + 5 :], known) if said[:place] in known else []
        if rest:
            return [known[said[:place]], *rest]
    return []


@lru_cache(maxsize=32)
def _commands(rollout: Rollout) -> dict[str, Goal]:
    return dict(_each_command(rollout))


def _each_command(rollout: Rollout) -> Iterator[tuple[str, Goal]]:
    # Where two goals have the same words, those of the rollout come last.
    for goal in reversed(list(dict.fromkeys([*rollout.goal.steps, *goals_of(rollout.scene)]))):
        for kind in PHRASINGS:
            yield from ((normal(text), goal) for text in texts_of(rollout.scene, goal, kind))


def caption(rollout: Rollout, states: States) -> str:
    """Return what became of every thing that changed, in words."""
    said = []
    for number, thing in enumerate(rollout.scene.things):
        name = names_of(rollout.scene, number)[0]
        moved = states.place[-1, number] - states.place[0, number]
        change = float(states.value[-1, number] - states.value[0, number])
        if thing.type.joint and abs(change) > 0.1:
            verb = thing.type.joint.verbs[0 if change > 0 else 1].replace("-", " ")
            said.append(f"{name} was moved {abs(change):.0%} of its way ({verb})")
        elif float(np.linalg.norm(moved)) > 0.03:
            right = float(moved @ rollout.scene.camera.right())
            words = [
                *([f"to the {'right' if right > 0 else 'left'}"] if abs(right) > 0.03 else []),
                *([f"{'away from' if moved[0] > 0 else 'towards'} the robot"] if abs(moved[0]) > 0.03 else []),
                *(["up"] if moved[2] > 0.03 else []),
            ]
            said.append(f"{name} moved {' and '.join(words) or 'a little'}")
    return "; ".join(said) or "nothing on the table moved"


def said_there() -> Iterator[str]:
    """Yield every text that instructions of this world are made of."""
    yield from (text for lists in phrasings().values() for kind in PHRASINGS for text in lists[kind])
    yield from (name for kind in KINDS.values() for name in (*kind.names, kind.group))
    yield from (*COLOURS, *DIRECTIONS, "things")


def describe(rollout: Rollout) -> str:
    """Return the scene, what happened and how it ended, in words."""
    scene, states = rollout.scene, rollout.states
    things = ", ".join(names_of(scene, number)[-1] for number in range(len(scene.things)))
    firsts = ([texts_of(scene, step)[0] for step in goal.steps] for goal in goals_asked(rollout))
    asked = " ".join(map(joined_text, firsts))
    x, y, z = states.hand[-1]
    return (
        f"1) Scene and objects: {things}. What can be asked here: {asked}\n"
        f"2) Robot actions step by step: {caption(rollout, states)}.\n"
        f"3) Final state summary: the hand ends at ({x:.4f}, {y:.4f}, {z:.4f}) m; progress "
        f"{float(progress(scene, states, rollout.goal)[-1]):.2f} of the task."
    )
