"""Weather and dirt before the lens; layers are drawn once per clip, as the same dirt stays on the glass."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import Spec, on_frames
from rewardlab.perturbations.visual.compiled_pixel_ops import (
    Image,
    Layer,
    bleach_and_add_snow,
    map_frames,
    multiply_add,
)
from rewardlab.perturbations.visual.reference_resolution import IMAGENET_C, layer_shape, pixel_scale, resize_layer
from rewardlab.perturbations.visual.weather_layers import (
    fog_layer,
    frost_layer,
    liquid_thickness,
    mud_opacity,
    smear_layer,
    snowflakes,
    water_layer,
)

_RETUNED = "ImageNet-C, its last level re-tuned to grow with severity"
_WATER = np.array((175, 238, 238), np.float32)  # RGB
_MUD = np.array((63, 42, 20), np.float32)
_FALL_SPEED = 6.0  # pixels per sampled frame at the reference resolution

_FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (4.0, 1.4))
_FROST = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.5, 0.85))
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


@on_frames(Spec("visual", "density, and how fast fine detail fades", _FOG, _RETUNED, "per_clip"))
def fog(frames: Frames, density: tuple[float, float], rng: Generator) -> Frames:
    """Fog stands between the camera and the scene, in the same swathes throughout."""
    amount, decay = density
    brightest = frames.max() / 255
    keep = brightest / (brightest + amount)
    veil = resize_layer(fog_layer(layer_shape(frames), decay, rng), frames)[..., None]
    return _cover(frames, np.float32(keep), veil * np.float32(255 * amount * keep))


@on_frames(Spec("visual", "fraction of the scene and of the ice", _FROST, f"{_RETUNED}; the ice is drawn", "per_clip"))
def frost(frames: Frames, fractions: tuple[float, float], rng: Generator) -> Frames:
    """Ice has grown on the lens and stays there."""
    ice = resize_layer(frost_layer(layer_shape(frames), rng), frames)
    return _cover(frames, np.float32(fractions[0]), ice * np.float32(fractions[1]))


@on_frames(Spec("visual", _DROPS, _SPATTER, IMAGENET_C, "per_clip"))
def spatter(frames: Frames, drops: tuple[str, float, float, float, float, float], rng: Generator) -> Frames:
    """Drops of water, and at worst mud, have hit the lens and stick to it."""
    kind, mean, spread, sigma, threshold, strength = drops
    thickness = liquid_thickness(layer_shape(frames), mean, spread, sigma, rng)
    if kind == "water":
        light = resize_layer(water_layer(thickness, threshold), frames)[..., None]
        return _cover(frames, np.float32(1), light * (np.float32(strength) * _WATER))
    cover = resize_layer(mud_opacity(thickness, threshold, strength), frames)[..., None]
    return _cover(frames, 1 - cover, cover * _MUD)


@on_frames(Spec("visual", _FALL, _SNOW, IMAGENET_C, "ar1"))
def snow(frames: Frames, fall: tuple[float, float, float, float, tuple[float, float], float], rng: Generator) -> Frames:
    """Snow falls before the camera and moves on from frame to frame."""
    mean, spread, zoom, threshold, size, keep = fall
    angle = rng.uniform(-135, -45)
    noise = (rng.standard_normal(layer_shape(frames)) * spread + mean).astype(np.float32)
    layer = smear_layer(snowflakes(noise, zoom, threshold), size, angle)
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
