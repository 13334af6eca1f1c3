"""A scene: things on a table, a room, lamps, a camera and an arm, drawn from one generator.

The table's top is z = 0 and its middle the origin. The robot stands on the side of negative x.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import pick
from rewardlab.worlds.offscreen import seen_at
from rewardlab.worlds.tabletop.catalog import COLOURS, EVERYTHING, KINDS, Kind, Role, Triple, Vocabulary

Floats = NDArray[np.float64]

FLOOR = -0.75  # metres: the height of the floor below the table's top
THING_TEXTURES = 3  # in a scene
ARMS = {"panda": 0.35, "sawyer": 0.2, "made": 0.45}  # shares; `made` is an arm of primitives with lengths of its own
_WORK = ((-0.2, 0.24), (-0.27, 0.27))  # metres: where things stand, in x and y
_GAP = 0.025  # metres between two things
_TRIES = 60
_ABOVE_ARM = 1.25  # metres: how far a camera is that looks down
_FOOT = 0.22  # metres beside the foot of an arm at which one sees past it
_DOMES = 0.5  # share of lamps that shine from above


@dataclass(frozen=True)
class Thing:
    """One thing of a kind: its colours, size, place and turn, its joint or how full it is, and what it lies on."""

    kind: str
    colour: str
    rgb: Triple
    second: Triple
    size: float
    place: tuple[float, float]
    yaw: float
    value: float = 0.0
    on: int = -1  # the number of the thing it lies in or on; -1 for the table
    texture: int = -1  # which texture of the scene it has; -1 for none

    @property
    def type(self) -> Kind:
        """Return its kind."""
        return KINDS[self.kind]

    @property
    def radius(self) -> float:
        """Return the radius of the circle around its base."""
        return self.size * self.type.radius

    @property
    def inner(self) -> float:
        """Return the radius in which something lies in it or on it."""
        return self.size * self.type.inner

    @property
    def floor(self) -> float:
        """Return the height at which something lies in it or on it."""
        return self.size * self.type.floor


@dataclass(frozen=True)
class Camera:
    """Where the camera looks from, in degrees around and above its target, its distance, and its field of view."""

    azimuth: float
    elevation: float
    distance: float
    fov: float
    target: Triple

    def right(self) -> Floats:
        """Return the direction on the table that is to the right in the picture."""
        angle = np.radians(self.azimuth)
        return np.array([np.sin(angle), -np.cos(angle), 0.0])

    def seen_at(self, points: Floats) -> Floats:
        """Return where points (..., 3) are in the picture (..., 2): from -1 to 1, to the right and downwards."""
        return seen_at(points, self.target, (self.azimuth, self.elevation, self.distance), self.fov)


@dataclass(frozen=True)
class Lamp:
    """A lamp: where it stands, and its light."""

    place: Triple
    light: Triple
    shadow: bool = False


@dataclass(frozen=True)
class Surface:
    """The paint of a table, floor or wall, and the seed of its texture; `cover` blends in a second seed."""

    rgb: Triple
    seed: int
    repeat: float
    other: int = 0
    cover: float = 0.0


@dataclass(frozen=True)
class Room:
    """The table with its half sizes and edge, the floor, and the walls that stand around: their angles in degrees."""

    half: tuple[float, float]
    round: bool
    table: Surface
    floor: Surface
    wall: Surface
    walls: tuple[float, ...]
    furniture: tuple[tuple[Triple, Triple, Triple], ...]  # boxes in the background: middle, half sizes and paint
    ambient: float


@dataclass(frozen=True)
class Arm:
    """An arm: its make, where its base stands, its paint, the thickness of its links, and the seed of a made one."""

    make: str
    base: Triple
    yaw: float
    paint: tuple[float, float, float, float]  # red, green, blue, and how much it covers
    thickness: float
    seed: int


@dataclass(frozen=True)
class Scene:
    """Everything that is there before the robot moves; `clutter` is what no instruction names."""

    things: tuple[Thing, ...]
    clutter: tuple[Thing, ...]
    room: Room
    lamps: tuple[Lamp, ...]
    camera: Camera
    arm: Arm
    textures: tuple[int, ...]  # seeds of the textures that things have
    markers: tuple[Triple, ...] = ()  # red balls that float somewhere


# What a verb needs in the scene: the kinds that can do, one list for each thing, in order.
Needs = tuple[Callable[[Kind], bool], ...]


def _role(role: Role) -> Callable[[Kind], bool]:
    return lambda kind: kind.role == role


def _joint_verb(verb: str, place: int) -> Callable[[Kind], bool]:
    return lambda kind: kind.joint is not None and kind.joint.verbs[place] == verb


def _vessel(kind: Kind) -> bool:
    return kind.fill is not None and kind.role == "movable"


_MOVABLE = _role("movable")
NEEDS: dict[str, Needs] = {
    "lift": (_MOVABLE,),
    "put-in": (_MOVABLE, lambda kind: kind.role == "receptacle" and kind.relation == "in"),
    "put-on": (_MOVABLE, lambda kind: kind.role == "receptacle" and kind.relation == "on"),
    "put-next-to": (_MOVABLE, _MOVABLE),
    "take-out": (_MOVABLE, _role("receptacle")),
    "push": (_MOVABLE,),
    "stack": (_MOVABLE, lambda kind: kind.role == "movable" and kind.inner > 0),
    "pour": (_vessel, lambda kind: kind.fill is not None),
    "sort": (lambda kind: kind.group != "", lambda kind: kind.group != "", _role("receptacle")),
}
_ENDS = {
    "close": 1.0,
    "turn-back": 1.0,
    "flip-back": 1.0,
    "slide-back": 1.0,
    "push-back": 1.0,
}  # where such a joint begins


def needs_of(verb: str) -> Needs:
    """Return what a verb needs in the scene."""
    return NEEDS.get(verb) or (_joint_verb(verb, 1 if verb in _ENDS else 0),)


def usable_verbs(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the verbs of a vocabulary that its kinds suffice for, in a fixed order."""
    kinds = [KINDS[name] for name in sorted(vocabulary.kinds)]
    return tuple(
        verb for verb in sorted(vocabulary.verbs) if all(any(need(kind) for kind in kinds) for need in needs_of(verb))
    )


