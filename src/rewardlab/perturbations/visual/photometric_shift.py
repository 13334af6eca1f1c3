"""Light and colour: lamps, exposure, and how strongly the camera renders colour."""

from functools import cache

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import Spec, on_frames
from rewardlab.perturbations.visual.compiled_pixel_ops import (
    Image,
    Layer,
    look_up_by_max_channel,
    map_frames,
    scale_saturation,
)
from rewardlab.perturbations.visual.reference_resolution import IMAGENET_C

_LEVELS = np.arange(256)
_MEMORY = 0.8  # of the flicker from one shown frame to the next
_TINY = 1e-6  # keeps whole numbers whole when they are rounded down
_HSV = "ImageNet-C saturate; pure grey has no hue and stays grey"
_OVERSATURATED = ((1.5, 0.0), (2.0, 0.0), (5.0, 0.0), (20.0, 0.2))


@on_frames(Spec("visual", "added brightness", (0.1, 0.2, 0.3, 0.5), IMAGENET_C, "per_clip"))
def brightness_up(frames: Frames, lift: float, rng: Generator) -> Frames:
    """More light falls on the scene for the whole clip, and bright places burn out."""
    out = np.empty(frames.shape, np.uint8)
    look_up_by_max_channel(np.ascontiguousarray(frames).reshape(-1, 3), brightness_table(lift), out.reshape(-1, 3))
    return out


@on_frames(Spec("visual", "standard deviation of the log gain", (0.05, 0.10, 0.20, 0.35), randomness="ar1"))
def exposure_flicker(frames: Frames, spread: float, rng: Generator) -> Frames:
    """The lamps flicker and the exposure hunts after them, so brightness drifts from frame to frame."""
    gains = np.exp(spread * ar1_series(len(frames), rng))
    tables = iter(np.rint(np.clip(_LEVELS * gains[:, None], 0, 255)).astype(np.uint8))
    return map_frames(frames, lambda frame, target: cv2.LUT(frame, next(tables), dst=target))


@on_frames(Spec("visual", "fraction of contrast that is left", (0.4, 0.3, 0.2, 0.05), IMAGENET_C, "per_clip"))
def contrast_down(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """Stray light washes the picture out: every frame fades towards its own mean colour."""

    def change(frame: Image, target: Image) -> None:
        means = np.array(cv2.mean(frame)[:3])
        table = (_LEVELS[:, None] - means) * fraction + means
        cv2.LUT(frame, (table + _TINY).astype(np.uint8)[None], dst=target)

    return map_frames(frames, change)


@on_frames(Spec("visual", "factor of the saturation", (0.7, 0.5, 0.3, 0.0), "ImageNet-C saturate", "per_clip"))
def desaturate(frames: Frames, factor: float, rng: Generator) -> Frames:
    """The camera renders colours paler than they are, down to grey."""
    return _saturate(frames, factor, 0.0)


@on_frames(Spec("visual", "factor of the saturation, and what is added to it", _OVERSATURATED, _HSV, "per_clip"))
def oversaturate(frames: Frames, change: tuple[float, float], rng: Generator) -> Frames:
    """The camera renders colours stronger than they are, up to glaring."""
    return _saturate(frames, *change)


def ar1_series(count: int, rng: Generator) -> Layer:
    """Return a first-order autoregressive series of unit variance."""
    series = rng.standard_normal(count)
    for t in range(1, count):
        series[t] = _MEMORY * series[t - 1] + np.sqrt(1 - _MEMORY**2) * series[t]
    return series.astype(np.float32)


@cache
def brightness_table(lift: float) -> Image:
    """Return what a value becomes when the brightest channel of its pixel is lifted, uint8 (256 peaks, 256)."""
    peaks = _LEVELS[:, None]
    lifted = np.minimum(peaks + 255 * lift, 255)
    scaled = _LEVELS * lifted / np.maximum(peaks, 1)
    return np.asarray(np.where(peaks == 0, lifted, np.minimum(scaled, 255)) + _TINY, np.uint8)


@cache
def saturation_table(factor: float, add: float) -> Layer:
    """Return how much further channels move from the brightest one, by the brightest and the darkest, (256, 256)."""
    peaks, floors = _LEVELS[:, None], _LEVELS[None, :]
    saturation = np.maximum(peaks - floors, 0) / np.maximum(peaks, 1)
    wanted = np.clip(saturation * factor + add, 0, 1)
    return np.asarray(np.where(saturation > 0, wanted / np.maximum(saturation, _TINY), 1), np.float32)


def _saturate(frames: Frames, factor: float, add: float) -> Frames:
    out = np.empty(frames.shape, np.uint8)
    scale_saturation(np.ascontiguousarray(frames).reshape(-1, 3), saturation_table(factor, add), out.reshape(-1, 3))
    return out
