"""The frames that pocket holds in mind: sixteen, whatever the clip."""

import numpy as np
from numpy.typing import NDArray

SHOWN = 16


def padded(count: int) -> NDArray[np.int64]:
    """Return 16 places among `count` frames; after its own a short clip goes on with its last."""
    return np.minimum(np.arange(SHOWN), count - 1)
