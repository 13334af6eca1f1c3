"""Another camera or lens: moved, cropped, bent, tilted, wavy."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode, on_frames
from rewardlab.perturbations.guards import goal_region
from rewardlab.perturbations.visual.pixel_ops import Image, Layer, layer_shape, map_frames, pixel_scale, resize_layer

SamplingGrid = NDArray[np.float32]  # (H, W, 2): the x and y in the old picture that each pixel of the new one shows
_MIN_GOAL_IN_VIEW = 0.8  # fraction of the guessed goal region that must be seen


@on_episode(
    "visual",
    channel="frames",
    parameter="rotation in degrees and zoom",
    table=((2, 1.05), (5, 1.15), (10, 1.3), (15, 1.5)),
    based_on="LIBERO-plus and COLOSSEUM cameras",
    randomness="per_clip",
    label="keeps_if",
)
def camera_move(episode: Episode, pose: tuple[float, float], rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somebody moved the camera and aimed it at the work again: turned, tilted and from closer, for the whole clip."""
    degrees, zoom = pose
    axis = rng.uniform(-1, 1, 3)
    angles = np.radians(degrees) * axis / np.abs(axis).max()
    frames = episode.frames
    goal = goal_region(frames)
    return _resampled(episode, frames, goal, _rotated_view(goal, angles, zoom))


@on_episode(
    "visual",
    channel="frames",
    parameter="fraction of the field of view",
    table=(0.9, 0.8, 0.7, 0.6),
    based_on="sensor swap",
    label="keeps_if",
)
def lens_crop(episode: Episode, fraction: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The camera has a longer lens: it sees only the part of the scene around the work."""
    frames = episode.frames
    goal = goal_region(frames)
    return _resampled(episode, frames, goal, _rotated_view(goal, np.zeros(3), 1 / fraction))


@on_episode(
    "visual",
    channel="frames",
    parameter="radial coefficient k1",
    table=(-0.05, -0.1, -0.2, -0.4),
    based_on="sensor swap",
    label="keeps_if",
)
def lens_barrel(episode: Episode, k1: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The camera has a cheap wide lens: straight lines bulge outwards."""
    frames = episode.frames
    height, width = frames.shape[1:3]
    rays = _rays(height, width)
    radius = np.hypot(rays[..., 0], rays[..., 1])
    true = np.linspace(0, float(radius.max()), 1024)
    seen = true * (1 + k1 * true**2)
    seen *= true[-1] / max(seen[-1], 1e-9)  # enlarged, so that the corners stay filled
    stretch = np.interp(radius, seen, true) / np.maximum(radius, 1e-9)
    return _resampled(episode, frames, goal_region(frames), _grid(rays[..., :2] * stretch[..., None], height, width))


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


def _resampled(episode: Episode, frames: Frames, goal: NDArray[np.bool_], grid: SamplingGrid) -> PerturbedEpisode:
    """Return the episode sampled at the grid; not applicable where the goal leaves the picture."""
    kept = _pixels_in_view(grid)[goal].mean()
    if kept < _MIN_GOAL_IN_VIEW:
        raise NotApplicable(
            f"only {kept:.0%} of the guessed goal region stays in view, {_MIN_GOAL_IN_VIEW:.0%} are needed"
        )
    maps = cv2.convertMaps(grid, None, cv2.CV_16SC2)
    resampled = [cv2.remap(f, *maps, interpolation=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE) for f in frames]
    return PerturbedEpisode(with_frames(episode, np.stack(resampled)), "same")


def _pixels_in_view(grid: SamplingGrid) -> NDArray[np.bool_]:
    """Tell which pixels of the old picture the new one shows."""
    height, width = grid.shape[:2]
    x, y = np.round(grid).astype(np.int64).transpose(2, 0, 1)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    shown = np.zeros((height, width), np.uint8)
    shown[y[inside], x[inside]] = 1
    return np.asarray(cv2.dilate(shown, np.ones((3, 3), np.uint8))) > 0  # close the gaps where the view shrinks


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
    waves = [displacement_field(layer_shape(frames), rng) for _ in range(2)]
    across, down = (resize_layer(wave, frames) * (size * pixel_scale(frames)) for wave in waves)
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    maps = cv2.convertMaps(x + across, y + down, cv2.CV_16SC2)

    def warp(frame: Image, target: Image) -> None:
        cv2.remap(frame, *maps, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT)

    return map_frames(frames, warp)


@on_frames(
    "visual",
    parameter="degrees; the label holds, because left stays left and right stays right up to 45 degrees",
    table=(2, 5, 10, 20),
    based_on="ImageNet-P tilt",
    randomness="per_clip",
    label="keeps_if",
)
def tilt(frames: Frames, degrees: float, rng: Generator) -> Frames:
    """The camera is mounted at a slant, to one side for the whole clip."""
    height, width = frames.shape[1:3]
    sign = 1 if rng.random() < 0.5 else -1
    rotation = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), sign * degrees, 1.0)

    def rotate(frame: Image, target: Image) -> None:
        cv2.warpAffine(
            frame, rotation, (width, height), dst=target, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
        )

    return map_frames(frames, rotate)


def displacement_field(shape: tuple[int, int], rng: Generator) -> Layer:
    """Return a smooth field (H, W) of displacements in pixels at the reference resolution, at size 1."""
    height, width = shape
    field = rng.uniform(-_WAVE_STEP * height, _WAVE_STEP * height, shape)
    sigmas = _WAVE_SIGMA * width, _WAVE_SIGMA * height
    size = tuple(2 * int(3 * sigma + 0.5) + 1 for sigma in sigmas)
    smooth = cv2.GaussianBlur(field, size, sigmaX=sigmas[0], sigmaY=sigmas[1], borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32)
