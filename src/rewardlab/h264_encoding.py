"""Frames as H.264 in an mp4 file or in memory, the same bytes for the same frames."""

from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np

from rewardlab.core.episode import Frames

# With its look-ahead and B-frames x264 was seen to give other bytes for the same frames; without, it repeats itself.
REPEATABLE = "threads=1:bframes=0:rc-lookahead=0:mbtree=0:weightp=0"


def encode(frames: Frames, target: Path | BinaryIO, fps: float, *, crf: int = 18) -> None:
    """Write frames as H.264 in an mp4; odd sizes gain one repeated row or column, as the codec demands."""
    frames = np.pad(frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge")
    file = str(target) if isinstance(target, Path) else target
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=round(fps) or 1)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(crf), "preset": "veryfast", "x264-params": REPEATABLE}
        stream.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def encode_bytes(frames: Frames, fps: float, *, crf: int = 28) -> bytes:
    """Return frames as the bytes of an mp4 file."""
    buffer = BytesIO()
    encode(frames, buffer, fps, crf=crf)
    return buffer.getvalue()
