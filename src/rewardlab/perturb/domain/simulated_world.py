"""True domain shift: the recorded rollout is taken again in its simulator and filmed in a changed world."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.random import Generator

from rewardlab.core.episode import Episode, with_frames
from rewardlab.core.seeding import pick
from rewardlab.perturb.contract import Change, Definition, Mode, Peers, Perturbation, Table, drop, on_episode
from rewardlab.perturb.domain.instruction_guards import colours_in
from rewardlab.worlds import open_world

Amounts = tuple[float, ...]
Draw = Callable[[Any, Generator], Amounts]  # (parameter, chance) -> what the simulator is told

_PAINTS = {
    "red": (0.8, 0.08, 0.08),
    "blue": (0.1, 0.15, 0.85),
    "green": (0.1, 0.65, 0.15),
    "yellow": (0.9, 0.8, 0.1),
    "purple": (0.5, 0.1, 0.6),
    "orange": (0.95, 0.45, 0.05),
}
_ARM_PAINTS = tuple(paint for name, paint in _PAINTS.items() if name != "red")  # the arm is red
_ANOTHER_NAME = 0.6  # share of paint from which a thing goes by the colour of the paint


@dataclass(frozen=True)
class WorldChange:
    """One change of the scene: what the simulator calls it, how its amounts are drawn, and how it is described."""

    name: str
    summary: str
    change: str
    draw: Draw
    parameter: str
    table: Table
    mode: Mode = "static"


def _sign(rng: Generator) -> int:
    return 1 if rng.random() < 0.5 else -1


def _camera(pose: tuple[float, float, float], rng: Generator) -> Amounts:
    turn, lift, back = pose
    return (_sign(rng) * turn, _sign(rng) * lift, back)


def _lamp(lamp: tuple[float, float], rng: Generator) -> Amounts:
    return (_sign(rng) * lamp[0], lamp[1])


def _tint(strength: float, rng: Generator) -> Amounts:
    return tuple(float(1 + strength * (part - 1)) for part in 3 * rng.dirichlet((3.0, 3.0, 3.0)))


def _grey(factor: float, rng: Generator) -> Amounts:
    return (factor,) * 3


def _seeded(amount: float, rng: Generator) -> Amounts:
    return (amount, float(rng.integers(2**31)))


def _arm_paint(cover: float, rng: Generator) -> Amounts:
    return (*pick(_ARM_PAINTS, rng), cover)


def _plain(amount: float, rng: Generator) -> Amounts:
    return (amount,)


# fmt: off
_CHANGES = (
    WorldChange("world_camera", "The camera stands elsewhere and is aimed at the work again, for the whole clip.",
                "camera", _camera, "turn and lift in degrees, and distance factor",
                ((5, 2, 1.0), (12, 5, 1.05), (22, 9, 1.1), (35, 14, 1.2))),
    WorldChange("world_fov", "The camera has a wider lens: the work is smaller in the picture.",
                "fov", _plain, "factor of the field of view", (1.08, 1.2, 1.4, 1.7), "none"),
    WorldChange("world_light_position", "The lamps stand elsewhere and one of them does more of the lighting.",
                "light_position", _lamp, "turn in degrees and share of one lamp",
                ((30, 0.2), (60, 0.4), (110, 0.65), (160, 0.9))),
    WorldChange("world_light_colour", "The lamps shine in another colour.",
                "light", _tint, "strength of a tint", (0.15, 0.3, 0.5, 0.7)),
    WorldChange("world_light_intensity", "The lamps are dimmed.",
                "light", _grey, "factor of the light", (0.8, 0.6, 0.42, 0.28), "none"),
    WorldChange("world_table_texture", "The table has another top, under the same light.",
                "table_texture", _seeded, "opacity of another surface", (0.25, 0.5, 0.75, 1.0)),
    WorldChange("world_floor_texture", "The room has another floor.",
                "floor_texture", _seeded, "opacity of another surface", (0.25, 0.5, 0.75, 1.0)),
    WorldChange("world_robot_colour", "The arm is painted in another colour.",
                "robot_colour", _arm_paint, "cover of another paint", (0.2, 0.4, 0.65, 0.95)),
    WorldChange("world_distractors", "Things that nobody asked for lie on the table, away from the work.",
                "distractors", _seeded, "things added", (1, 2, 4, 6)),
    WorldChange("world_goal_hidden", "The marker that shows the goal fades; only for worlds that show one.",
                "goal_hidden", _plain, "opacity of the goal's marker", (0.7, 0.45, 0.2, 0.0), "none"),
    WorldChange("world_goal_decoys", "Markers that look like the goal's float where the goal is not.",
                "goal_decoys", _seeded, "markers added", (1, 2, 3, 4)),
)
# fmt: on
WORLD_CHANGES = {entry.name: entry for entry in _CHANGES}


def _perturbation(entry: WorldChange) -> Perturbation:
    def apply(episode: Episode, parameter: Any, rng: Generator, peers: Peers) -> Change:
        return Change(_filmed(episode, entry.change, entry.draw(parameter, rng)), "same")

    apply.__name__, apply.__doc__ = entry.name, entry.summary
    facts = Definition("domain", entry.parameter, entry.table, "COLOSSEUM, in the simulator", mode=entry.mode)
    return on_episode("frames", facts)(apply)


def _filmed(episode: Episode, change: str, amounts: Amounts) -> Episode:
    """Return the episode as it looks in the changed world; only the shown frames are rendered."""
    record = episode.world
    if record is None:
        raise drop("the episode was not recorded in a simulator, so its world cannot be changed")
    if record.get("video") != episode.clip.source.digest:
        raise drop("the pixels are no longer those that the simulator rendered; change the world first")
    return with_frames(episode, open_world(record).render(episode.clip.order, change, amounts))


@on_episode(
    "frames+instruction",
    Definition(
        "domain",
        "cover of another paint",
        (0.2, 0.4, 0.7, 1.0),
        "COLOSSEUM, in the simulator",
        label="P*",
        mode="static",
    ),
)
def world_object_colour(episode: Episode, cover: float, rng: Generator, peers: Peers) -> Change:
    """What the task moves is painted in another colour; an instruction that names its colour names the new one."""
    named = colours_in(episode.instruction)
    mine = [word for word in named if word in _own_colours(episode)]
    if len(set(mine)) > 1:
        raise drop(f"the instruction names several colours of what moves ({', '.join(mine)}); one paint cannot be both")
    if mine and cover < _ANOTHER_NAME:
        raise drop(f"the instruction says {mine[0]!r}, and under so little paint nobody could name the colour")
    names = [name for name in _PAINTS if name not in named]
    paint = pick(names, rng)
    seen = _filmed(episode, "object_colour", (*_PAINTS[paint], cover))
    text = re.sub(rf"\b{mine[0]}\b", paint, seen.instruction, flags=re.IGNORECASE) if mine else seen.instruction
    return Change(replace(seen, instruction=text), "same")


def _own_colours(episode: Episode) -> list[str]:
    """Return the colour words that mean what the task moves, as the record lists them."""
    listed = (episode.world or {}).get("colours", ())
    return [str(word) for word in listed] if isinstance(listed, list | tuple) else []


WORLD = (*map(_perturbation, _CHANGES), world_object_colour)
