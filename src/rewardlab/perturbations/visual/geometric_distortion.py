"""Geometric distortions: where in the picture the scene appears."""

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import Spec, on_frames
from rewardlab.perturbations.visual.compiled_pixel_ops import Image, Layer, map_frames
from rewardlab.perturbations.visual.reference_resolution import layer_shape, pixel_scale, resize_layer

_WAVE_SIGMA, _WAVE_STEP = 0.01, 0.005  # smoothness and size of the waves, as fractions of the frame
_TILT = "degrees; the label holds, because left stays left and right stays right up to 45 degrees"


@on_frames(Spec("visual", "size of the waves", (12.5, 16.25, 21.25, 30.0), "ImageNet-C elastic", "per_clip"))
def elastic(frames: Frames, size: float, rng: Generator) -> Frames:
    """The picture is warped as through old window glass, the same way in every frame."""
    height, width = frames.shape[1:3]
    waves = [displacement_field(layer_shape(frames), rng) for _ in range(2)]
    across, down = (resize_layer(wave, frames) * (size * pixel_scale(frames)) for wave in waves)
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    maps = cv2.convertMaps(x + across, y + down, cv2.CV_16SC2)

    def warp(frame: Image, target: Image) -> None:
        cv2.remap(frame, *maps, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT)

    return map_frames(frames, warp)


@on_frames(Spec("visual", _TILT, (2, 5, 10, 20), "ImageNet-P tilt", "per_clip", "keeps_if"))
def tilt(frames: Frames, degrees: float, rng: Generator) -> Frames:
    """The camera is mounted at a slant, to one side for the whole clip."""
    height, width = frames.shape[1:3]
    sign = 1 if rng.random() < 0.5 else -1
    rotation = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), sign * degrees, 1.0)

    def rotate(frame: Image, target: Image) -> None:
        cv2.warpAffine(
            frame, rotation, (width, height), dst=target, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
        )

    return map_frames(frames, rotate)


def displacement_field(shape: tuple[int, int], rng: Generator) -> Layer:
    """Return a smooth field (H, W) of displacements in pixels at the reference resolution, at size 1."""
    height, width = shape
    field = rng.uniform(-_WAVE_STEP * height, _WAVE_STEP * height, shape)
    sigmas = _WAVE_SIGMA * width, _WAVE_SIGMA * height
    size = tuple(2 * int(3 * sigma + 0.5) + 1 for sigma in sigmas)
    smooth = cv2.GaussianBlur(field, size, sigmaX=sigmas[0], sigmaY=sigmas[1], borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32)
