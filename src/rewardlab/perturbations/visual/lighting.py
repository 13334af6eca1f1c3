"""Brightness, contrast, saturation, flicker, colour temperature, gradient, shadow."""

from functools import cache, partial

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode, on_frames
from rewardlab.perturbations.guards import require_no_colour
from rewardlab.perturbations.visual.pixel_ops import (
    IMAGENET_C,
    Image,
    Layer,
    look_up_by_max_channel,
    map_frames,
    scale_saturation,
)

Floats = NDArray[np.float64]

_DAYLIGHT = 6500.0  # kelvin; the picture as recorded
_GAMMA = 2.2  # of the display; a fraction of light is this root of it in pixel values
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
_XYZ_TO_RGB = np.linalg.inv([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
# Lobes (height, centre, width below, width above; nm) of the CIE 1931 observer as fitted by Wyman et al., JCGT 2013.
_CIE_OBSERVER = (
    ((1.056, 599.8, 37.9, 31.0), (0.362, 442.0, 16.0, 26.7), (-0.065, 501.1, 20.4, 26.2)),
    ((0.821, 568.8, 46.9, 40.5), (0.286, 530.9, 16.3, 31.1)),
    ((1.217, 437.0, 11.8, 36.0), (0.681, 459.0, 26.0, 13.8)),
)

_steady_light = partial(on_frames, "visual", randomness="per_clip")
_lamp_colour = partial(
    on_episode,
    "visual",
    channel="frames",
    parameter="kelvin",
    based_on="Planckian jitter",
    randomness="per_clip",
    label="keeps_if",
)


@_lamp_colour(table=(5000, 4000, 3000, 2200))
def light_temperature(episode: Episode, kelvin: int, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The lamps are warmer than daylight, down to candle light."""
    return _with_colour_temperature(episode, kelvin)


@_lamp_colour(table=(8000, 10_000, 12_000, 15_000))
def light_cool(episode: Episode, kelvin: int, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The lamps are colder than daylight, up to blue sky."""
    return _with_colour_temperature(episode, kelvin)


@_steady_light(parameter="fraction of light lost", table=(0.2, 0.4, 0.6, 0.8), based_on="LIBERO-plus light")
def light_gradient(frames: Frames, loss: float, rng: Generator) -> Frames:
    """The lamp stands to one side, and the far side of the scene gets less light."""
    distance = _distance_along(frames, rng.uniform(0, 2 * np.pi))
    return _dim(frames, loss * (distance - distance.min()) / max(float(np.ptp(distance)), 1e-9))


@_steady_light(parameter="fraction of light lost", table=(0.2, 0.4, 0.6, 0.8), based_on="VLATest light")
def hard_shadow(frames: Frames, loss: float, rng: Generator) -> Frames:
    """Something outside the picture throws a shadow with a sharp edge across the scene."""
    distance = _distance_along(frames, rng.uniform(0, 2 * np.pi))
    start, width = rng.uniform(-0.3, 0.0), rng.uniform(0.25, 0.4)
    edge = 0.008  # half width of the penumbra, as a fraction of the height
    inside = np.minimum(distance - start, start + width - distance)
    return _dim(frames, loss * np.clip(inside / edge + 0.5, 0, 1))


def black_body_rgb(kelvin: float) -> Floats:
    """Return the colour of a glowing black body in linear sRGB, of luminance 1: Planck's law seen by the observer."""
    nanometres = np.arange(380.0, 781.0, 5.0)
    power = nanometres**-5 / np.expm1(1.438777e7 / (nanometres * kelvin))

    def lobe(height: float, centre: float, below: float, above: float) -> Floats:
        return height * np.exp(-0.5 * ((nanometres - centre) / np.where(nanometres < centre, below, above)) ** 2)

    xyz = np.array([sum(lobe(*numbers) for numbers in lobes) @ power for lobes in _CIE_OBSERVER])
    return np.asarray(np.clip(_XYZ_TO_RGB @ (xyz / xyz[1]), 0, None))


def _with_colour_temperature(episode: Episode, kelvin: float) -> PerturbedEpisode:
    """Return the episode under a lamp of this temperature, as bright as before."""
    require_no_colour(episode.instruction)
    gain = black_body_rgb(kelvin) / black_body_rgb(_DAYLIGHT)
    gain /= _LUMINANCE @ gain
    values = np.arange(256)[:, None] * gain ** (1 / _GAMMA)
    table = np.clip(np.round(values), 0, 255).astype(np.uint8)[:, None, :]
    return PerturbedEpisode(with_frames(episode, np.stack([cv2.LUT(frame, table) for frame in episode.frames])), "same")


def _distance_along(frames: Frames, angle: float) -> Floats:
    """Return how far each pixel lies from the middle in a direction, in heights of the picture."""
    height, width = frames.shape[1:3]
    y, x = np.mgrid[:height, :width]
    pixels = (x - (width - 1) / 2) * np.cos(angle) + (y - (height - 1) / 2) * np.sin(angle)
    return np.asarray(pixels / height)


def _dim(frames: Frames, loss: Floats) -> Frames:
    gain = np.repeat(((1 - loss) ** (1 / _GAMMA)).astype(np.float32)[..., None], 3, axis=-1)
    return np.stack([cv2.multiply(frame, gain, dtype=cv2.CV_8U) for frame in frames])


# Light and colour: lamps, exposure, and how strongly the camera renders colour.

_LEVELS = np.arange(256)
_MEMORY = 0.8  # of the flicker from one shown frame to the next
_TINY = 1e-6  # keeps whole numbers whole when they are rounded down


@_steady_light(parameter="added brightness", table=(0.1, 0.2, 0.3, 0.5), based_on=IMAGENET_C)
def brightness_up(frames: Frames, lift: float, _rng: Generator) -> Frames:
    """More light falls on the scene for the whole clip, and bright places burn out."""
    out = np.empty(frames.shape, np.uint8)
    look_up_by_max_channel(np.ascontiguousarray(frames).reshape(-1, 3), brightness_table(lift), out.reshape(-1, 3))
    return out


@on_frames("visual", parameter="standard deviation of the log gain", table=(0.05, 0.10, 0.20, 0.35), randomness="ar1")
def exposure_flicker(frames: Frames, spread: float, rng: Generator) -> Frames:
    """The lamps flicker and the exposure hunts after them, so brightness drifts from frame to frame."""
    series = rng.standard_normal(len(frames))  # made autoregressive, of unit variance
    for t in range(1, len(series)):
        series[t] = _MEMORY * series[t - 1] + np.sqrt(1 - _MEMORY**2) * series[t]
    gains = np.exp(spread * series.astype(np.float32))
    tables = iter(np.rint(np.clip(_LEVELS * gains[:, None], 0, 255)).astype(np.uint8))
    return map_frames(frames, lambda frame, target: cv2.LUT(frame, next(tables), dst=target))


@_steady_light(parameter="fraction of contrast that is left", table=(0.4, 0.3, 0.2, 0.05), based_on=IMAGENET_C)
def contrast_down(frames: Frames, fraction: float, _rng: Generator) -> Frames:
    """Stray light washes the picture out: every frame fades towards its own mean colour."""

    def change(frame: Image, target: Image) -> None:
        means = np.array(cv2.mean(frame)[:3])
        table = (_LEVELS[:, None] - means) * fraction + means
        cv2.LUT(frame, (table + _TINY).astype(np.uint8)[None], dst=target)

    return map_frames(frames, change)


@_steady_light(parameter="factor of the saturation", table=(0.7, 0.5, 0.3, 0.0), based_on="ImageNet-C saturate")
def desaturate(frames: Frames, factor: float, _rng: Generator) -> Frames:
    """The camera renders colours paler than they are, down to grey."""
    return _saturate(frames, factor, 0.0)


@_steady_light(
    parameter="factor of the saturation, and what is added to it",
    table=((1.5, 0.0), (2.0, 0.0), (5.0, 0.0), (20.0, 0.2)),
    based_on="ImageNet-C saturate; pure grey has no hue and stays grey",
)
def oversaturate(frames: Frames, change: tuple[float, float], _rng: Generator) -> Frames:
    """The camera renders colours stronger than they are, up to glaring."""
    return _saturate(frames, *change)


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