def draw_scene(rng: Generator, verb: str, vocabulary: Vocabulary = EVERYTHING, *, camera: str = "any") -> Scene:
    """Return a scene of 2 to 7 things in which this verb can be asked of the first of them."""
    if verb not in usable_verbs(vocabulary):
        raise PlanError(f"no kinds for the verb {verb!r}; one of {', '.join(usable_verbs(vocabulary))} is possible")
    arm = _draw_arm(rng)
    for _ in range(_TRIES):
        things = _draw_things(rng, verb, vocabulary)
        if things:
            break
    else:
        raise PlanError(f"no room on the table for {verb!r}; draw another seed")
    used = {thing.kind for thing in things}
    free = sorted(name for name in vocabulary.kinds - used if KINDS[name].role != "articulated")
    clutter = draw_clutter(rng, int(rng.integers(0, 5)), things, free, margin=0.06) if rng.random() < 0.6 else ()
    for _ in range(_TRIES):
        shot = draw_camera(rng, camera, [thing.place for thing in things])
        if camera != "any" or _shows(shot, things[0], arm):
            break
    room, lamps = _draw_room(rng, shot)
    textures = tuple(int(seed) for seed in rng.integers(2**31, size=THING_TEXTURES))
    return Scene(things, clutter, room, lamps, shot, arm, textures)


