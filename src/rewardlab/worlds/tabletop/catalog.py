"""The kinds of things on the table: their parts, where a hand takes them, what moves on a joint, and their names."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.tasks import FOLDS

Triple = tuple[float, float, float]
Role = Literal["movable", "receptacle", "articulated"]

COLOURS: dict[str, Triple] = {
    **{"red": (0.78, 0.1, 0.1), "green": (0.12, 0.55, 0.2), "blue": (0.12, 0.25, 0.75), "yellow": (0.93, 0.8, 0.12)},
    **{"orange": (0.93, 0.47, 0.08), "purple": (0.45, 0.17, 0.58), "pink": (0.93, 0.55, 0.68)},
    **{"white": (0.92, 0.92, 0.9), "black": (0.09, 0.09, 0.1), "grey": (0.5, 0.51, 0.52)},
    **{"brown": (0.42, 0.26, 0.14), "turquoise": (0.12, 0.62, 0.62)},
}
# Paints of parts that do not follow the colour of their thing.
PAINTS: dict[str, Triple] = {
    **{"steel": (0.66, 0.68, 0.7), "wood": (0.6, 0.43, 0.26), "leaf": (0.2, 0.45, 0.14), "ink": (0.08, 0.08, 0.09)},
    **{"paper": (0.92, 0.9, 0.85), "crust": (0.7, 0.45, 0.2), "bark": (0.3, 0.2, 0.12), "amber": (0.9, 0.6, 0.15)},
}


@dataclass(frozen=True)
class Part:
    """A primitive with half sizes or a mesh with factors, where it sits in its thing, and its paint.

    Paints: `main` and `second` are the thing's own, `dark` and `light` shades of main, `inside` a hollow, `lamp` lights
    up when the joint is at its end, `contents` is what a vessel holds; others are in PAINTS.
    """

    shape: str
    size: Triple
    at: Triple = (0.0, 0.0, 0.0)
    turn: Triple = (0.0, 0.0, 0.0)  # degrees about x, then y, then z
    paint: str = "main"
    moving: bool = False  # with the joint of its thing


@dataclass(frozen=True)
class Joint:
    """How the moving part of a thing moves: a slide, or a hinge about a pivot, and the verbs for both ends."""

    axis: Triple
    travel: float  # metres, or radians
    handle: Triple  # where the hand takes it at rest
    verbs: tuple[str, str]  # for bringing it to its end, and back; empty where nobody asks for it
    pivot: Triple | None = None
    lean: float = 0.0  # radians that the hand leans outwards


@dataclass(frozen=True)
class Kind:
    """A kind of thing; lengths are metres at its usual size, from the middle of its base."""

    role: Role
    parts: tuple[Part, ...]
    radius: float  # of the circle around its base
    height: float
    names: tuple[str, ...]  # the first is its own
    grip: tuple[float, float] = (0.0, 0.02)  # height of the fingertips and width between them
    colours: tuple[str, ...] = ()  # those it has in nature; any where there are none
    group: str = ""  # what people call several of its sort
    floor: float = 0.0  # height at which something lies in it or on it
    inner: float = 0.0  # radius in which something lies in it or on it; 0 where nothing does
    relation: Literal["in", "on"] = "on"
    fill: tuple[float, float, float] | None = None  # of a vessel: radius of its contents, lowest and highest level
    joint: Joint | None = None
    round: bool = False  # looks alike from all sides, so that a hand may come from any


def _kinds() -> dict[str, Kind]:
    with Path(__file__).with_name("things.toml").open("rb") as handle:
        rows: dict[str, dict[str, Any]] = tomllib.load(handle)
    return {name: _kind(row) for name, row in rows.items()}


def _kind(row: dict[str, Any]) -> Kind:
    values: dict[str, Any] = _with_tuples(row)
    values["parts"] = tuple(_part(text) for text in row["parts"])
    if "joint" in row:
        values["joint"] = Joint(**_with_tuples(row["joint"]))
    return Kind(**values)


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _part(text: str) -> Part:
    """Read a part such as `cylinder 0.03 0.01 at 0 0 0.04 turn 0 90 0 paint steel moves`."""
    words: dict[str, list[str]] = {"size": []}
    shape, *rest = text.split()
    key = "size"
    for word in rest:
        if word in ("at", "turn", "paint", "moves"):
            key = word
            words[key] = []
        else:
            words[key].append(word)
    sizes = [float(word) for word in words["size"]]
    sizes += [sizes[-1]] * (3 - len(sizes))
    at, turn = ([float(word) for word in words.get(name, ["0", "0", "0"])] for name in ("at", "turn"))
    paint = words.get("paint", ["main"])[0]
    return Part(
        shape,
        (sizes[0], sizes[1], sizes[2]),
        (at[0], at[1], at[2]),
        (turn[0], turn[1], turn[2]),
        paint,
        "moves" in words,
    )


KINDS = _kinds()


def thing_kinds(role: Role) -> tuple[str, ...]:
    """Return the kinds of a role."""
    return tuple(name for name, kind in KINDS.items() if kind.role == role)


# What a training of a fold may see: kinds and verbs, a fifth of each held out, the same in every collection.

# fmt: off
VERBS = ("lift", "put-in", "put-on", "put-next-to", "take-out", "push", "stack", "pour", "sort",
         "open", "close", "press", "turn", "turn-back", "flip", "flip-back", "slide", "slide-back", "pull", "push-back")
# fmt: on
_TOGETHER = {"turn-back": "turn", "flip-back": "flip", "slide-back": "slide", "push-back": "pull"}  # held out as one


@dataclass(frozen=True)
class Vocabulary:
    """The kinds that scenes are made of and the verbs that instructions have."""

    kinds: frozenset[str] = frozenset(KINDS)
    verbs: frozenset[str] = frozenset(VERBS)


EVERYTHING = Vocabulary()


def unseen_vocabulary(fold: int) -> Vocabulary:
    """Return the kinds of every role and the verbs, a fifth of each, that a training of this fold never sees."""
    roles = [thing_kinds(role) for role in ("movable", "receptacle", "articulated")]
    kinds = frozenset(name for names in roles for name in _dealt(names, "kind", fold))
    first = _dealt(tuple(verb for verb in VERBS if verb not in _TOGETHER), "verb", fold)
    return Vocabulary(kinds, frozenset(verb for verb in VERBS if _TOGETHER.get(verb, verb) in first))


def seen_vocabulary(fold: int) -> Vocabulary:
    """Return the kinds and verbs that a training of this fold may see: all that are not held out."""
    unseen = unseen_vocabulary(fold)
    return Vocabulary(frozenset(KINDS) - unseen.kinds, frozenset(VERBS) - unseen.verbs)


def _dealt(names: tuple[str, ...], what: str, fold: int) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: float(rng_for(0, what, name).random()))[fold % FOLDS :: FOLDS])
