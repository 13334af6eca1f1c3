"""Random textures for tables and floors."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import pick

_FINE = 256  # pixels; larger surfaces repeat each pixel


def random_texture(shape: tuple[int, ...], rng: Generator) -> NDArray[np.uint8]:
    """Return a texture of two colours: planks, tiles, weave or blotches, with a fine grain."""
    times = max(1, max(shape[:2]) // _FINE)
    small = _base_texture((-(-shape[0] // times), -(-shape[1] // times)), rng)
    return small.repeat(times, axis=0).repeat(times, axis=1)[: shape[0], : shape[1]]


def _base_texture(shape: tuple[int, int], rng: Generator) -> NDArray[np.uint8]:
    height, width = shape
    y, x = np.mgrid[:height, :width] / max(height, width)
    angle, count = rng.uniform(0, np.pi), rng.integers(5, 15)
    along = x * np.cos(angle) + y * np.sin(angle)
    across = y * np.cos(angle) - x * np.sin(angle)
    fields = (
        np.floor(along * count) % 2,
        (np.floor(x * count) + np.floor(y * count)) % 2,
        0.5 + 0.25 * (np.sin(2 * np.pi * count * along) + np.sin(2 * np.pi * count * across)),
        _blotches(shape, rng, int(count)),
    )
    mix = pick(fields, rng)[..., None]
    first, second = rng.uniform(30, 225, (2, 3))
    grain = rng.normal(0, 6, (height, width, 1))
    return np.asarray(np.clip(first + mix * (second - first) + grain, 0, 255), np.uint8)


def _blotches(shape: tuple[int, int], rng: Generator, count: int) -> NDArray[np.float64]:
    coarse = rng.uniform(0, 1, (count, count))
    rows = np.linspace(0, count - 1, shape[0])
    columns = np.linspace(0, count - 1, shape[1])
    wide = np.stack([np.interp(columns, np.arange(count), row) for row in coarse])
    return np.stack([np.interp(rows, np.arange(count), column) for column in wide.T], axis=1)