def _draw_things(rng: Generator, verb: str, vocabulary: Vocabulary) -> tuple[Thing, ...]:
    """Return things in their places, those that the verb needs first; none where they find no room."""
    kinds = sorted(vocabulary.kinds)
    wanted: list[str] = []
    for need in needs_of(verb):
        fits = [name for name in kinds if need(KINDS[name])]
        if verb == "sort" and wanted and KINDS[wanted[0]].group and need(KINDS[wanted[0]]):
            fits = [name for name in fits if KINDS[name].group == KINDS[wanted[0]].group and name not in wanted] or fits
        if verb in ("put-next-to", "stack") and wanted and len(fits) > 1:
            fits = [name for name in fits if name not in wanted]
        wanted.append(pick(fits, rng))
    needed, total = (
        len(wanted),
        max(len(wanted), int(rng.choice([2, 3, 4, 5, 6, 7], p=[0.15, 0.25, 0.25, 0.2, 0.1, 0.05]))),
    )
    while len(wanted) < total:
        role = str(rng.choice(["movable", "receptacle", "articulated"], p=[0.62, 0.22, 0.16]))
        fits = [name for name in kinds if KINDS[name].role == role]
        if fits and sum(KINDS[name].role == "articulated" for name in wanted) < 2:
            wanted.append(pick(fits, rng))
        else:
            total -= 1
    things: list[Thing] = []
    for number, name in enumerate(wanted):
        drawn = _draw_thing(rng, name, things)
        if drawn is None:
            if number < needed:
                return ()
            continue
        if drawn.type.joint and drawn.type.joint.verbs[1]:
            drawn = replace(drawn, value=float(verb in _ENDS) if number == 0 else float(rng.random() < 0.4))
        elif drawn.type.fill:
            full = number == 0 and verb == "pour"
            drawn = replace(drawn, value=float(rng.uniform(0.75, 1.0)) if full else 0.0)
        things.append(drawn)
    if verb == "take-out" or (rng.random() < 0.15 and verb != "pour"):
        things = _laid_in(rng, things)
    return tuple(things)


def _laid_in(rng: Generator, things: list[Thing]) -> list[Thing]:
    """Put the first movable thing into or onto the first receptacle that has room for it."""
    movable = next((i for i, thing in enumerate(things) if thing.type.role == "movable"), None)
    place = next((j for j, thing in enumerate(things) if thing.type.role == "receptacle"), None)
    if movable is None or place is None:
        return things
    offset = rng.uniform(-0.25, 0.25, 2) * things[place].inner
    x, y = np.add(things[place].place, offset)
    things[movable] = replace(things[movable], place=(float(x), float(y)), on=place)
    return things


def _draw_thing(rng: Generator, name: str, others: Sequence[Thing]) -> Thing | None:
    """Return a thing where there is room for it, told from the others by kind or colour; None where there is none."""
    kind = KINDS[name]
    taken = {thing.colour for thing in others if thing.kind == name}
    free = [colour for colour in (kind.colours or COLOURS) if colour not in taken]
    if not free:
        return None
    colour, second = pick(free, rng), pick([*COLOURS], rng)
    size = float(rng.uniform(0.88, 1.25)) if kind.role == "movable" else float(rng.uniform(0.9, 1.2))
    if kind.grip[1] * size > 0.078:  # wider than a hand opens
        size = 0.078 / kind.grip[1]
    size = 1.0 if kind.joint else size
    place = _free_place(rng, kind.radius * size + (0.05 if kind.joint else 0.0), others, bool(kind.joint))
    if place is None:
        return None
    yaw = np.pi + rng.uniform(-0.7, 0.7) if kind.joint else rng.uniform(-np.pi, np.pi)
    texture = int(rng.integers(THING_TEXTURES)) if rng.random() < 0.2 else -1
    return Thing(name, colour, shade(rng, colour), shade(rng, second), size, place, float(yaw), texture=texture)


def shade(rng: Generator, colour: str) -> Triple:
    """Return a colour a little lighter, darker or off."""
    r, g, b = np.clip(np.array(COLOURS[colour]) * rng.uniform(0.8, 1.15) + rng.normal(0, 0.025, 3), 0.02, 1)
    return float(r), float(g), float(b)


