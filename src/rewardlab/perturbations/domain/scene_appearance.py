"""Another background, table or arm colour, from procedural textures."""

from functools import partial

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode, on_frames
from rewardlab.perturbations.guards import (
    Mask,
    MotionSegmentation,
    colour_distance,
    convex_hull,
    dilate,
    require_no_colour,
    resize_mask,
    segment_motion,
    table_region,
)

Floats = NDArray[np.float32]


def procedural_texture(size: tuple[int, ...], rng: Generator) -> Frames:
    """Return a picture (H, W, 3) of clouds, stripes, checks or grain in two colours."""
    height, width = size
    colours = rng.uniform(30, 225, (2, 3))
    noise = _fractal_noise(height, width, rng)
    y, x = np.mgrid[:height, :width] / height
    angle, waves = rng.uniform(0, np.pi), rng.uniform(4, 10)
    along = x * np.cos(angle) + y * np.sin(angle)
    across = y * np.cos(angle) - x * np.sin(angle)
    patterns = (
        noise,
        0.5 + 0.5 * np.sin(2 * np.pi * waves * along),
        (np.floor(waves * along) + np.floor(waves * across)) % 2,
        0.5 + 0.5 * np.sin(2 * np.pi * (waves * along / 2 + 2 * noise)),
    )
    blend = 0.85 * pick(patterns, rng) + 0.15 * noise
    return np.asarray(colours[0] + (colours[1] - colours[0]) * blend[..., None], np.uint8)


def _fractal_noise(height: int, width: int, rng: Generator) -> Floats:
    """Return smooth noise in [0, 1] with details at five sizes."""
    total = np.zeros((height, width), np.float32)
    for octave in range(5):
        cells = rng.random((3 * 2**octave, 4 * 2**octave), dtype=np.float32)
        total += np.asarray(cv2.resize(cells, (width, height), interpolation=cv2.INTER_CUBIC)) / 2**octave
    return np.asarray((total - total.min()) / max(float(np.ptp(total)), 1e-6))


_HALO = 0.12  # heights around all motion that stay as they are: what the robot works with lies there
_OBJECT_HEIGHT = 0.12  # heights that objects on the table may stand out above its far edge
_MIN_TABLE = 0.15  # fraction of the picture
_MIN_AREA = 0.05  # fraction of the picture
_MIN_ARM = 0.005  # fraction of the picture
_ARM_TINT = 18.0  # distance in Lab a and b from the arm's usual tint
_SAME_COLOUR = 10.0  # Lab distance within which two pixels show the same surface

_surface = partial(
    on_frames, "domain", parameter="opacity", table=(0.25, 0.5, 0.75, 1.0), randomness="per_clip", label="keeps_if"
)


@_surface(based_on="COLOSSEUM background")
def background_replace(frames: Frames, opacity: float, rng: Generator) -> Frames:
    """The robot works in another room: all that is off the table and well away from its motion is replaced."""
    scene = segment_motion(frames)
    table = convex_hull(table_region(scene.background))
    if table.mean() < _MIN_TABLE:
        raise NotApplicable("no table is found, so the background cannot be told from what the robot works on")
    # With room for what stands on the table: more upwards than to the sides.
    up, side = max(1, round(_OBJECT_HEIGHT * len(table))), max(1, round(0.03 * len(table)))
    used = np.asarray(cv2.dilate(table, np.ones((side + 1 + up, 2 * side + 1), np.uint8), anchor=(side, side)))
    far = (1 - dilate(scene.moving, _HALO)) & (1 - used)
    _require_area(float(far.mean()), "background")
    soft = cv2.GaussianBlur(resize_mask(far, frames), (0, 0), 5 * frames.shape[1] / 256)
    texture = procedural_texture(frames.shape[1:3], rng)
    return _painted(frames, [(opacity * soft, texture)] * len(frames))


@_surface(based_on="COLOSSEUM table")
def table_texture(frames: Frames, opacity: float, rng: Generator) -> Frames:
    """The table has another top; what lies on it, what moves over it and the shadows stay."""
    scene = segment_motion(frames)
    table = table_region(scene.background)
    _require_area(float(table.mean()), "table")
    bare = [table & ~dilate(mask.astype(np.uint8), 0.008).astype(bool) for mask in scene.foreground]
    light = max(float(np.median(cv2.cvtColor(scene.background, cv2.COLOR_RGB2GRAY)[table])), 1.0)
    texture = procedural_texture(frames.shape[1:3], rng)
    layers = []
    for mask, frame in zip(bare, frames, strict=True):
        shade = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY).astype(np.float32) / light
        shaded = np.asarray(np.clip(texture * np.clip(shade, 0.2, 1.6)[..., None], 0, 255))
        layers.append((opacity * _soft(mask, frames), shaded))
    return _painted(frames, layers)


