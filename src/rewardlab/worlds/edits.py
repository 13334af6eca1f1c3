"""The named changes of a scene with their severity tables, for perturbations and for collecting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

from rewardlab.core.seeding import pick
from rewardlab.core.trial import Category, Randomness, SeverityTable

EditAmounts = tuple[float, ...]  # what the simulator is given beside the name of the edit
SampleAmounts = Callable[[Any, Generator], EditAmounts]  # (parameter at this severity, rng) -> amounts

COLOSSEUM = "COLOSSEUM, in the simulator"
_CROSS_PAINTING = "cross-painting of Mirage, in the simulator"
PAINT_RGB = {"red": (0.8, 0.08, 0.08), "blue": (0.1, 0.15, 0.85), "green": (0.1, 0.65, 0.15)}
PAINT_RGB |= {"yellow": (0.9, 0.8, 0.1), "purple": (0.5, 0.1, 0.6), "orange": (0.95, 0.45, 0.05)}
_ARM_RGB = tuple(rgb for name, rgb in PAINT_RGB.items() if name != "red")  # the arm is red


@dataclass(frozen=True)
class WorldEdit:
    """One edit of the scene: the simulator's name for it, how its amounts are sampled, and its description."""

    category: Category
    name: str
    summary: str
    edit: str
    sample: SampleAmounts
    parameter: str
    table: SeverityTable
    randomness: Randomness = "per_clip"
    based_on: str = COLOSSEUM
    version: int = 1  # raised when the same amounts give another picture


def _sign(rng: Generator) -> int:
    return 1 if rng.random() < 0.5 else -1


def _tint(strength: float, rng: Generator) -> EditAmounts:
    return tuple(float(1 + strength * (part - 1)) for part in 3 * rng.dirichlet((3.0, 3.0, 3.0)))


def _seeded(amount: float, rng: Generator) -> EditAmounts:
    return (amount, float(rng.integers(2**31)))


def _arm_paint(opacity: float, rng: Generator) -> EditAmounts:
    return (*pick(_ARM_RGB, rng), opacity)


def _embodiment(change: tuple[int, float, float], rng: Generator) -> EditAmounts:
    arm, thickness, opacity = change
    return (arm, thickness ** _sign(rng), *_arm_paint(opacity, rng))


# fmt: off
EDITS = (
    WorldEdit("visual", "world_camera",
              "The camera stands elsewhere and is aimed at the work again, for the whole clip.", "camera",
              lambda pose, rng: (_sign(rng) * pose[0], _sign(rng) * pose[1], pose[2]),
              "azimuth and elevation in degrees, and distance factor",
              ((5, 2, 1.0), (12, 5, 1.05), (22, 9, 1.1), (35, 14, 1.2))),
    WorldEdit("visual", "world_fov", "The camera has a wider lens: the work is smaller in the picture.",
              "fov", lambda factor, _rng: (factor,), "factor of the field of view", (1.08, 1.2, 1.4, 1.7), "none"),
    WorldEdit("visual", "world_light_position", "The lamps stand elsewhere and one of them does more of the lighting.",
              "light_position", lambda lamp, rng: (_sign(rng) * lamp[0], lamp[1]),
              "azimuth in degrees and fraction of light from one lamp",
              ((30, 0.2), (60, 0.4), (110, 0.65), (160, 0.9))),
    WorldEdit("visual", "world_light_colour", "The lamps shine in another colour.",
              "light", _tint, "strength of a tint", (0.15, 0.3, 0.5, 0.7)),
    WorldEdit("visual", "world_light_intensity", "The lamps are dimmed.",
              "light", lambda factor, _rng: (factor,) * 3, "factor of the light", (0.8, 0.6, 0.42, 0.28), "none"),
    WorldEdit("domain", "world_table_texture", "The table has another top, under the same light.",
              "table_texture", _seeded, "opacity of another texture", (0.25, 0.5, 0.75, 1.0)),
    WorldEdit("domain", "world_floor_texture", "The room has another floor.",
              "floor_texture", _seeded, "opacity of another texture", (0.25, 0.5, 0.75, 1.0)),
    WorldEdit("domain", "world_robot_colour", "The arm is painted in another colour.", "robot_colour", _arm_paint,
              "opacity of another paint", (0.2, 0.4, 0.65, 0.95)),
    WorldEdit("domain", "world_robot",
              "The same motion rendered with another embodiment: paint, other links, then a Franka Panda.",
              "robot", _embodiment, "other arm (1) or not (0), factor of link thickness, opacity of another paint",
              ((0, 1.0, 0.7), (0, 1.4, 0.95), (1, 1.0, 0.0), (1, 1.3, 0.95)), based_on=_CROSS_PAINTING),
    WorldEdit("domain", "world_distractors", "Objects that nobody asked for lie on the table, away from the work.",
              "distractors", _seeded, "objects added", (1, 2, 4, 6)),
    WorldEdit("domain", "world_goal_hidden", "The marker that shows the goal fades; only for worlds that show one.",
              "goal_hidden", lambda alpha, _rng: (alpha,), "opacity of the goal marker", (0.7, 0.45, 0.2, 0.0), "none"),
    WorldEdit("domain", "world_goal_decoys", "Markers that look like the goal's float where the goal is not.",
              "goal_decoys", _seeded, "markers added", (1, 2, 3, 4)),
)
# fmt: on
WORLD_EDITS = {entry.name: entry for entry in EDITS}
