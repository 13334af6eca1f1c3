"""Fog, frost, spatter, snow, and how their layers are drawn."""

from functools import partial

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import on_frames
from rewardlab.perturbations.visual.blur import gaussian_kernel, motion_kernel
from rewardlab.perturbations.visual.pixel_ops import (
    IMAGENET_C,
    Floats,
    Image,
    Layer,
    bleach_and_add_snow,
    layer_shape,
    map_frames,
    multiply_add,
    pixel_scale,
    resize_layer,
)

Shape = tuple[int, int]  # (height, width)
_OCTAVES = 8
_FEATHERS = 34  # of ice per square picture, in each layer
_BARBS = 18  # on each side of a feather
_ICE_LAYERS = (90, 150, 230)  # brightness of the feathers, from behind to the front
_ICE_TINT = np.array((0.90, 0.97, 1.0), np.float32)  # RGB
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)  # lights a drop from the upper left
_DROP_DEPTH = 20.0  # pixels at the reference resolution from its rim at which a drop is flat
_MUD_SOLID = 0.8  # thinner mud runs off


def fog_layer(shape: Shape, decay: float, rng: Generator) -> Layer:
    """Return fractal clouds in 0-1; each halving of the scale is weaker by decay squared."""
    total = np.zeros(shape, np.float32)
    for octave in range(1, _OCTAVES + 1):
        total += _value_noise(shape, 2**octave, rng) * np.float32(decay ** (-2 * octave))
    return np.asarray((total - total.min()) / (total.max() - total.min()), np.float32)


def frost_layer(shape: Shape, rng: Generator) -> Layer:
    """Return an ice cover as RGB in 0-255: feathers of ice over a haze that is thickest at the rim of the pane."""
    height, width = shape
    feathers = np.zeros(shape, np.uint8)
    for brightness in _ICE_LAYERS:
        count = max(1, round(_FEATHERS * width / height))
        cv2.polylines(feathers, list(feather_lines(shape, count, rng)), False, brightness, 1, cv2.LINE_AA)
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    rim = np.clip(0.5 * (x**2 + y**2) + 0.5 * _value_noise(shape, 4, rng), 0, 1)
    cover = 0.46 + 0.22 * rim + 0.08 * _value_noise(shape, 16, rng) + 0.34 * cv2.blur(feathers, (2, 2)) / 255
    return np.asarray(255 * np.clip(cover, 0, 1)[..., None] * _ICE_TINT, np.float32)


def feather_lines(shape: Shape, count: int, rng: Generator) -> NDArray[np.int32]:
    """Return the (lines, 2, 2) needles of some ice feathers: bent stems, with barbs that shorten towards the tip."""
    steps = np.linspace(0, 1, _BARBS)
    roots = rng.random((count, 1, 2)) * (shape[1], shape[0])
    heading = rng.uniform(0, 2 * np.pi, (count, 1)) + rng.uniform(-0.8, 0.8, (count, 1)) * steps
    length = rng.uniform(0.1, 0.35, (count, 1, 1)) * shape[0]
    stems = roots + np.cumsum(_unit_vectors(heading) * length / _BARBS, axis=1)
    size = length * 0.4 * (1 - steps[:, None]) * rng.uniform(0.5, 1, (count, _BARBS, 1))
    barbs = [np.stack([stems, stems + _unit_vectors(heading + side) * size], axis=2) for side in (-0.8, 0.8)]
    lines = [np.stack([stems[:, :-1], stems[:, 1:]], axis=2), *barbs]
    return np.concatenate([line.reshape(-1, 2, 2) for line in lines]).astype(np.int32)


def liquid_thickness(shape: Shape, mean: float, spread: float, sigma: float, rng: Generator) -> Layer:
    """Return the thickness of liquid on a pane: smoothed white noise."""
    kernel = gaussian_kernel(sigma)
    noise = (rng.standard_normal(shape) * spread + mean).astype(np.float32)
    return np.asarray(cv2.sepFilter2D(noise, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REPLICATE))


def water_layer(thickness: Layer, threshold: float) -> Layer:
    """Return how much light drops add, in 0-1: water thicker than the threshold, shaded by its distance to the rim."""
    water = (np.where(thickness < threshold, 0, thickness) * 255).astype(np.uint8)
    rims = cv2.Canny(water, 50, 150)
    depth = np.minimum(cv2.distanceTransform(255 - rims, cv2.DIST_L2, 5), _DROP_DEPTH)
    height = cv2.equalizeHist(cv2.blur(depth, (3, 3)).astype(np.uint8))
    shine = cv2.blur(cv2.filter2D(height, cv2.CV_8U, _RELIEF), (3, 3))
    light = water.astype(np.float32) * shine
    return np.asarray(light / max(float(light.max()), 1.0), np.float32)


