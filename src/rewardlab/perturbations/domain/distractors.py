"""Drawn objects on the table."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode
from rewardlab.perturbations.guards import colours_in, dilate, segment_motion, table_region, words_of

Floats = NDArray[np.float32]

_SIDE = 128  # pixels of the canvas on which a shape is drawn before it is made small
SPRITE_RGB = {"red": (200, 45, 40), "green": (60, 150, 70), "blue": (50, 80, 190)}
SPRITE_RGB |= {"yellow": (225, 190, 50), "purple": (130, 70, 160), "teal": (40, 150, 155)}
_ANY_OBJECT = {"toy", "object", "objects"}
# Each shape and the words of an instruction that could mean it.
# fmt: off
SHAPE_NAMES = {
    "ball": {"ball", "balls", "sphere", "apple", "orange", "tomato", "lemon", "peach", "egg", "onion",
             "fruit"} | _ANY_OBJECT,
    "box": {"box", "boxes", "block", "blocks", "cube", "cubes", "brick", "book", "sponge", "package"} | _ANY_OBJECT,
    "can": {"can", "cans", "cup", "cups", "mug", "bottle", "jar", "beaker", "tin", "glass",
            "cylinder", "pot"} | _ANY_OBJECT,
    "ring": {"ring", "rings", "donut", "wheel", "tape", "bracelet"},
    "cone": {"cone", "cones", "triangle", "pyramid"},
    "star": {"star", "stars"},
    "cross": {"cross", "plus"},
}
# fmt: on


# The corners of the shapes with straight sides.
_ANGLES, _RADII = np.arange(10) * np.pi / 5 - np.pi / 2, np.where(np.arange(10) % 2, 22, 54)  # of the star
_CROSS = ((50, 14), (78, 14), (78, 50), (114, 50), (114, 78), (78, 78), (78, 114), (50, 114), (50, 78))
_CORNERS = {
    "box": np.array([(20, 36), (108, 36), (108, 104), (20, 104)], np.int32),
    "cone": np.array([(64, 12), (112, 112), (16, 112)], np.int32),
    "cross": np.array([*_CROSS, (14, 78), (14, 50), (50, 50)], np.int32),
    "star": (64 + _RADII[:, None] * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)).astype(np.int32),
}


@dataclass(frozen=True)
class Distractor:
    """What a distractor looks like; `radius` is a fraction of the height of the picture, `angle` in degrees."""

    shape: str
    colour: str
    radius: float
    angle: float


def sample_distractors(count: int, shapes: list[str], colours: list[str], rng: Generator) -> list[Distractor]:
    """Return distractors of these shapes and colours; the first few do not depend on how many are asked for."""
    draws = rng.random((count, 4))
    return [
        Distractor(shapes[int(a * len(shapes))], colours[int(b * len(colours))], 0.035 + 0.02 * c, 50 * d - 25)
        for a, b, c, d in draws
    ]


def silhouette(shape: str) -> Floats:
    """Return the silhouette of a shape on a square canvas, 0 to 1."""
    canvas = np.zeros((_SIDE, _SIDE), np.uint8)
    if shape == "ball":
        cv2.circle(canvas, (64, 64), 52, 255, -1, cv2.LINE_AA)
    elif shape == "ring":
        cv2.circle(canvas, (64, 64), 42, 255, 20, cv2.LINE_AA)
    elif shape == "can":
        cv2.rectangle(canvas, (34, 24), (94, 106), 255, -1)
        cv2.ellipse(canvas, (64, 24), (30, 10), 0, 0, 360, 255, -1, cv2.LINE_AA)
        cv2.ellipse(canvas, (64, 106), (30, 10), 0, 0, 360, 255, -1, cv2.LINE_AA)
    else:
        cv2.fillPoly(canvas, [_CORNERS[shape]], 255, cv2.LINE_AA)
    return np.asarray(canvas / 255, np.float32)


def shading(shape: str) -> Floats:
    """Return how bright each pixel of the canvas is: lit from above left, and box and can have a lid."""
    y, x = np.mgrid[:_SIDE, :_SIDE].astype(np.float32) / _SIDE - 0.5
    light = 1.0 - 0.5 * x - 0.6 * y
    if shape == "ball":
        light += 0.9 * np.exp(-40 * ((x + 0.15) ** 2 + (y + 0.18) ** 2))
    if shape == "can":
        light[((x / 0.23) ** 2 + ((y + 0.31) / 0.078) ** 2) < 1] = 1.6
    if shape == "box":
        light[y < -0.22] = 1.5
    return np.asarray(light, np.float32)


def render_sprite(distractor: Distractor, side: int) -> tuple[Floats, Floats]:
    """Return the colours (S, S, 3) and the opacity (S, S) of a distractor, `side` pixels wide."""
    rotation = cv2.getRotationMatrix2D((_SIDE / 2, _SIDE / 2), distractor.angle, 1.0)
    size = (max(1, side), max(1, side))
    colour = shading(distractor.shape)[..., None] * np.array(SPRITE_RGB[distractor.colour], np.float32)
    rotated = [cv2.warpAffine(layer, rotation, (_SIDE, _SIDE)) for layer in (colour, silhouette(distractor.shape))]
    colour, opacity = (np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_AREA)) for layer in rotated)
    return np.clip(colour, 0, 255), opacity


_MAX_OBJECTS = 8
_TRIES = 400  # places looked at for each object
_CLEARANCE = 0.02  # heights between an object and anything that ever moves


@on_episode(
    "domain",
    channel="frames",
    parameter="objects",
    table=(1, 2, 4, 8),
    based_on="COLOSSEUM distractors",
    randomness="per_clip",
    label="keeps_if",
)
def distractor_objects(episode: Episode, count: int, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """Somebody left other objects lying about, away from the robot's path and not of the kind that is asked for."""
    frames = episode.frames
    words = set(words_of(episode.instruction))
    shapes = [shape for shape, names in SHAPE_NAMES.items() if not words.intersection(names)]
    colours = [colour for colour in SPRITE_RGB if colour not in colours_in(episode.instruction)]
    distractors = sample_distractors(_MAX_OBJECTS, shapes, colours, rng)
    candidates = rng.random((_MAX_OBJECTS, _TRIES, 2))
    free = _free_places(frames)
    layer = np.zeros((*frames.shape[1:3], 4), np.float32)
    for distractor, points in zip(distractors[:count], candidates[:count], strict=True):
        _paste(layer, distractor, _take_place(free, distractor.radius, points, count), frames)
    transparency = 1 - layer[..., 3:]
    blended = [np.clip(frame * transparency + layer[..., :3], 0, 255).astype(np.uint8) for frame in frames]
    return PerturbedEpisode(with_frames(episode, np.stack(blended)), "same")


