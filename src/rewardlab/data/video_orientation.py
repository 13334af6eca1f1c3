"""The orientation of a video: phones record sideways and say in the file how to turn the picture."""

from pathlib import Path

import av
import numpy as np
from av.buffer import Buffer

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError

_ONE = 1 << 16  # the display matrix has fixed-point numbers


def upright(frame: av.VideoFrame, path: Path) -> Frames:
    """Return the pixels of a frame (H, W, 3) turned and mirrored as its display matrix says."""
    pixels = frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if not isinstance(matrix, Buffer):
        return pixels
    # A point (x, y) of the picture is shown at (a x + c y, b x + d y).
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
    if (abs(a), b, c, abs(d)) == (_ONE, 0, 0, _ONE):
        return _mirrored(pixels, a < 0, d < 0)
    if (a, abs(b), abs(c), d) == (0, _ONE, _ONE, 0):
        return _mirrored(pixels.swapaxes(0, 1), c < 0, b < 0)
    raise DataError(
        f"{path}: the picture is to be turned by no quarter of a circle or to be stretched; encode it again"
    )


def _mirrored(pixels: Frames, sideways: bool, upside_down: bool) -> Frames:
    return pixels[:: -1 if upside_down else 1, :: -1 if sideways else 1]
