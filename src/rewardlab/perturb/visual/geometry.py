"""Geometry: where in the picture things appear, and what stands in front of them."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Spec, on_frames
from rewardlab.perturb.visual.canvas import canvas_shape, each, fit, scale_of
from rewardlab.perturb.visual.compiled_pixel_ops import Layer

_WAVE_SIGMA, _WAVE_STEP = 0.01, 0.005  # smoothness and size of the waves, in parts of the frame
_GUARD = "the instruction has no left or right, or the tilt stays within 45 degrees; it always does here"
_ASPECTS = (1.0, 2.0, 0.5)  # shapes a patch may have, relative to the frame
_VISIBLE_CHANGE = 8.0  # levels of 255; less is taken for noise of the video
_PATCH = "share of the picture; kept off where the last tenth of the clip differs most from its first frame"


@on_frames(Spec("visual", "size of the waves", (12.5, 16.25, 21.25, 30.0), "ImageNet-C elastic", "per_clip"))
def elastic(frames: Frames, size: float, rng: Generator) -> Frames:
    """The picture is warped as through old window glass, the same way in every frame."""
    height, width = frames.shape[1:3]
    canvas = canvas_shape(frames)
    across, down = (fit(wave(canvas, rng), frames) * (size * scale_of(frames)) for _ in range(2))
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    places, parts = cv2.convertMaps(x + across, y + down, cv2.CV_16SC2)
    return each(
        frames,
        lambda frame, target: cv2.remap(
            frame, places, parts, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT
        ),
    )


@on_frames(
    Spec("visual", f"degrees; keeps the label if {_GUARD}", (2, 5, 10, 20), "ImageNet-P tilt", "per_clip", "keeps_if")
)
def tilt(frames: Frames, degrees: float, rng: Generator) -> Frames:
    """The camera is mounted at a slant, to one side for the whole clip."""
    height, width = frames.shape[1:3]
    side = 1 if rng.random() < 0.5 else -1
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), side * degrees, 1.0)
    return each(
        frames,
        lambda frame, target: cv2.warpAffine(
            frame, turn, (width, height), dst=target, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
        ),
    )


@on_frames(Spec("visual", _PATCH, (0.05, 0.10, 0.20, 0.35), "occluders of COLOSSEUM", "per_clip", "keeps_if"))
def occlusion_patch(frames: Frames, share: float, rng: Generator) -> Frames:
    """Something flat hangs before the lens and hides a part of the picture, away from where the task is done."""
    pick, colour = rng.random(), rng.integers(0, 256, 3, dtype=np.uint8)
    goal = goal_region(frames)
    free = np.concatenate([free_boxes(goal, size) for size in patch_sizes(goal.shape, share)])
    if not len(free):
        raise NotApplicable(f"every patch of {share:.0%} of the picture hides a part that changed by the last frames")
    top, left, bottom, right = free[int(pick * len(free))]
    out = frames.copy()
    out[:, top:bottom, left:right] = colour
    return out


def wave(canvas: tuple[int, int], rng: Generator) -> Layer:
    """Return a smooth field of displacements on the canvas, in canvas pixels at size 1."""
    height, width = canvas
    field = rng.uniform(-_WAVE_STEP * height, _WAVE_STEP * height, canvas)
    sigmas = _WAVE_SIGMA * width, _WAVE_SIGMA * height
    size = tuple(2 * int(3 * sigma + 0.5) + 1 for sigma in sigmas)
    smooth = cv2.GaussianBlur(field, size, sigmaX=sigmas[0], sigmaY=sigmas[1], borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32)


def goal_region(frames: Frames) -> NDArray[np.uint8]:
    """Return 1 where the last tenth of the clip differs most from the first frame: a stand-in for the goal, (H, W)."""
    last = frames[-max(1, round(len(frames) / 10)) :]
    grain = max(1, frames.shape[2] // 32), max(1, frames.shape[1] // 32)  # (width, height), as OpenCV wants it
    change = cv2.blur(np.abs(last.mean(axis=0) - frames[0]).mean(axis=2), grain)
    if change.max() < _VISIBLE_CHANGE:
        raise NotApplicable("the last frames look like the first, so nothing tells where the goal is")
    changed = np.asarray(change >= change.max() / 2, np.uint8)
    return np.asarray(cv2.dilate(changed, np.ones(grain[::-1], np.uint8)))


def patch_sizes(shape: tuple[int, ...], share: float) -> list[tuple[int, int]]:
    """Return the (height, width) of the patches that hide this share of an (H, W) picture."""
    sides = [(share * aspect) ** 0.5 for aspect in _ASPECTS]
    return [(max(1, round(shape[0] * side)), max(1, round(shape[1] * share / side))) for side in sides]


def free_boxes(goal: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the (top, left, bottom, right) of every box of this size that hides nothing of the goal."""
    height, width = size
    sums = cv2.integral(goal)
    hidden = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    corners = np.argwhere(hidden == 0)
    return np.concatenate([corners, corners + size], axis=1)
