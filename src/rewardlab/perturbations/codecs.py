"""Video codecs in memory: frames to packets and back, also when some of the bytes are lost."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import av
import cv2
import numpy as np
from av.error import FFmpegError
from av.video.reformatter import VideoReformatter

from rewardlab.core.episode import Frames
from rewardlab.core.video_encoding import REPEATABLE

# Pixels; encoders refuse smaller frames, or crash (libx265 under 64), so these are padded and cropped again.
_MIN_SIDES = {"libx264": 32, "libx265": 64}
_RATE = 10  # frames per second; only the encoder's rate control sees it


@dataclass(frozen=True)
class Codec:
    """An encoder, the decoder that reads it, and the encoder's options; both run in one thread, so bytes repeat."""

    encoder: str
    decoder: str
    options: dict[str, str]


@dataclass(frozen=True)
class Packet:
    """The coded bytes (Annex B) of one frame, or of a part of it, and the index of that frame in the clip."""

    frame: int
    data: bytes


def h264(crf: int, *settings: str) -> Codec:
    """Return H.264 at a constant rate factor; `settings` are more x264 parameters, such as `keyint=12`."""
    options = {"crf": str(crf), "preset": "veryfast", "x264-params": ":".join((REPEATABLE, *settings))}
    return Codec("libx264", "h264", options)


def h265(crf: int) -> Codec:
    """Return H.265 at a constant rate factor."""
    quiet = "log-level=none:pools=none:frame-threads=1"
    return Codec("libx265", "hevc", {"crf": str(crf), "preset": "ultrafast", "x265-params": quiet})


def encode(frames: Frames, codec: Codec) -> list[Packet]:
    """Return one packet per frame, in coding order."""
    context = _context(codec.encoder, "w", codec.options)
    height, width = frames.shape[1:3]
    least = _MIN_SIDES[codec.encoder]
    context.height, context.width = (max(least, side + side % 2) for side in (height, width))
    context.pix_fmt = "yuv420p"
    context.framerate, context.time_base = Fraction(_RATE), Fraction(1, _RATE)
    below, right = context.height - height, context.width - width
    packets = []
    for index, pixels in enumerate(frames):
        if below or right:
            pixels = cv2.copyMakeBorder(pixels, 0, below, 0, right, cv2.BORDER_REPLICATE)
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        frame.pts = index
        packets += context.encode(frame)
    packets += context.encode(None)
    return [Packet(packet.pts or 0, bytes(packet)) for packet in packets]


def decode(packets: Sequence[Packet], codec: Codec, shape: tuple[int, ...]) -> Frames:
    """Return frames of this shape; where a frame is missing, the one before stands still, as in any player."""
    count, height, width = shape[:3]
    frames = np.zeros((count, height, width, 3), np.uint8)
    shown = np.zeros(count, bool)
    converter = VideoReformatter()  # one for all frames: to set one up takes longer than to convert a small frame
    for frame in _decoded(packets, codec):
        if frame.pts is not None and 0 <= frame.pts < count:
            frames[frame.pts] = converter.reformat(frame, format="rgb24").to_ndarray()[:height, :width]
            shown[frame.pts] = True
    latest = np.maximum.accumulate(np.where(shown, np.arange(count), 0))
    return frames if shown.all() else frames[latest]


def transcode(frames: Frames, codec: Codec) -> Frames:
    """Return the frames as they look after this codec."""
    return decode(encode(frames, codec), codec, frames.shape)


def psnr(one: Frames, other: Frames) -> float:
    """Return the peak signal-to-noise ratio of two pictures in decibels; infinite where they are equal."""
    error = np.mean(np.square(one.astype(np.float32) - other.astype(np.float32)))
    return float(10 * np.log10(255**2 / error)) if error > 0 else float("inf")


def _context(name: str, mode: Literal["r", "w"], options: dict[str, str]) -> av.VideoCodecContext:
    context = av.CodecContext.create(name, mode)
    assert isinstance(context, av.VideoCodecContext)
    context.thread_count = 1
    context.options = options
    return context


def _decoded(packets: Sequence[Packet], codec: Codec) -> Iterator[av.VideoFrame]:
    """Yield the frames of the packets; a packet damaged beyond reading yields none."""
    context = _context(codec.decoder, "r", {"flags": "+output_corrupt", "ec": "guess_mvs+deblock"})
    for packet in (*packets, None):  # None flushes the decoder
        coded = None
        if packet is not None:
            if not packet.data:  # an empty packet would end the stream
                continue
            coded = av.Packet(packet.data)
            coded.pts = packet.frame
        with suppress(FFmpegError):
            yield from context.decode(coded)
