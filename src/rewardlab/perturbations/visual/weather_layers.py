"""Layers of fog, ice, drops, mud and snow, drawn by formula at the reference resolution: no photograph is shipped."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.perturbations.visual.blur import gaussian_kernel, motion_kernel
from rewardlab.perturbations.visual.compiled_pixel_ops import Floats, Layer

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


def snowflakes(noise: Layer, zoom: float, threshold: float) -> Layer:
    """Return snow flakes: the middle of a noise field, enlarged, where it exceeds the threshold."""
    height, width = noise.shape
    rows, columns = int(np.ceil(height / zoom)), int(np.ceil(width / zoom))
    top, left = (height - rows) // 2, (width - columns) // 2
    large = cv2.resize(noise[top : top + rows, left : left + columns], (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(large < threshold, 0, np.clip(large, 0, 1)).astype(np.float32)


def smear_layer(layer: Layer, size: tuple[float, float], angle: float) -> Layer:
    """Return a layer smeared along one direction; what leaves at one edge comes back at the other."""
    shifts, weights = motion_kernel(size, 1.0, angle)
    total = np.zeros_like(layer)
    for (down, right), weight in zip(shifts, weights):
        total += weight * np.roll(layer, (-down, -right), (0, 1))
    return total


def _unit_vectors(angle: Floats) -> Floats:
    """Return unit vectors (x, y) along the last axis."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _value_noise(shape: Shape, count: int, rng: Generator) -> Layer:
    """Return smooth noise in about -1 to 1 with this many bumps along the height."""
    height, width = shape
    grid = rng.uniform(-1, 1, (count, max(1, round(count * width / height)))).astype(np.float32)
    return np.asarray(cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC))
