"""Things that do not belong to the task lie on the table."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode
from rewardlab.perturb.domain.instruction_guards import colours_in, words_of
from rewardlab.perturb.domain.masks import background, grown, motion, moved, small, table_region
from rewardlab.perturb.domain.shapes import PAINTS, SHAPES, Thing, draw_things, picture

Floats = NDArray[np.float32]

_MOST = 8
_TRIES = 400  # places looked at for each object
_CLEARANCE = 0.02  # heights between an object and anything that ever moves


@on_episode("frames", Spec("domain", "objects", (1, 2, 4, 8), "COLOSSEUM distractors", "per_clip", "keeps_if"))
def distractor_objects(episode: Episode, count: int, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somebody left other things lying about, away from the robot's path and not of the kind that is asked for."""
    frames = episode.frames
    words = set(words_of(episode.instruction))
    shapes = [shape for shape, names in SHAPES.items() if not words.intersection(names)]
    paints = [paint for paint in PAINTS if paint not in colours_in(episode.instruction)]
    things = draw_things(_MOST, shapes, paints, rng)
    tries = rng.random((_MOST, _TRIES, 2))
    free = _free_places(frames)
    layer = np.zeros((*frames.shape[1:3], 4), np.float32)
    for thing, points in zip(things[:count], tries):
        _put(layer, thing, _place(free, thing.radius, points, count), frames)
    return PerturbedEpisode(with_frames(episode, _covered(frames, layer)), "same")


def _free_places(frames: Frames) -> NDArray[np.uint8]:
    """Return 1, at working size, where the table is bare and nothing ever moves."""
    tiny = small(frames)
    still = background(tiny)
    table = table_region(still).astype(np.uint8)
    bare = cv2.morphologyEx(table, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    return np.asarray(bare & (1 - grown(motion(moved(tiny, still)), _CLEARANCE)))


def _place(free: NDArray[np.uint8], radius: float, points: NDArray[np.float64], count: int) -> tuple[float, float]:
    """Return the first of the points (y, x as shares) with room around it, and mark that room as taken."""
    room = cv2.distanceTransform(cv2.copyMakeBorder(free, 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 3)[1:-1, 1:-1]
    y, x = (points * free.shape).astype(np.int64).T
    fits = np.flatnonzero(room[y, x] > radius * len(free))
    if not len(fits):
        raise NotApplicable(f"there is no free place for {count} objects away from all motion")
    first = fits[0]
    cv2.circle(free, (int(x[first]), int(y[first])), round(1.15 * radius * len(free)), 0, -1)
    return float(points[first, 0]), float(points[first, 1])


def _put(layer: Floats, thing: Thing, place: tuple[float, float], frames: Frames) -> None:
    """Draw a thing and its shadow into the layer (colour times opacity, opacity), as bright as its surroundings."""
    height, width = layer.shape[:2]
    half = max(1, round(thing.radius * height))
    y = min(max(round(place[0] * height), half), max(half, height - half))
    x = min(max(round(place[1] * width), half), max(half, width - half))
    window = (slice(y - half, y + half), slice(x - half, x + half))
    colour, opacity = picture(thing, 2 * half)
    around = frames[0][window].mean() / 160
    slid = np.array([[1, 0, half / 6], [0, 1, half / 5]], np.float32)
    shadow = 0.4 * cv2.warpAffine(cv2.GaussianBlur(opacity, (0, 0), half / 6), slid, opacity.shape)
    total = layer[window]
    part = [slice(0, n) for n in total.shape[:2]]
    colour, opacity, shadow = (a[part[0], part[1]] for a in (colour, opacity, shadow))
    total[..., 3] = np.maximum(total[..., 3], shadow)
    total *= 1 - opacity[..., None]
    total[..., :3] += opacity[..., None] * colour * np.clip(around, 0.35, 1.1)
    total[..., 3] += opacity


def _covered(frames: Frames, layer: Floats) -> Frames:
    through = 1 - layer[..., 3:]
    return np.stack([np.clip(frame * through + layer[..., :3], 0, 255).astype(np.uint8) for frame in frames])
