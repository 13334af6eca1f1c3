"""Another camera or lens: moved, cropped, bent, tilted, wavy."""

from functools import partial

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import on_frames
from rewardlab.perturbations.guards import goal_region
from rewardlab.perturbations.visual.pixel_ops import Image, Layer, layer_shape, map_frames, pixel_scale, resize_layer

SamplingGrid = NDArray[np.float32]  # (H, W, 2): the x and y in the old picture that each pixel of the new one shows
_MIN_GOAL_IN_VIEW = 0.8  # fraction of the guessed goal region that must be seen

_view = partial(on_frames, "visual", label="keeps_if")


@_view(
    parameter="rotation in degrees and zoom",
    table=((2, 1.05), (5, 1.15), (10, 1.3), (15, 1.5)),
    based_on="LIBERO-plus and COLOSSEUM cameras",
    randomness="per_clip",
)
def camera_move(frames: Frames, pose: tuple[float, float], rng: Generator) -> Frames:
    """Somebody moved the camera and aimed it at the work again: turned, tilted and from closer, for the whole clip."""
    degrees, zoom = pose
    axis = rng.uniform(-1, 1, 3)
    angles = np.radians(degrees) * axis / np.abs(axis).max()
    goal = goal_region(frames)
    return _resampled(frames, goal, _rotated_view(goal, angles, zoom))


@_view(parameter="fraction of the field of view", table=(0.9, 0.8, 0.7, 0.6), based_on="sensor swap")
def lens_crop(frames: Frames, fraction: float, _rng: Generator) -> Frames:
    """The camera has a longer lens: it sees only the part of the scene around the work."""
    goal = goal_region(frames)
    return _resampled(frames, goal, _rotated_view(goal, np.zeros(3), 1 / fraction))


@_view(parameter="radial coefficient k1", table=(-0.05, -0.1, -0.2, -0.4), based_on="sensor swap")
def lens_barrel(frames: Frames, k1: float, _rng: Generator) -> Frames:
    """The camera has a cheap wide lens: straight lines bulge outwards."""
    height, width = frames.shape[1:3]
    rays = _rays(height, width)
    radius = np.hypot(rays[..., 0], rays[..., 1])
    true = np.linspace(0, float(radius.max()), 1024)
    seen = true * (1 + k1 * true**2)
    seen *= true[-1] / max(seen[-1], 1e-9)  # enlarged, so that the corners stay filled
    stretch = np.interp(radius, seen, true) / np.maximum(radius, 1e-9)
    return _resampled(frames, goal_region(frames), _grid(rays[..., :2] * stretch[..., None], height, width))


def _rays(height: int, width: int) -> NDArray[np.float64]:
    """Return the direction (x, y, 1) of each pixel for a focal length of the longer side."""
    focal = max(height, width)
    y, x = np.mgrid[:height, :width]
    return np.stack([(x - (width - 1) / 2) / focal, (y - (height - 1) / 2) / focal, np.ones((height, width))], axis=-1)


def _grid(points: NDArray[np.float64], height: int, width: int) -> SamplingGrid:
    return (points * max(height, width) + ((width - 1) / 2, (height - 1) / 2)).astype(np.float32)


def _rotated_view(goal: NDArray[np.bool_], angles: NDArray[np.float64], zoom: float) -> SamplingGrid:
    """Return the view of a camera turned by pitch, yaw and roll that sees the goal where it was, from closer."""
    height, width = goal.shape
    rotation, _ = cv2.Rodrigues(angles)
    old = _rays(height, width)
    rays = old @ rotation.T
    points = rays[..., :2] / rays[..., 2:]
    y, x = np.round(np.argwhere(goal).mean(axis=0)).astype(np.int64)
    return _grid(old[y, x, :2] + (points - points[y, x]) / zoom, height, width)


def _resampled(frames: Frames, goal: NDArray[np.bool_], grid: SamplingGrid) -> Frames:
    """Return the frames sampled at the grid; not applicable where the goal leaves the picture."""
    height, width = goal.shape
    x, y = np.round(grid).astype(np.int64).transpose(2, 0, 1)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    shown = np.zeros((height, width), np.uint8)  # 1 where the new picture shows a pixel of the old one
    shown[y[inside], x[inside]] = 1
    shown = np.asarray(cv2.dilate(shown, np.ones((3, 3), np.uint8)))  # close the gaps where the view shrinks
    kept = (shown > 0)[goal].mean()
    if kept < _MIN_GOAL_IN_VIEW:
        raise NotApplicable(
            f"only {kept:.0%} of the guessed goal region stays in view, {_MIN_GOAL_IN_VIEW:.0%} are needed"
        )
    maps = cv2.convertMaps(grid, None, cv2.CV_16SC2)
    resampled = [cv2.remap(f, *maps, interpolation=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE) for f in frames]
    return np.stack(resampled)


# Geometric distortions: where in the picture the scene appears.

_WAVE_SIGMA, _WAVE_STEP = 0.01, 0.005  # smoothness and size of the waves, as fractions of the frame


@on_frames(
    "visual",
    parameter="size of the waves",
    table=(12.5, 16.25, 21.25, 30.0),
    based_on="ImageNet-C elastic",
    randomness="per_clip",
)
def elastic(frames: Frames, size: float, rng: Generator) -> Frames:
    """The picture is warped as through old window glass, the same way in every frame."""
    height, width = frames.shape[1:3]
    waves = [_displacement_field(layer_shape(frames), rng) for _ in range(2)]
    across, down = (resize_layer(wave, frames) * (size * pixel_scale(frames)) for wave in waves)
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    maps = cv2.convertMaps(x + across, y + down, cv2.CV_16SC2)

    def warp(frame: Image, target: Image) -> None:
        cv2.remap(frame, *maps, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT)

    return map_frames(frames, warp)


@_view(
    parameter="degrees; the label holds, because left stays left and right stays right up to 45 degrees",
    table=(2, 5, 10, 20),
    based_on="ImageNet-P tilt",
    randomness="per_clip",
)
def tilt(frames: Frames, degrees: float, rng: Generator) -> Frames:
    """The camera is mounted at a slant, to one side for the whole clip."""
    height, width = frames.shape[1:3]
    sign = 1 if rng.random() < 0.5 else -1
    rotation = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), sign * degrees, 1.0)
    rotate = partial(cv2.warpAffine, M=rotation, dsize=(width, height), borderMode=cv2.BORDER_REFLECT)
    return map_frames(frames, lambda frame, target: rotate(frame, dst=target, flags=cv2.INTER_LINEAR))


def _displacement_field(shape: tuple[int, int], rng: Generator) -> Layer:
    """Return a smooth field (H, W) of displacements in pixels at the reference resolution, at size 1."""
    height, width = shape
    field = rng.uniform(-_WAVE_STEP * height, _WAVE_STEP * height, shape)
    sigmas = _WAVE_SIGMA * width, _WAVE_SIGMA * height
    size = tuple(2 * int(3 * sigma + 0.5) + 1 for sigma in sigmas)
    smooth = cv2.GaussianBlur(field, size, sigmaX=sigmas[0], sigmaY=sigmas[1], borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32)
