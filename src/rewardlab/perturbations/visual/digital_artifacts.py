"""Digital damage: what compression and a low resolution do to every frame."""

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturbations.contract import Spec, on_frames
from rewardlab.perturbations.visual.compiled_pixel_ops import Image, Integers, fill_cells, flat_rows, map_frames
from rewardlab.perturbations.visual.reference_resolution import IMAGENET_C

_FRACTIONS = (0.6, 0.5, 0.4, 0.25)


@on_frames(Spec("visual", "JPEG quality", (25, 18, 15, 7), IMAGENET_C))
def jpeg(frames: Frames, quality: int, rng: Generator) -> Frames:
    """The link to the camera is narrow, so every frame is sent as a small JPEG."""

    def change(frame: Image, target: Image) -> None:
        _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
        cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=target)

    return map_frames(frames, change)


@on_frames(Spec("visual", "fraction of the resolution", _FRACTIONS, IMAGENET_C, "per_clip"))
def pixelate(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """The sensor has fewer, larger pixels, which show as squares."""
    rows, columns = pixel_cells(frames.shape[1], fraction), pixel_cells(frames.shape[2], fraction)
    return map_frames(frames, lambda frame, target: fill_cells(flat_rows(frame), rows, columns, flat_rows(target)))


@on_frames(Spec("visual", "fraction of the resolution", _FRACTIONS, "VLM-RobustBench upsample", "per_clip"))
def resample(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """The camera streams at a low resolution, and the picture is smoothly enlarged again."""
    height, width = frames.shape[1:3]
    small = max(1, int(width * fraction)), max(1, int(height * fraction))

    def change(frame: Image, target: Image) -> None:
        shrunk = cv2.resize(frame, small, interpolation=cv2.INTER_AREA)
        cv2.resize(shrunk, (width, height), dst=target, interpolation=cv2.INTER_CUBIC)

    return map_frames(frames, change)


def pixel_cells(length: int, fraction: float) -> Integers:
    """Return per larger pixel the start and stop of what it averages, and the start and stop of where it is shown."""
    count = max(1, int(length * fraction))
    edges = np.arange(count + 1) * (length / count)
    # A pixel belongs to a cell if its centre does; both ends are averaged as Pillow's box filter does.
    averaged, shown = np.floor(edges + 0.5), np.ceil(edges - 0.5)
    return np.stack([averaged[:-1], averaged[1:], shown[:-1], shown[1:]], axis=1).astype(np.int64)
