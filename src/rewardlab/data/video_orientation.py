"""The orientation of a video: phones record sideways and say in the file how to turn the picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError

if TYPE_CHECKING:
    from av import VideoFrame

_ONE = 1 << 16  # the display matrix has fixed-point numbers


@dataclass(frozen=True)
class Orientation:
    """How a recorded picture is shown: rows and columns swapped, then mirrored in one direction or both."""

    swapped: bool = False
    sideways: bool = False
    upside_down: bool = False

    def turn(self, pixels: Frames) -> Frames:
        """Return a picture (H, W, 3) the way up that it is shown."""
        shown = pixels.swapaxes(0, 1) if self.swapped else pixels
        return shown[:: -1 if self.upside_down else 1, :: -1 if self.sideways else 1]


def read_orientation(frame: "VideoFrame", path: object) -> Orientation:
    """Return what the display matrix says; it is that of the whole video.

    Ask for the first frame only: asking makes a frame refer to itself, so that it stays until Python collects it.
    """
    from av.buffer import Buffer

    matrix = frame.side_data.get("DISPLAYMATRIX")
    if not isinstance(matrix, Buffer):
        return Orientation()
    # A point (x, y) of the picture is shown at (a x + c y, b x + d y).
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].tolist()
    if (abs(a), b, c, abs(d)) == (_ONE, 0, 0, _ONE):
        return Orientation(False, a < 0, d < 0)
    if (a, abs(b), abs(c), d) == (0, _ONE, _ONE, 0):
        return Orientation(True, c < 0, b < 0)
    raise DataError(
        f"{path}: the picture is to be turned by no quarter of a circle or to be stretched; encode it again"
    )
