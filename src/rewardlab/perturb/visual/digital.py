"""Digital damage: what compression and a low resolution do to every frame."""

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Frames
from rewardlab.perturb.contract import Spec, on_frames
from rewardlab.perturb.visual.canvas import each, flat_rows
from rewardlab.perturb.visual.compiled_pixel_ops import Image, Whole, show_cells

_DIGITAL = "ImageNet-C, levels 1, 2, 3 and 5"
_SHARES = (0.6, 0.5, 0.4, 0.25)


@on_frames(Spec("visual", "JPEG quality", (25, 18, 15, 7), _DIGITAL))
def jpeg(frames: Frames, quality: int, rng: Generator) -> Frames:
    """The link to the camera is narrow, so every frame is sent as a small JPEG."""

    def change(frame: Image, target: Image) -> None:
        _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
        cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=target)

    return each(frames, change)


@on_frames(Spec("visual", "share of the resolution", _SHARES, _DIGITAL, "per_clip"))
def pixelate(frames: Frames, share: float, rng: Generator) -> Frames:
    """The sensor has fewer, larger pixels, which show as squares."""
    rows, columns = cells(frames.shape[1], share), cells(frames.shape[2], share)
    return each(frames, lambda frame, target: show_cells(flat_rows(frame), rows, columns, flat_rows(target)))


@on_frames(Spec("visual", "share of the resolution", _SHARES, "VLM-RobustBench upsample", "per_clip"))
def resample(frames: Frames, share: float, rng: Generator) -> Frames:
    """The camera streams at a low resolution, and the picture is smoothly enlarged again."""
    height, width = frames.shape[1:3]
    small = max(1, int(width * share)), max(1, int(height * share))

    def change(frame: Image, target: Image) -> None:
        shrunk = cv2.resize(frame, small, interpolation=cv2.INTER_AREA)
        cv2.resize(shrunk, (width, height), dst=target, interpolation=cv2.INTER_CUBIC)

    return each(frames, change)


def cells(length: int, share: float) -> Whole:
    """Return per larger pixel the start and stop of what it averages, and the start and stop of where it is shown."""
    count = max(1, int(length * share))
    edges = np.arange(count + 1) * (length / count)
    # A pixel belongs to a cell if its centre does; both ends are averaged as Pillow's box filter does.
    averaged, shown = np.floor(edges + 0.5), np.ceil(edges - 0.5)
    return np.stack([averaged[:-1], averaged[1:], shown[:-1], shown[1:]], axis=1).astype(np.int64)
