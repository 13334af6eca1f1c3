"""Weather and dirt before the lens; layers are drawn once per clip, as the same dirt stays on the glass."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturb.contract import Spec, on_frames
from rewardlab.perturb.visual.canvas import canvas_shape, each, fit, scale_of
from rewardlab.perturb.visual.compiled_pixel_ops import Image, Layer, lay_over, whiten_and_snow
from rewardlab.perturb.visual.occlusion import clouds, flakes, ice, liquid, mud_cover, streak, water_drops

_WEATHER = "ImageNet-C, levels 1, 2, 3 and 5"
_RETUNED = "ImageNet-C, its last level re-tuned to grow with severity"
_WATER = np.array((175, 238, 238), np.float32)  # RGB
_MUD = np.array((63, 42, 20), np.float32)
_FALL = 6.0  # canvas pixels per shown frame

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


@on_frames(Spec("visual", "density, and how fast fine detail fades", _FOG, _RETUNED, "per_clip"))
def fog(frames: Frames, density: tuple[float, float], rng: Generator) -> Frames:
    """Fog stands between the camera and the scene, in the same swathes throughout."""
    amount, decay = density
    brightest = frames.max() / 255
    keep = brightest / (brightest + amount)
    veil = fit(clouds(canvas_shape(frames), decay, rng), frames)[..., None]
    return _cover(frames, np.float32(keep), veil * np.float32(255 * amount * keep))


@on_frames(Spec("visual", "share of the scene and of the ice", _FROST, f"{_RETUNED}; the ice is drawn", "per_clip"))
def frost(frames: Frames, shares: tuple[float, float], rng: Generator) -> Frames:
    """Ice has grown on the lens and stays there."""
    return _cover(frames, np.float32(shares[0]), fit(ice(canvas_shape(frames), rng), frames) * np.float32(shares[1]))


@on_frames(
    Spec(
        "visual",
        "liquid; mean, spread, sigma in pixels at 256 px height and threshold of its thickness; strength or rim",
        _SPATTER,
        _WEATHER,
        "per_clip",
    )
)
def spatter(frames: Frames, drops: tuple[str, float, float, float, float, float], rng: Generator) -> Frames:
    """Drops of water, and at worst mud, have hit the lens and stick to it."""
    kind, mean, spread, sigma, threshold, strength = drops
    thickness = liquid(canvas_shape(frames), mean, spread, sigma, rng)
    if kind == "water":
        light = fit(water_drops(thickness, threshold), frames)[..., None]
        return _cover(frames, np.float32(1), light * (np.float32(strength) * _WATER))
    cover = fit(mud_cover(thickness, threshold, strength), frames)[..., None]
    return _cover(frames, 1 - cover, cover * _MUD)


@on_frames(
    Spec(
        "visual",
        "mean, spread, zoom and threshold of the flakes; radius and sigma of their streaks; share of the scene",
        _SNOW,
        _WEATHER,
        "ar1",
    )
)
def snow(frames: Frames, fall: tuple[float, float, float, float, tuple[float, float], float], rng: Generator) -> Frames:
    """Snow falls before the camera and moves on from frame to frame."""
    mean, spread, zoom, threshold, size, keep = fall
    angle = rng.uniform(-135, -45)
    noise = (rng.standard_normal(canvas_shape(frames)) * spread + mean).astype(np.float32)
    layer = streak(flakes(noise, zoom, threshold), size, angle)
    layer = fit(layer + layer[::-1, ::-1], frames) * np.float32(255)
    step = -_FALL * scale_of(frames) * np.array([np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))])
    moves = iter(np.rint(np.arange(len(frames))[:, None] * step).astype(int).tolist())

    def change(frame: Image, target: Image) -> None:
        fallen = np.roll(layer, next(moves), (0, 1))
        whiten_and_snow(frame.reshape(-1, 3), np.float32(keep), fallen.reshape(-1), target.reshape(-1, 3))

    return each(frames, change)


def _cover(frames: Frames, keep: np.float32 | Layer, add: Layer) -> Frames:
    """Return frames * keep + add, both the same in every frame."""
    shape, count = frames.shape[1:], len(frames)
    out = np.empty(frames.shape, np.uint8)
    kept, added = (np.broadcast_to(part, shape).astype(np.float32).reshape(-1) for part in (keep, add))
    lay_over(np.ascontiguousarray(frames).reshape(count, -1), kept, added, out.reshape(count, -1))
    return out