def _free_place(rng: Generator, radius: float, others: Sequence[Thing], behind: bool) -> tuple[float, float] | None:
    (left, right), (near, far) = _WORK
    for _ in range(_TRIES):
        x, y = float(rng.uniform(0.08 if behind else left, right)), float(rng.uniform(near, far))
        if all(
            np.hypot(x - other.place[0], y - other.place[1])
            > radius + other.radius + _GAP + (0.05 if other.type.joint else 0.0)
            for other in others
        ):
            return x, y
    return None


def draw_clutter(
    rng: Generator, count: int, things: Sequence[Thing], kinds: Sequence[str], *, margin: float
) -> tuple[Thing, ...]:
    """Return up to so many things that nobody asks for, of these kinds, on the table but away from the others."""
    found: list[Thing] = []
    for name in [kinds[i] for i in rng.permutation(len(kinds))[:count]]:
        kind = KINDS[name]
        for _ in range(_TRIES):
            x, y = float(rng.uniform(-0.3, 0.45)), float(rng.uniform(-0.5, 0.5))
            if all(
                np.hypot(x - other.place[0], y - other.place[1]) > kind.radius + other.radius + margin
                for other in (*things, *found)
            ):
                colour = pick([*(kind.colours or COLOURS)], rng)
                paints = shade(rng, colour), shade(rng, pick([*COLOURS], rng))
                found.append(Thing(name, colour, *paints, 1.0, (x, y), float(rng.uniform(-np.pi, np.pi))))
                break
    return tuple(found)


# Cameras by name, in degrees around the table: 180 faces the robot. `any` is drawn anew for every scene.
CAMERAS = {
    "front": (180.0, -35.0),
    "right": (110.0, -32.0),
    "left": (250.0, -32.0),
    "top": (180.0, -85.0),
    "back": (0.0, -40.0),
}
_SIDES = {"front": 0.4, "right": 0.2, "left": 0.2, "back": 0.1, "top": 0.1}


def draw_camera(rng: Generator, name: str, places: Sequence[tuple[float, float]]) -> Camera:
    """Return a camera that sees these places, near one of the named views; `any` draws the view too."""
    spots = np.array(places)
    middle = (spots.min(axis=0) + spots.max(axis=0)) / 2 * 0.6
    spread = float(np.linalg.norm(spots - middle, axis=1).max()) + 0.15
    side = str(rng.choice(list(_SIDES), p=list(_SIDES.values()))) if name == "any" else name
    azimuth, elevation = CAMERAS[side]
    wide = 45.0 if name == "any" else 6.0
    azimuth += float(rng.uniform(-wide, wide)) * (4 if side == "top" and name == "any" else 1)
    elevation = float(np.clip(elevation + rng.uniform(-1, 1) * wide * 0.45, -88, -12))
    fov = float(rng.uniform(35, 60))
    distance = max(0.55, spread / np.tan(np.radians(fov / 2)) * float(rng.uniform(0.9, 1.3)))
    if elevation < -60 and distance < _ABOVE_ARM:  # above the elbow of the arm, with a longer lens
        fov = float(np.degrees(2 * np.arctan(np.tan(np.radians(fov / 2)) * distance / _ABOVE_ARM)))
        distance = _ABOVE_ARM
    x, y = middle + (rng.normal(0, 0.03, 2) if name == "any" else 0.0)
    return Camera(float(azimuth), elevation, float(distance), fov, (float(x), float(y), float(rng.uniform(0.0, 0.1))))


