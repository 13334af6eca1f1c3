"""The frames that pocket holds in mind: sixteen, whatever the clip."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SHOWN = 16
Kind = TypeVar("Kind", bound=np.generic)


def filled(frames: NDArray[Kind]) -> NDArray[Kind]:
    """Return the first 16 frames, or whatever stands for frames; after its own a short clip goes on with its last."""
    return frames[np.minimum(np.arange(SHOWN), len(frames) - 1)]
