"""Clip padding: pocket's networks take sixteen frames, whatever the clip."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

CLIP_FRAMES = 16
Scalar = TypeVar("Scalar", bound=np.generic)


def pad_clip(frames: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the first 16 entries; a shorter clip repeats its last one."""
    return frames[np.minimum(np.arange(CLIP_FRAMES), len(frames) - 1)]
