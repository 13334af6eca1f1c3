"""Blur of the lens and of a moving camera: one state of the optics for the whole clip."""

from functools import partial

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import on_frames
from rewardlab.perturbations.visual.pixel_ops import (
    IMAGENET_C,
    Floats,
    Image,
    Integers,
    Layer,
    disk_blur,
    flat_rows,
    gather_pixels,
    interpolate_rows,
    map_frames,
    pixel_scale,
    shuffle_neighbours,
    sum_shifted,
)

_blur = partial(on_frames, "visual", based_on=IMAGENET_C, randomness="per_clip")


@_blur(parameter="sigma in pixels at 256 px height", table=(1.0, 2.0, 3.0, 6.0))
def gaussian_blur(frames: Frames, sigma: float, _rng: Generator) -> Frames:
    """The lens is a little soft for the whole clip."""
    kernel = gaussian_kernel(sigma * pixel_scale(frames))
    return map_frames(frames, lambda frame, target: separable_filter(frame, kernel, target))


@_blur(parameter="radius and edge softness in pixels at 256 px height", table=((3, 0.1), (4, 0.5), (6, 0.5), (10, 0.5)))
def defocus_blur(frames: Frames, disk: tuple[float, float], _rng: Generator) -> Frames:
    """The lens is out of focus: every point becomes a disk, of one size for the whole clip."""
    radius = disk[0] * pixel_scale(frames)
    rows = np.arange(-int(radius), int(radius) + 1)
    half_widths = np.asarray(np.sqrt(np.maximum(radius**2 - rows**2, 0)), np.int64)  # of the disk in each of its rows
    pad = len(half_widths) // 2

    def change(frame: Image, target: Image) -> None:
        soft = cv2.GaussianBlur(frame, (3, 3), disk[1])
        padded = cv2.copyMakeBorder(soft, pad, pad, pad, pad, cv2.BORDER_REFLECT_101)
        disk_blur(flat_rows(padded), half_widths, flat_rows(target))

    return map_frames(frames, change)


@_blur(parameter="radius and sigma of the streak at 256 px height", table=((10, 3), (15, 5), (15, 8), (20, 15)))
def motion_blur(frames: Frames, streak: tuple[float, float], rng: Generator) -> Frames:
    """The camera shakes along one direction, which stays the same for the whole clip."""
    shifts, weights = motion_kernel(streak, pixel_scale(frames), rng.uniform(-45, 45))
    left, right = max(0, -int(shifts[:, 1].min())), max(0, int(shifts[:, 1].max()))
    offsets = np.stack([shifts[:, 0], 3 * (shifts[:, 1] + left)], axis=1)

    def change(frame: Image, target: Image) -> None:
        padded = cv2.copyMakeBorder(frame, 0, 0, left, right, cv2.BORDER_REPLICATE)
        sum_shifted(flat_rows(padded), offsets, weights, flat_rows(target))

    return map_frames(frames, change)


@_blur(parameter="largest zoom and its steps", table=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.31, 0.03)))
def zoom_blur(frames: Frames, zoom: tuple[float, float], _rng: Generator) -> Frames:
    """The lens zooms in during every exposure, so the picture smears away from its centre."""
    zooms, (height, width) = np.arange(1, *zoom), frames.shape[1:3]
    coordinates = list(zip(zoom_coordinates(width, zooms), zoom_coordinates(height, zooms), strict=True))
    wide, total = np.empty((width, height, 3), np.uint8), np.empty((height, width, 3), np.float32)
    turned, copy = np.empty((height, width, 3), np.uint8), np.empty((height, width, 3), np.uint8)

    def change(frame: Image, target: Image) -> None:
        on_side = cv2.transpose(frame)  # both axes are read as rows, which fill whole registers
        total[:] = frame
        for across, down in coordinates:
            interpolate_rows(flat_rows(on_side), across, flat_rows(wide))
            interpolate_rows(flat_rows(cv2.transpose(wide, dst=turned)), down, flat_rows(copy))
            cv2.accumulate(copy, total)
        cv2.convertScaleAbs(total, dst=target, alpha=1 / (1 + len(zooms)))

    return map_frames(frames, change)


@_blur(
    parameter="sigma and reach in pixels at 256 px height, and rounds of swaps",
    table=((0.5, 1, 1), (0.7, 1, 2), (1.0, 2, 2), (1.5, 4, 2)),
    based_on="ImageNet-C glass blur, re-tuned to grow with severity",
)
def glass_blur(frames: Frames, glass: tuple[float, float, int], rng: Generator) -> Frames:
    """A pane of frosted glass stands before the lens and scatters every frame the same way."""
    sigma, reach, rounds = glass
    scale, (height, width) = pixel_scale(frames), frames.shape[1:3]
    order = np.arange(height * width, dtype=np.int32).reshape(height, width)
    seed = rng.integers(0, 2**64, dtype=np.uint64)
    shuffle_neighbours(order, reach * scale, rounds, seed)
    kernel, (soft, mixed) = gaussian_kernel(sigma * scale), np.empty((2, height, width, 3), np.uint8)

    def change(frame: Image, target: Image) -> None:
        separable_filter(frame, kernel, soft)
        gather_pixels(soft.reshape(-1, 3), order.reshape(-1), mixed.reshape(-1, 3))
        separable_filter(mixed, kernel, target)

    return map_frames(frames, change)


def gaussian_kernel(sigma: float) -> Layer:
    """Return the weights of a Gaussian out to four sigma."""
    radius = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-6)) ** 2)
    return np.asarray(weights / weights.sum(), np.float32)


def separable_filter(frame: Image, kernel: Layer, target: Image) -> None:
    """Write the frame filtered by one kernel along both axes; edges repeat."""
    cv2.sepFilter2D(frame, cv2.CV_8U, kernel, kernel, dst=target, borderType=cv2.BORDER_REPLICATE)


def motion_kernel(streak: tuple[float, float], scale: float, angle: float) -> tuple[Integers, Layer]:
    """Return the (row, column) shifts of a streak and their weights, in a multiple of four."""
    radius, sigma = round(streak[0] * scale), max(streak[1] * scale, 1e-6)
    steps = np.arange(2 * radius + 1)
    direction = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    shifts = np.stack([np.ceil(steps * part - 0.5) for part in direction], axis=1).astype(np.int64)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    missing = -len(steps) % 4
    weights = np.pad(weights / weights.sum(), (0, missing)).astype(np.float32)
    return np.pad(shifts, ((0, missing), (0, 0))), weights


def zoom_coordinates(length: int, zooms: Floats) -> Layer:
    """Return where each zoomed copy reads each pixel of an axis, (copies, length)."""
    inner = np.ceil(length / zooms)[:, None]
    step = (inner - 1) / np.maximum(np.rint(inner * zooms[:, None]) - 1, 1)
    places = (length - inner) // 2 + np.minimum(np.arange(length) * step, inner - 1)
    return np.asarray(places, np.float32)
