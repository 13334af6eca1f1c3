"""Distractors: objects that do not belong to the task lie on the table."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, Spec, on_episode
from rewardlab.perturbations.domain.distractor_sprites import (
    SHAPE_NAMES,
    SPRITE_RGB,
    Distractor,
    render_sprite,
    sample_distractors,
)
from rewardlab.perturbations.instruction_guards import colours_in, words_of
from rewardlab.perturbations.scene_segmentation import dilate, segment_motion, table_region

Floats = NDArray[np.float32]

_MAX_OBJECTS = 8
_TRIES = 400  # places looked at for each object
_CLEARANCE = 0.02  # heights between an object and anything that ever moves


@on_episode("frames", Spec("domain", "objects", (1, 2, 4, 8), "COLOSSEUM distractors", "per_clip", "keeps_if"))
def distractor_objects(episode: Episode, count: int, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somebody left other objects lying about, away from the robot's path and not of the kind that is asked for."""
    frames = episode.frames
    words = set(words_of(episode.instruction))
    shapes = [shape for shape, names in SHAPE_NAMES.items() if not words.intersection(names)]
    colours = [colour for colour in SPRITE_RGB if colour not in colours_in(episode.instruction)]
    distractors = sample_distractors(_MAX_OBJECTS, shapes, colours, rng)
    candidates = rng.random((_MAX_OBJECTS, _TRIES, 2))
    free = _free_places(frames)
    layer = np.zeros((*frames.shape[1:3], 4), np.float32)
    for distractor, points in zip(distractors[:count], candidates):
        _paste(layer, distractor, _take_place(free, distractor.radius, points, count), frames)
    return PerturbedEpisode(with_frames(episode, _blend(frames, layer)), "same")


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


def _blend(frames: Frames, layer: Floats) -> Frames:
    transparency = 1 - layer[..., 3:]
    return np.stack([np.clip(frame * transparency + layer[..., :3], 0, 255).astype(np.uint8) for frame in frames])