def _free_places(frames: Frames) -> NDArray[np.uint8]:
    """Return 1, at working size, where the table is bare and nothing ever moves."""
    scene = segment_motion(frames)
    table = table_region(scene.background).astype(np.uint8)
    bare = cv2.morphologyEx(table, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    return np.asarray(bare & (1 - dilate(scene.moving, _CLEARANCE)))


def _take_place(free: NDArray[np.uint8], radius: float, points: NDArray[np.float64], count: int) -> tuple[float, float]:
    """Return the first of the points (y, x as fractions) with room around it, and mark that room as taken."""
    room = cv2.distanceTransform(cv2.copyMakeBorder(free, 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 3)[1:-1, 1:-1]
    y, x = (points * free.shape).astype(np.int64).T
    fits = np.flatnonzero(room[y, x] > radius * len(free))
    if not len(fits):
        raise NotApplicable(f"there is no free place for {count} objects away from all motion")
    first = fits[0]
    cv2.circle(free, (int(x[first]), int(y[first])), round(1.15 * radius * len(free)), 0, -1)
    return float(points[first, 0]), float(points[first, 1])


def _paste(layer: Floats, distractor: Distractor, place: tuple[float, float], frames: Frames) -> None:
    """Draw a distractor and its shadow into the layer (premultiplied colour, opacity), as bright as what is around."""
    height, width = layer.shape[:2]
    half = max(1, round(distractor.radius * height))
    y = min(max(round(place[0] * height), half), max(half, height - half))
    x = min(max(round(place[1] * width), half), max(half, width - half))
    window = (slice(y - half, y + half), slice(x - half, x + half))
    colour, opacity = render_sprite(distractor, 2 * half)
    brightness = frames[0][window].mean() / 160
    shift = np.array([[1, 0, half / 6], [0, 1, half / 5]], np.float32)
    shadow = 0.4 * cv2.warpAffine(cv2.GaussianBlur(opacity, (0, 0), half / 6), shift, opacity.shape)
    total = layer[window]
    part = [slice(0, n) for n in total.shape[:2]]
    colour, opacity, shadow = (a[part[0], part[1]] for a in (colour, opacity, shadow))
    total[..., 3] = np.maximum(total[..., 3], shadow)
    total *= 1 - opacity[..., None]
    total[..., :3] += opacity[..., None] * colour * np.clip(brightness, 0.35, 1.1)
    total[..., 3] += opacity
