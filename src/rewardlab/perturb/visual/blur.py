"""Blur of the lens and of a moving camera: one state of the optics for the whole clip."""

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturb.contract import Spec, on_frames
from rewardlab.perturb.visual.canvas import each, flat_rows, scale_of
from rewardlab.perturb.visual.compiled_pixel_ops import (
    Image,
    Layer,
    Values,
    Whole,
    average_disk,
    blend_shifted,
    pick_pixels,
    read_between_rows,
    swap_neighbours,
)

_LENS = "ImageNet-C, levels 1, 2, 3 and 5"
_ZOOMS = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.31, 0.03))
_GLASS = ((0.5, 1, 1), (0.7, 1, 2), (1.0, 2, 2), (1.5, 4, 2))


@on_frames(Spec("visual", "sigma in pixels at 256 px height", (1.0, 2.0, 3.0, 6.0), _LENS, "per_clip"))
def gaussian_blur(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """The lens is a little soft for the whole clip."""
    taps = gaussian_taps(sigma * scale_of(frames))
    return each(frames, lambda frame, target: smooth(frame, taps, target))


@on_frames(
    Spec(
        "visual",
        "radius and edge softness in pixels at 256 px height",
        ((3, 0.1), (4, 0.5), (6, 0.5), (10, 0.5)),
        _LENS,
        "per_clip",
    )
)
def defocus_blur(frames: Frames, disk: tuple[float, float], rng: Generator) -> Frames:
    """The lens is out of focus: every point becomes a disk, of one size for the whole clip."""
    reach = disk_reach(disk[0] * scale_of(frames))
    pad = len(reach) // 2

    def change(frame: Image, target: Image) -> None:
        soft = cv2.GaussianBlur(frame, (3, 3), disk[1])
        padded = cv2.copyMakeBorder(soft, pad, pad, pad, pad, cv2.BORDER_REFLECT_101)
        average_disk(flat_rows(padded), reach, flat_rows(target))

    return each(frames, change)


@on_frames(
    Spec(
        "visual",
        "radius and sigma of the streak in pixels at 256 px height",
        ((10, 3), (15, 5), (15, 8), (20, 15)),
        _LENS,
        "per_clip",
    )
)
def motion_blur(frames: Frames, streak: tuple[float, float], rng: Generator) -> Frames:
    """The camera shakes along one direction, which stays the same for the whole clip."""
    shifts, weights = streak_taps(streak, scale_of(frames), rng.uniform(-45, 45))
    left, right = max(0, -int(shifts[:, 1].min())), max(0, int(shifts[:, 1].max()))
    places = np.stack([shifts[:, 0], 3 * (shifts[:, 1] + left)], axis=1)

    def change(frame: Image, target: Image) -> None:
        padded = cv2.copyMakeBorder(frame, 0, 0, left, right, cv2.BORDER_REPLICATE)
        blend_shifted(flat_rows(padded), places, weights, flat_rows(target))

    return each(frames, change)


@on_frames(Spec("visual", "largest zoom and its steps", _ZOOMS, _LENS, "per_clip"))
def zoom_blur(frames: Frames, zoom: tuple[float, float], rng: Generator) -> Frames:
    """The lens zooms in during every exposure, so the picture smears away from its centre."""
    zooms, (height, width) = np.arange(1, *zoom), frames.shape[1:3]
    places = list(zip(zoom_places(width, zooms), zoom_places(height, zooms)))
    wide, total = np.empty((width, height, 3), np.uint8), np.empty((height, width, 3), np.float32)
    turned, copy = np.empty((height, width, 3), np.uint8), np.empty((height, width, 3), np.uint8)

    def change(frame: Image, target: Image) -> None:
        on_side = cv2.transpose(frame)  # both axes are read as rows, which fill whole registers
        total[:] = frame
        for across, down in places:
            read_between_rows(flat_rows(on_side), across, flat_rows(wide))
            read_between_rows(flat_rows(cv2.transpose(wide, dst=turned)), down, flat_rows(copy))
            cv2.accumulate(copy, total)
        cv2.convertScaleAbs(total, dst=target, alpha=1 / (1 + len(zooms)))

    return each(frames, change)


@on_frames(
    Spec(
        "visual",
        "sigma and reach in pixels at 256 px height, and rounds of swaps",
        _GLASS,
        "ImageNet-C glass blur, re-tuned to grow with severity",
        "per_clip",
    )
)
def glass_blur(frames: Frames, glass: tuple[float, float, int], rng: Generator) -> Frames:
    """A pane of frosted glass stands before the lens and scatters every frame the same way."""
    sigma, reach, rounds = glass
    scale, (height, width) = scale_of(frames), frames.shape[1:3]
    order = np.arange(height * width, dtype=np.int32).reshape(height, width)
    seed = rng.integers(0, 2**64, dtype=np.uint64)
    swap_neighbours(order, reach * scale, rounds, seed)
    taps, (soft, mixed) = gaussian_taps(sigma * scale), np.empty((2, height, width, 3), np.uint8)

    def change(frame: Image, target: Image) -> None:
        smooth(frame, taps, soft)
        pick_pixels(soft.reshape(-1, 3), order.reshape(-1), mixed.reshape(-1, 3))
        smooth(mixed, taps, target)

    return each(frames, change)


def gaussian_taps(sigma: float) -> Layer:
    """Return the weights of a Gaussian out to four sigma."""
    radius = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-6)) ** 2)
    return np.asarray(weights / weights.sum(), np.float32)


def smooth(frame: Image, taps: Layer, target: Image) -> None:
    """Write the frame filtered by the same taps along both axes; edges repeat."""
    cv2.sepFilter2D(frame, cv2.CV_8U, taps, taps, dst=target, borderType=cv2.BORDER_REPLICATE)


def disk_reach(radius: float) -> Whole:
    """Return how far a disk reaches to each side in each of its rows."""
    rows = np.arange(-int(radius), int(radius) + 1)
    return np.asarray(np.sqrt(np.maximum(radius**2 - rows**2, 0)), np.int64)


def streak_taps(streak: tuple[float, float], scale: float, angle: float) -> tuple[Whole, Layer]:
    """Return the (row, column) shifts of a streak and their weights, in a multiple of four."""
    radius, sigma = round(streak[0] * scale), max(streak[1] * scale, 1e-6)
    steps = np.arange(2 * radius + 1)
    direction = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    shifts = np.stack([np.ceil(steps * part - 0.5) for part in direction], axis=1).astype(np.int64)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    missing = -len(steps) % 4
    weights = np.pad(weights / weights.sum(), (0, missing)).astype(np.float32)
    return np.pad(shifts, ((0, missing), (0, 0))), weights


def zoom_places(length: int, zooms: Values) -> Layer:
    """Return where each zoomed copy reads each pixel of an axis, (copies, length)."""
    inner = np.ceil(length / zooms)[:, None]
    step = (inner - 1) / np.maximum(np.rint(inner * zooms[:, None]) - 1, 1)
    places = (length - inner) // 2 + np.minimum(np.arange(length) * step, inner - 1)
    return np.asarray(places, np.float32)