@on_episode(
    "domain",
    channel="frames",
    parameter="hue turn in degrees and paint",
    table=((20, 0.15), (60, 0.3), (120, 0.45), (180, 0.6)),
    based_on="COLOSSEUM colours",
    randomness="per_clip",
    label="keeps_if",
)
def robot_recolour(
    episode: Episode, paint: tuple[float, float], rng: Generator, _dataset: Episodes
) -> PerturbedEpisode:
    """The arm has another colour: what moves and is large or reaches in from the edge is painted over."""
    require_no_colour(episode.instruction)
    degrees, strength = paint
    hue = rng.uniform(0, 180)
    frames = episode.frames
    arms = _arm_masks(segment_motion(frames))
    if max(float(arm.mean()) for arm in arms) < _MIN_ARM:
        raise NotApplicable("nothing that moves is large enough or reaches in from the edge, so no arm is found")
    looks = [(_soft(a, frames), _repainted(f, degrees, strength, hue)) for a, f in zip(arms, frames, strict=True)]
    return PerturbedEpisode(with_frames(episode, _painted(frames, looks)), "same")


def _require_area(area: float, what: str) -> None:
    if area < _MIN_AREA:
        raise NotApplicable(f"the {what} is {area:.1%} of the picture, but {_MIN_AREA:.0%} are needed")


def _soft(mask: NDArray[np.bool_], frames: Frames) -> Mask:
    return np.asarray(cv2.GaussianBlur(resize_mask(mask, frames), (0, 0), frames.shape[1] / 256))


def _painted(frames: Frames, layers: list[tuple[Mask, Frames]]) -> Frames:
    """Return the frames with a new look laid over each where its mask is."""
    result = np.empty_like(frames)
    for target, frame, (mask, new) in zip(result, frames, layers, strict=True):
        target[:] = np.round(frame + mask[..., None] * (new.astype(np.float32) - frame))
    return result


def _arm_masks(scene: MotionSegmentation) -> list[NDArray[np.bool_]]:
    """Return per frame the large moving parts that have the usual tint of the arm.

    Left out are the object it holds, its shadow and the table it uncovers.
    """
    arms = [_large_or_at_edge(mask) for mask in scene.foreground]
    frames = [_lab(frame) for frame in scene.frames]
    background, table = _lab(scene.background), table_region(scene.background)
    pixels = np.concatenate([frame[arm] for frame, arm in zip(frames, arms, strict=True)])
    if not len(pixels):
        return arms
    tint = np.median(pixels[:, 1:], axis=0)
    table_colour = np.median(background[table], axis=0) if table.any() else np.full(3, np.inf, np.float32)
    shown = zip(frames, arms, strict=True)
    return [_of_tint(arm, frame[arm], background[arm], tint, table_colour) for frame, arm in shown]


def _large_or_at_edge(foreground: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Keep the moving parts that are large or touch the edge of the picture: an arm is, an object is not."""
    closed = cv2.morphologyEx(foreground.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(closed)
    edge = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    at_edge = np.zeros(len(stats), bool)
    at_edge[edge] = True
    area = stats[:, cv2.CC_STAT_AREA] / foreground.size
    kept = (at_edge & (area > 0.003)) | (area > 0.015)
    kept[0] = False
    return np.asarray(kept[labels])


def _of_tint(arm: NDArray[np.bool_], now: Mask, before: Mask, tint: Mask, table_colour: Mask) -> NDArray[np.bool_]:
    """Keep the pixels of an arm mask whose Lab colour `now` is the arm's own."""
    own = colour_distance(now[:, 1:], tint) < _ARM_TINT
    bare = colour_distance(now, table_colour) < _SAME_COLOUR
    shade = now[:, 0] / np.maximum(before[:, 0], 1)
    shadow = (colour_distance(now[:, 1:], before[:, 1:]) < _SAME_COLOUR) & (shade > 0.5) & (shade < 1)
    mask = np.zeros(arm.shape, np.uint8)
    mask[arm] = own & ~bare & ~shadow
    return np.asarray(cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0)


def _lab(picture: Frames) -> NDArray[np.float32]:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2LAB), np.float32)


def _repainted(frame: Frames, degrees: float, strength: float, hue: float) -> Frames:
    """Turn the hue, and lay a coat of paint over it so that grey arms change as well."""
    hsv = cv2.cvtColor(frame, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(np.int32) + round(degrees / 2)) % 180
    turned = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB).astype(np.float32)
    hsv[..., 0], hsv[..., 1] = round(hue) % 180, 255
    hsv[..., 2] = np.maximum(hsv[..., 2], 90)  # paint is visible on black, too
    return np.asarray(turned + strength * (cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) - turned))
