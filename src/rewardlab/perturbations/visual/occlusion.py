"""An occluder before the lens, placed where it hides nothing of the task."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Spec, on_frames

_ASPECTS = (1.0, 2.0, 0.5)  # shapes that a patch may have, relative to the frame
_VISIBLE_CHANGE = 8.0  # levels of 255; less is taken for noise of the video
_AREA = "fraction of the picture; kept off where the last tenth of the clip differs most from its first frame"


@on_frames(Spec("visual", _AREA, (0.05, 0.10, 0.20, 0.35), "occluders of COLOSSEUM", "per_clip", "keeps_if"))
def occlusion_patch(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """Something flat hangs before the lens and hides a part of the picture, away from where the task is done."""
    draw, colour = rng.random(), rng.integers(0, 256, 3, dtype=np.uint8)
    goal = changed_region(frames)
    free = np.concatenate([free_boxes(goal, size) for size in patch_sizes(goal.shape, fraction)])
    if not len(free):
        raise NotApplicable(f"every patch of {fraction:.0%} of the picture hides what changed by the last frames")
    top, left, bottom, right = free[int(draw * len(free))]
    out = frames.copy()
    out[:, top:bottom, left:right] = colour
    return out


def changed_region(frames: Frames) -> NDArray[np.uint8]:
    """Return 1 where the last tenth of the clip differs most from the first frame: a stand-in for the goal, (H, W)."""
    last = frames[-max(1, round(len(frames) / 10)) :]
    grain = max(1, frames.shape[2] // 32), max(1, frames.shape[1] // 32)  # (width, height), as OpenCV wants it
    change = cv2.blur(np.abs(last.mean(axis=0) - frames[0]).mean(axis=2), grain)
    if change.max() < _VISIBLE_CHANGE:
        raise NotApplicable("the last frames look like the first, so nothing tells where the goal is")
    changed = np.asarray(change >= change.max() / 2, np.uint8)
    return np.asarray(cv2.dilate(changed, np.ones(grain[::-1], np.uint8)))


def patch_sizes(shape: tuple[int, ...], fraction: float) -> list[tuple[int, int]]:
    """Return the (height, width) of the patches that hide this fraction of an (H, W) picture."""
    sides = [(fraction * aspect) ** 0.5 for aspect in _ASPECTS]
    return [(max(1, round(shape[0] * side)), max(1, round(shape[1] * fraction / side))) for side in sides]


def free_boxes(goal: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.int64]:
    """Return the (top, left, bottom, right) of every box of this size that hides nothing of the goal."""
    height, width = size
    sums = cv2.integral(goal)
    hidden = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    corners = np.argwhere(hidden == 0)
    return np.concatenate([corners, corners + size], axis=1)
