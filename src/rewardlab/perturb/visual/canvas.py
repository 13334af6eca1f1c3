"""Lengths and layers for frames of any size: what is 1 px at 256 px height grows with the height."""

from collections.abc import Callable

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.perturb.visual.compiled_pixel_ops import Image, Layer

HEIGHT = 256  # the frame height for which the public formulas give lengths
_WIDEST = 2048


def scale_of(frames: Frames) -> float:
    """Return how many pixels one pixel of a 256 px frame is here."""
    return float(frames.shape[1] / HEIGHT)


def canvas_shape(frames: Frames) -> tuple[int, int]:
    """Return the (height, width) at which layers are drawn: 256 px high, in the shape of the frame."""
    width = round(HEIGHT * frames.shape[2] / frames.shape[1])
    return HEIGHT, min(max(width, 1), _WIDEST)


def fit(layer: Layer, frames: Frames) -> Layer:
    """Return a layer drawn on the canvas, enlarged or shrunk to the size of the frames."""
    size = (frames.shape[2], frames.shape[1])
    if layer.shape[:2] == frames.shape[1:3]:
        return layer
    return np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_LINEAR), np.float32)


def each(frames: Frames, change: Callable[[Image, Image], object]) -> Frames:
    """Return new frames, each written by `change(frame, target)`."""
    out = np.empty(frames.shape, np.uint8)
    for frame, target in zip(np.ascontiguousarray(frames), out):
        change(frame, target)
    return out


def flat_rows(frame: Image) -> Image:
    """Return a view of a frame with one row of values per row of pixels."""
    return frame.reshape(frame.shape[0], -1)
