"""Frame quality of a clip in a few numbers, which a shift of camera, light, lens or link moves."""

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, Indices, show_only

_MOST_FRAMES = 16  # of a clip that are looked at
_SAME = 0.05  # mean absolute difference of grey values under which a frame is the one before it, frozen
_EPSILON = 1e-3

Numbers = NDArray[np.float64]


def episode_quality(episode: Episode) -> dict[str, float]:
    """Return the frame quality of an episode, of which only the frames that are looked at are read."""
    return clip_quality(show_only(episode, _picks(len(episode.clip))).frames)


def clip_quality(frames: Frames) -> dict[str, float]:
    """Return blur, noise, exposure, contrast and saturation of the frames, and how they freeze and jump."""
    shown = [np.ascontiguousarray(frames[index]) for index in _picks(len(frames))]
    greys = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in shown]
    steps = _steps(greys)
    return {
        "sharpness": _mean([np.log(cv2.Laplacian(grey, cv2.CV_64F).var() + _EPSILON) for grey in greys]),
        "noise": _mean([_noise(grey) for grey in greys]),
        "exposure": _mean([grey.mean() for grey in greys]),
        "contrast": _mean([grey.std() for grey in greys]),
        "saturation": _mean([(frame.max(axis=-1) - frame.min(axis=-1)).mean() for frame in shown]),
        "freeze": float((steps < _SAME).mean()) if len(steps) else 0.0,
        "jump": float(steps.max() / (np.median(steps) + 1)) if len(steps) else 0.0,
    }


def _picks(count: int) -> Indices:
    return np.linspace(0, count - 1, min(count, _MOST_FRAMES)).round().astype(np.int64)


def _noise(grey: NDArray[np.uint8]) -> float:
    residual = cv2.absdiff(grey, cv2.medianBlur(grey, 3))
    return float(np.log(residual.mean() + _EPSILON))


def _steps(greys: list[NDArray[np.uint8]]) -> Numbers:
    return np.array([cv2.absdiff(before, after).mean() for before, after in pairwise(greys)])


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
