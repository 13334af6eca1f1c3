"""Frames as H.264 in an mp4 file or in memory, the same bytes for the same frames."""

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av.container import OutputContainer
from av.video.frame import PictureType
from av.video.stream import VideoStream
from numpy.typing import NDArray

from rewardlab.core.episode import Frames

Seconds = NDArray[np.float64]

# With its look-ahead and B-frames x264 was seen to give other bytes for the same frames; without, it repeats itself.
REPEATABLE = "threads=1:bframes=0:rc-lookahead=0:mbtree=0:weightp=0"
_TICK = Fraction(1, 90_000)  # seconds; in which the times of frames that do not come evenly are stored


def encode(frames: Frames, target: Path | BinaryIO, fps: float, *, crf: int = 18, times: Seconds | None = None) -> None:
    """Write frames as H.264 in an mp4, evenly at a whole rate or at their times; odd sizes gain a row or column."""
    encode_pieces((frames,), target, fps, crf=crf, times=times)


def encode_pieces(
    pieces: Iterable[Frames],
    target: Path | BinaryIO,
    fps: float,
    *,
    crf: int = 18,
    times: Seconds | None = None,
    key_frames: Collection[int] = (),
) -> None:
    """Write frames that come in pieces, all of one size, as one video; decoding can begin at the key frames."""
    # The file is opened here: libav would take a folder called `http:` for an address.
    opened = target.open("wb") if isinstance(target, Path) else nullcontext(target)
    with opened as file, av.open(file, "w", format="mp4") as container:
        stream = None
        for index, pixels in enumerate(pixels for piece in pieces for pixels in piece):
            if stream is None:
                stream = _stream(container, pixels, fps, crf, in_ticks=times is not None)
            below, right = pixels.shape[0] % 2, pixels.shape[1] % 2
            even = np.pad(pixels, ((0, below), (0, right), (0, 0)), mode="edge") if below or right else pixels
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = round(float(times[index]) / float(_TICK)), _TICK
            if index in key_frames:
                frame.pict_type = PictureType.I
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())


def _stream(container: OutputContainer, pixels: Frames, fps: float, crf: int, *, in_ticks: bool) -> VideoStream:
    stream = container.add_stream("libx264", rate=round(fps) or 1)
    stream.height, stream.width = (side + side % 2 for side in pixels.shape[:2])
    stream.pix_fmt = "yuv420p"
    stream.options = {"crf": str(crf), "preset": "veryfast", "forced-idr": "1", "x264-params": REPEATABLE}
    stream.thread_count = 1
    if in_ticks:
        stream.codec_context.time_base = _TICK
    return stream


def encode_bytes(frames: Frames, fps: float, *, crf: int = 28) -> bytes:
    """Return frames as the bytes of an mp4 file."""
    buffer = BytesIO()
    encode(frames, buffer, fps, crf=crf)
    return buffer.getvalue()