def mud_opacity(thickness: Layer, threshold: float, sigma: float) -> Layer:
    """Return how opaque the mud is, in 0-1."""
    kernel = gaussian_kernel(sigma)
    solid = (thickness > threshold).astype(np.float32)
    cover = cv2.sepFilter2D(solid, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
    return np.where(cover < _MUD_SOLID, 0, cover).astype(np.float32)


def snow_layer(noise: Layer, zoom: float, threshold: float, size: tuple[float, float], angle: float) -> Layer:
    """Return snow flakes, smeared along their fall: the middle of a noise field, enlarged, above the threshold."""
    height, width = noise.shape
    rows, columns = int(np.ceil(height / zoom)), int(np.ceil(width / zoom))
    top, left = (height - rows) // 2, (width - columns) // 2
    large = cv2.resize(noise[top : top + rows, left : left + columns], (width, height), interpolation=cv2.INTER_LINEAR)
    flakes = np.where(large < threshold, 0, np.clip(large, 0, 1)).astype(np.float32)
    total = np.zeros_like(flakes)
    for (down, right), weight in zip(*motion_kernel(size, 1.0, angle), strict=True):
        total += weight * np.roll(flakes, (-down, -right), (0, 1))
    return total


def _unit_vectors(angle: Floats) -> Floats:
    """Return unit vectors (x, y) along the last axis."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _value_noise(shape: Shape, count: int, rng: Generator) -> Layer:
    """Return smooth noise in about -1 to 1 with this many bumps along the height."""
    height, width = shape
    grid = rng.uniform(-1, 1, (count, max(1, round(count * width / height)))).astype(np.float32)
    return np.asarray(cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC))


_RETUNED = "ImageNet-C, its last level re-tuned to grow with severity"
_WATER = np.array((175, 238, 238), np.float32)  # RGB
_MUD = np.array((63, 42, 20), np.float32)
_FALL_SPEED = 6.0  # pixels per sampled frame at the reference resolution

_SPATTER = (
    ("water", 0.65, 0.3, 4.0, 0.69, 0.6),
    ("water", 0.65, 0.3, 3.0, 0.68, 0.6),
    ("water", 0.65, 0.3, 2.0, 0.68, 0.5),
    ("mud", 0.67, 0.4, 1.0, 0.65, 1.5),
)
_SNOW = (
    (0.1, 0.3, 3.0, 0.5, (10, 4), 0.8),
    (0.2, 0.3, 2.0, 0.5, (12, 4), 0.7),
    (0.55, 0.3, 4.0, 0.9, (12, 8), 0.7),
    (0.55, 0.3, 2.5, 0.85, (12, 12), 0.55),
)
_DROPS = "liquid; mean, spread, sigma in pixels at 256 px height and threshold of its thickness; strength or rim"
_FALL = "mean, spread, zoom and threshold of the flakes; radius and sigma of their streaks; fraction of the scene"

_weather = partial(on_frames, "visual", based_on=IMAGENET_C, randomness="per_clip")


@_weather(
    parameter="density, and how fast fine detail fades",
    table=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (4.0, 1.4)),
    based_on=_RETUNED,
)
def fog(frames: Frames, density: tuple[float, float], rng: Generator) -> Frames:
    """Fog stands between the camera and the scene, in the same swathes throughout."""
    amount, decay = density
    brightest = frames.max() / 255
    keep = brightest / (brightest + amount)
    veil = resize_layer(fog_layer(layer_shape(frames), decay, rng), frames)[..., None]
    return _cover(frames, np.float32(keep), veil * np.float32(255 * amount * keep))


@_weather(
    parameter="fraction of the scene and of the ice",
    table=((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.5, 0.85)),
    based_on=f"{_RETUNED}; the ice is drawn",
)
def frost(frames: Frames, fractions: tuple[float, float], rng: Generator) -> Frames:
    """Ice has grown on the lens and stays there."""
    ice = resize_layer(frost_layer(layer_shape(frames), rng), frames)
    return _cover(frames, np.float32(fractions[0]), ice * np.float32(fractions[1]))


@_weather(parameter=_DROPS, table=_SPATTER)
def spatter(frames: Frames, drops: tuple[str, float, float, float, float, float], rng: Generator) -> Frames:
    """Drops of water, and at worst mud, have hit the lens and stick to it."""
    kind, mean, spread, sigma, threshold, strength = drops
    thickness = liquid_thickness(layer_shape(frames), mean, spread, sigma, rng)
    if kind == "water":
        light = resize_layer(water_layer(thickness, threshold), frames)[..., None]
        return _cover(frames, np.float32(1), light * (np.float32(strength) * _WATER))
    cover = resize_layer(mud_opacity(thickness, threshold, strength), frames)[..., None]
    return _cover(frames, 1 - cover, cover * _MUD)


@on_frames("visual", parameter=_FALL, table=_SNOW, based_on=IMAGENET_C, randomness="ar1")
def snow(frames: Frames, fall: tuple[float, float, float, float, tuple[float, float], float], rng: Generator) -> Frames:
    """Snow falls before the camera and moves on from frame to frame."""
    mean, spread, zoom, threshold, size, keep = fall
    angle = rng.uniform(-135, -45)
    noise = (rng.standard_normal(layer_shape(frames)) * spread + mean).astype(np.float32)
    layer = snow_layer(noise, zoom, threshold, size, angle)
    layer = resize_layer(layer + layer[::-1, ::-1], frames) * np.float32(255)
    step = -_FALL_SPEED * pixel_scale(frames) * np.array([np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))])
    moves = iter(np.rint(np.arange(len(frames))[:, None] * step).astype(int).tolist())

    def change(frame: Image, target: Image) -> None:
        fallen = np.roll(layer, next(moves), (0, 1))
        bleach_and_add_snow(frame.reshape(-1, 3), np.float32(keep), fallen.reshape(-1), target.reshape(-1, 3))

    return map_frames(frames, change)


def _cover(frames: Frames, keep: np.float32 | Layer, add: Layer) -> Frames:
    """Return frames * keep + add, both the same in every frame."""
    shape, count = frames.shape[1:], len(frames)
    out = np.empty(frames.shape, np.uint8)
    kept, added = (np.broadcast_to(part, shape).astype(np.float32).reshape(-1) for part in (keep, add))
    multiply_add(np.ascontiguousarray(frames).reshape(count, -1), kept, added, out.reshape(count, -1))
    return out
