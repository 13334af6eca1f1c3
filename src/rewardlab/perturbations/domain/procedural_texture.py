"""Procedural textures from random numbers alone: no photograph is shipped."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.seeding import pick

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
