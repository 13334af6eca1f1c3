"""Lengths and layers at the reference resolution: what is 1 px at 256 px height grows with the height of the frames."""

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.perturbations.visual.compiled_pixel_ops import Layer

IMAGENET_C = "ImageNet-C, levels 1, 2, 3 and 5"
REFERENCE_HEIGHT = 256  # pixels; the frame height for which ImageNet-C gives lengths
_MAX_WIDTH = 2048


def pixel_scale(frames: Frames) -> float:
    """Return how many pixels of these frames one pixel at the reference resolution is."""
    return float(frames.shape[1] / REFERENCE_HEIGHT)


def layer_shape(frames: Frames) -> tuple[int, int]:
    """Return the (height, width) at which layers are drawn: 256 px high, in the shape of the frame."""
    width = round(REFERENCE_HEIGHT * frames.shape[2] / frames.shape[1])
    return REFERENCE_HEIGHT, min(max(width, 1), _MAX_WIDTH)


def resize_layer(layer: Layer, frames: Frames) -> Layer:
    """Return a layer resized to the size of the frames."""
    size = (frames.shape[2], frames.shape[1])
    if layer.shape[:2] == frames.shape[1:3]:
        return layer
    return np.asarray(cv2.resize(layer, size, interpolation=cv2.INTER_LINEAR), np.float32)
