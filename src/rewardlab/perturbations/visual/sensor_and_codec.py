"""Another sensor or recorder: JPEG, pixelation, resolution, mosaic, codec."""

from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.perturbations.codecs import h264, h265, transcode
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode, on_frames
from rewardlab.perturbations.guards import require_no_colour
from rewardlab.perturbations.visual.pixel_ops import IMAGENET_C, Image, Integers, fill_cells, flat_rows, map_frames


@on_episode(
    "visual",
    channel="frames",
    parameter="what the sensor sees",
    table=("6 bits per colour", "Bayer mosaic", "grey", "infrared"),
    randomness="per_clip",
    label="keeps_if",
)
def sensor_swap(episode: Episode, sensor: str, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The camera has another sensor: coarse, then with a colour mosaic, then without colour, then for infrared."""
    if sensor in ("grey", "infrared"):
        require_no_colour(episode.instruction)
    see = _SENSORS[sensor]
    return PerturbedEpisode(with_frames(episode, np.stack([see(frame) for frame in episode.frames])), "same")


@on_frames("visual", parameter="lines out of 256", table=(192, 128, 96, 64), based_on="VLM-RobustBench")
def resolution(frames: Frames, lines: int, _rng: Generator) -> Frames:
    """The camera delivers fewer pixels, and the recorder blows the picture up again."""
    height, width = frames.shape[1:3]
    fewer = (max(1, round(width * lines / 256)), max(1, round(height * lines / 256)))
    return np.stack([_resize(_resize(frame, fewer, cv2.INTER_AREA), (width, height)) for frame in frames])


@on_frames("visual", parameter="fraction of the width", table=(0.9, 0.8, 0.65, 0.5), based_on="VLM-RobustBench")
def aspect_squeeze(frames: Frames, fraction: float, _rng: Generator) -> Frames:
    """The recorder gets the aspect ratio wrong: the scene is squeezed sideways between black bars."""
    height, width = frames.shape[1:3]
    narrow = max(1, round(width * fraction))
    left = (width - narrow) // 2
    result = np.zeros_like(frames)
    for target, frame in zip(result, frames, strict=True):
        target[:, left : left + narrow] = _resize(frame, (narrow, height), cv2.INTER_AREA)
    return result


@on_frames("visual", parameter="rate factor", table=(30, 37, 44, 51), based_on="mini-Kinetics-C", stage="stream")
def codec(frames: Frames, crf: int, _rng: Generator) -> Frames:
    """The recorder saves bytes: the stream goes through H.264 at a low rate."""
    return transcode(frames, h264(crf))


@on_frames("visual", parameter="rate factor", table=(33, 39, 45, 51), based_on="mini-Kinetics-C", stage="stream")
def codec_h265(frames: Frames, crf: int, _rng: Generator) -> Frames:
    """The recorder saves bytes: the stream goes through H.265 at a low rate."""
    return transcode(frames, h265(crf))


def _resize(frame: Frames, size: tuple[int, int], how: int = cv2.INTER_CUBIC) -> Frames:
    return np.asarray(cv2.resize(frame, size, interpolation=how))


def _bayer_mosaic(frame: Frames) -> Frames:
    """Keep one colour per pixel (red, green; green, blue) and guess the others from the neighbours."""
    raw = frame[..., 1].copy()
    raw[::2, ::2] = frame[::2, ::2, 0]
    raw[1::2, 1::2] = frame[1::2, 1::2, 2]
    height, width = raw.shape
    padded = cv2.copyMakeBorder(raw, 4, 4, 4, 4, cv2.BORDER_REFLECT_101)  # even, so the pattern goes on
    return np.asarray(cv2.demosaicing(padded, cv2.COLOR_BayerRGGB2RGB_EA))[4 : 4 + height, 4 : 4 + width]


def _infrared(frame: Frames) -> Frames:
    """Return a night camera's view: red counts most, its own lamp lights the middle, dark cloth looks pale."""
    height, width = frame.shape[:2]
    seen = frame.astype(np.float32) @ np.array([0.75, 0.3, -0.05], np.float32)
    y, x = np.ogrid[:height, :width]
    off = ((x - (width - 1) / 2) / width) ** 2 + ((y - (height - 1) / 2) / height) ** 2
    lamp = (1.15 - 1.1 * off).astype(np.float32)
    pale = (60 + 0.75 * np.clip(seen, 0, 255)) * lamp
    return np.repeat(np.clip(pale, 0, 255).astype(np.uint8)[..., None], 3, axis=-1)


_SENSORS: dict[str, Callable[[Frames], Frames]] = {
    # The upper bits fill the lower ones, so white stays white.
    "6 bits per colour": lambda frame: np.asarray((frame & 0xFC) | (frame >> 6), np.uint8),
    "Bayer mosaic": _bayer_mosaic,
    "grey": lambda frame: np.asarray(cv2.cvtColor(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)),
    "infrared": _infrared,
}

# Digital damage: what compression and a low resolution do to every frame.

_FRACTIONS = (0.6, 0.5, 0.4, 0.25)


@on_frames("visual", parameter="JPEG quality", table=(25, 18, 15, 7), based_on=IMAGENET_C)
def jpeg(frames: Frames, quality: int, _rng: Generator) -> Frames:
    """The link to the camera is narrow, so every frame is sent as a small JPEG."""

    def change(frame: Image, target: Image) -> None:
        _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
        cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=target)

    return map_frames(frames, change)


_fewer_pixels = partial(
    on_frames, "visual", parameter="fraction of the resolution", table=_FRACTIONS, randomness="per_clip"
)


@_fewer_pixels(based_on=IMAGENET_C)
def pixelate(frames: Frames, fraction: float, _rng: Generator) -> Frames:
    """The sensor has fewer, larger pixels, which show as squares."""
    rows, columns = pixel_cells(frames.shape[1], fraction), pixel_cells(frames.shape[2], fraction)
    return map_frames(frames, lambda frame, target: fill_cells(flat_rows(frame), rows, columns, flat_rows(target)))


@_fewer_pixels(based_on="VLM-RobustBench upsample")
def resample(frames: Frames, fraction: float, _rng: Generator) -> Frames:
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
