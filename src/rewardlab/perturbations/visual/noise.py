"""Noise of the image sensor: fresh in every frame, except for the pattern that the sensor keeps."""

from collections.abc import Callable
from functools import cache, partial

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.distributions import normal_quantile, poisson_cdf
from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import on_frames
from rewardlab.perturbations.visual.pixel_ops import (
    IMAGENET_C,
    NOISE_STEPS,
    Floats,
    Image,
    Seeds,
    look_up_noise,
    map_frames,
    salt_and_pepper,
)

_INPUTS = np.arange(256.0)[:, None]
_QUANTILES = (np.arange(NOISE_STEPS) + 0.5) / NOISE_STEPS
FULL_LIGHT_PHOTONS = 255.0  # that a white pixel counts before the lamps are dimmed

_sensor_noise = partial(on_frames, "visual", based_on=IMAGENET_C, randomness="per_frame")


@_sensor_noise(parameter="standard deviation", table=(0.08, 0.12, 0.18, 0.38))
def gaussian_noise(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """The sensor reads out every pixel with an error of its own, new in every frame."""
    return _add_noise(frames, gaussian_table, sigma, rng)


@_sensor_noise(parameter="photons of a white pixel", table=(60, 25, 12, 3))
def shot_noise(frames: Frames, photons: float, rng: Generator) -> Frames:
    """So little light reaches the sensor that single photons count, differently in every frame."""
    return _add_noise(frames, shot_table, photons, rng)


@_sensor_noise(parameter="fraction of values", table=(0.03, 0.06, 0.09, 0.27))
def impulse_noise(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """Transmission errors turn single values fully on or off, others in every frame."""
    flat, out, seeds = _prepare(frames, rng)
    salt_and_pepper(flat, fraction, seeds, out)
    return out.reshape(frames.shape)


@_sensor_noise(parameter="standard deviation at white", table=(0.15, 0.20, 0.35, 0.60))
def speckle_noise(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """The gain of every pixel fluctuates, so bright places are noisier, anew in every frame."""
    return _add_noise(frames, speckle_table, sigma, rng)


@_sensor_noise(parameter="gain", table=(0.7, 0.5, 0.3, 0.15), based_on="light change of LIBERO-plus")
def low_light(frames: Frames, gain: float, rng: Generator) -> Frames:
    """The lamps are dimmed for the whole clip, and the sensor counts fewer photons."""
    return _add_noise(frames, low_light_table, gain, rng)


@on_frames(
    "visual", parameter="standard deviation per column and pixel", table=(0.02, 0.04, 0.08, 0.16), randomness="per_clip"
)
def fixed_pattern_noise(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """The columns and pixels of the sensor have offsets of their own, the same in every frame."""
    height, width = frames.shape[1:3]
    pattern = rng.standard_normal((1, width, 1)) + rng.standard_normal((height, width, 3))
    offset = np.rint(255 * sigma * pattern).astype(np.int16)
    return map_frames(frames, lambda frame, target: cv2.add(frame, offset, dst=target, dtype=cv2.CV_8U))


@cache
def gaussian_table(sigma: float) -> Image:
    """Return what each value becomes at each quantile of additive noise, uint8 (256, NOISE_STEPS)."""
    return _as_table(_INPUTS + 255 * sigma * _normal_quantiles())


@cache
def speckle_table(sigma: float) -> Image:
    """Return what each value becomes at each quantile of noise proportional to it."""
    return _as_table(_INPUTS * (1 + sigma * _normal_quantiles()))


@cache
def shot_table(photons: float) -> Image:
    """Return the brightness of each value at each quantile of its photon count."""
    return _as_table(_photon_counts(_INPUTS * (photons / 255)) * (255 / photons))


@cache
def low_light_table(gain: float) -> Image:
    """Return the dimmed brightness of each value at each quantile of its photon count."""
    return _as_table(_photon_counts(_INPUTS * (gain * FULL_LIGHT_PHOTONS / 255)) * (255 / FULL_LIGHT_PHOTONS))


@cache
def _normal_quantiles() -> Floats:
    return np.array([normal_quantile(fraction) for fraction in _QUANTILES.tolist()])


def _photon_counts(means: Floats) -> Floats:
    """Return the Poisson quantiles of each mean, (256, NOISE_STEPS)."""
    most = means.max()
    below = poisson_cdf(int(most + 8 * np.sqrt(most) + 8), means)
    return np.stack([np.searchsorted(row, _QUANTILES) for row in below]).astype(np.float64)


def _as_table(values: Floats) -> Image:
    # Rounded down as in the public benchmark; the margin keeps whole numbers whole.
    return np.clip(values + 1e-6, 0, 255).astype(np.uint8)


def _add_noise(frames: Frames, table: Callable[[float], Image], parameter: float, rng: Generator) -> Frames:
    flat, out, seeds = _prepare(frames, rng)
    look_up_noise(flat, table(parameter).reshape(-1), seeds, out)
    return out.reshape(frames.shape)


def _prepare(frames: Frames, rng: Generator) -> tuple[Frames, Frames, Seeds]:
    """Return the frames as (T, values), room for as many, and a seed per frame."""
    flat = np.ascontiguousarray(frames).reshape(len(frames), -1)
    return flat, np.empty_like(flat), rng.integers(0, 2**64, len(frames), dtype=np.uint64)
