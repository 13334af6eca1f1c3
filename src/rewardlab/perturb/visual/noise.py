"""Visual perturbations: what a camera does to the pixels while the scene stays as it is."""

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturb.contract import Definition, on_frames

_SENSOR = "ImageNet-C, levels 1, 2, 3 and 5"


@on_frames(Definition("visual", "standard deviation", (0.08, 0.12, 0.18, 0.38), _SENSOR, mode="iid"))
def gaussian_noise(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """Read-out noise of the sensor, new in every frame."""
    noise = rng.standard_normal(frames.shape, dtype=np.float32)
    return np.clip(frames + noise * np.float32(255 * sigma), 0, 255).astype(np.uint8)


@on_frames(Definition("visual", "sigma in pixels at 256 px height", (1.0, 2.0, 3.0, 6.0), _SENSOR, mode="static"))
def gaussian_blur(frames: Frames, sigma: float, rng: Generator) -> Frames:
    """The lens is out of focus for the whole clip."""
    scaled = sigma * frames.shape[1] / 256
    return np.stack([cv2.GaussianBlur(frame, (0, 0), scaled) for frame in frames])


@on_frames(Definition("visual", "gain", (0.7, 0.5, 0.3, 0.15), "light change of LIBERO-plus", mode="iid"))
def low_light(frames: Frames, gain: float, rng: Generator) -> Frames:
    """The lamps are dimmed, and the sensor counts fewer photons."""
    photons = 255.0  # at full light; fewer photons mean more noise
    counts = rng.poisson(frames * (gain * photons / 255))
    return np.clip(counts * (255 / photons), 0, 255).astype(np.uint8)
