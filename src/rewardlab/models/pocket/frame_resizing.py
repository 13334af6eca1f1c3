"""Frame resizing: pocket's image encoder takes square frames of one size."""

import cv2
import numpy as np

from rewardlab.core.episode import Frames

# Pixels made in one call; OpenCV cuts more among threads of its own, and callers on several cores would wait for those.
_JOINED_PIXELS = 1 << 16


def resize_frames(frames: list[Frames], size: int) -> Frames:
    """Return frames as squares of this side; larger ones of one shape are made small several in a call, as one image.

    Every call lets other threads run Python, and waits until they let this one go on.
    """
    if len({frame.shape for frame in frames}) > 1 or min(frames[0].shape[:2]) < size:
        return np.stack([_resized(frame, size) for frame in frames])
    some = max(1, _JOINED_PIXELS // size**2)
    shrunk = [_shrunk(frames[start : start + some], size) for start in range(0, len(frames), some)]
    return np.concatenate(shrunk).reshape(len(frames), size, size, 3)


def _shrunk(frames: list[Frames], size: int) -> Frames:
    """Return frames one below the other; no pixel is a mean over two of them."""
    tall = (size, size * len(frames))
    return np.asarray(cv2.resize(np.concatenate(frames), tall, interpolation=cv2.INTER_AREA))


def _resized(frame: Frames, size: int) -> Frames:
    if frame.shape[:2] == (size, size):
        return frame
    smaller = frame.shape[0] > size or frame.shape[1] > size
    return np.asarray(cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR))