def _shows(camera: Camera, thing: Thing, arm: Arm) -> bool:
    """Tell whether a camera sees a thing, and of one with a joint its front: past the foot of the arm."""
    if camera.elevation < -65:
        return True
    angle = np.radians(camera.azimuth)
    ahead = np.array([np.cos(angle), np.sin(angle)])
    eye = np.array(camera.target[:2]) - ahead * camera.distance * np.cos(np.radians(camera.elevation))
    way, foot = np.array(thing.place) - eye, np.array(arm.base[:2]) - eye
    far = float(np.linalg.norm(way))
    along = float(foot @ way) / far
    beside = abs(float(foot[0] * way[1] - foot[1] * way[0])) / far
    hidden = 0 < along < far and beside < _FOOT
    return not hidden and (thing.type.joint is None or bool(np.cos(angle - thing.yaw) < 0.25))


def _draw_arm(rng: Generator) -> Arm:
    make = str(rng.choice(list(ARMS), p=list(ARMS.values())))
    reach = {"panda": (-0.56, -0.47), "sawyer": (-0.68, -0.55), "made": (-0.65, -0.45)}[make]
    y = float(rng.uniform(-0.12, 0.12)) if make != "made" else float(rng.uniform(-0.35, 0.35))
    z = {"panda": float(rng.uniform(-0.05, 0.05)), "sawyer": float(rng.uniform(-0.05, 0.05))}.get(make, 0.0)
    base = (float(rng.uniform(*reach)), y, z)
    covered = float(rng.choice([0.0, 0.5, 0.9], p=[0.55, 0.2, 0.25])) if make != "made" else 1.0
    colour = pick([*COLOURS], rng)
    return Arm(make, base, float(-0.4 * y), (*shade(rng, colour), covered), 1.0, int(rng.integers(2**31)))


def _draw_room(rng: Generator, camera: Camera) -> tuple[Room, tuple[Lamp, ...]]:
    def surface(light: float) -> Surface:
        grey = rng.uniform(light, 1.0)
        r, g, b = np.clip(grey + rng.normal(0, 0.08, 3), 0.05, 1)
        return Surface((float(r), float(g), float(b)), int(rng.integers(2**31)), float(rng.uniform(1, 5)))

    half = (float(rng.uniform(0.5, 0.75)), float(rng.uniform(0.55, 0.9)))
    walls = tuple(float(a) for a in rng.choice([0.0, 90.0, 180.0, 270.0], size=int(rng.integers(2, 5)), replace=False))
    ambient = float(rng.uniform(0.25, 0.5))  # share of the light that comes from everywhere
    furniture = []
    for _ in range(int(rng.integers(0, 7))):  # never between the camera and the table
        angle = np.radians(camera.azimuth) + rng.uniform(-1.4, 1.4)
        middle = rng.uniform(1.15, 1.9) * np.array([np.cos(angle), np.sin(angle)])
        sizes, top = rng.uniform(0.08, 0.4, 2), rng.uniform(-0.4, 0.7)
        box = (float(middle[0]), float(middle[1]), float((top + FLOOR) / 2))
        dull = 0.5 * np.array(shade(rng, pick([*COLOURS], rng))) + 0.5 * rng.uniform(0.1, 0.8)
        sides = (float(sizes[0]), float(sizes[1]), float((top - FLOOR) / 2))
        furniture.append((box, sides, (float(dull[0]), float(dull[1]), float(dull[2]))))
    surfaces = surface(0.25), surface(0.2), surface(0.4)
    room = Room(half, bool(rng.random() < 0.15), *surfaces, walls, tuple(furniture), ambient)
    shares = rng.dirichlet(np.full(int(rng.integers(1, 4)), 2.0)) * rng.uniform(0.6, 1.05)  # of the light
    lamps = []
    for number, share in enumerate(np.sort(shares)[::-1]):
        angle, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.1, 0.6 if rng.random() < _DOMES else 2.0)
        r, g, b = np.clip(share * (1 + rng.normal(0, 0.06, 3)), 0, 1)
        place = (float(reach * np.cos(angle)), float(reach * np.sin(angle)), float(rng.uniform(1.2, 2.5)))
        lamps.append(Lamp(place, (float(r), float(g), float(b)), bool(number == 0 and rng.random() < 0.75)))
    return room, tuple(lamps)
