"""Videos that are not what they seem: an mp4 with its header edited, and files of other kinds under its name."""

import struct
from io import BytesIO
from pathlib import Path

import av
import cv2
import numpy as np

from rewardlab.core.video_encoding import encode_bytes
from tests.conftest import moving_square

UPRIGHT = (1, 0, 0, 1)
EMPTY_PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{}\n#EXT-X-ENDLIST\n"


def small_mp4(count: int = 20, size: int = 48) -> bytes:
    """A sound clip of a moving square."""
    return encode_bytes(moving_square("x", count=count, size=size), 10)


def with_field(data: bytes, box: bytes, offset: int, *numbers: int) -> bytes:
    """Return the file with 32-bit numbers written so many bytes after the four letters of a box."""
    edited = bytearray(data)
    struct.pack_into(f">{len(numbers)}I", edited, edited.index(box) + offset, *numbers)
    return bytes(edited)


def with_display_matrix(data: bytes, a: float, b: float, c: float, d: float) -> bytes:
    """Return the mp4 whose track header says how to turn the picture."""
    numbers = [round(part * 65536) % 2**32 for part in (a, b, 0, c, d)]
    return with_field(data, b"tkhd", 44, *numbers)


def with_promised_frames(data: bytes, count: int) -> bytes:
    """Return the mp4 whose tables promise so many frames of one byte."""
    edited = with_field(data, b"stsz", 8, 1, count)
    return with_field(with_field(edited, b"stts", 12, count), b"stsc", 16, count)


def media_bytes(data: bytes) -> tuple[int, int]:
    """Return where the coded frames begin and end."""
    start = data.index(b"mdat") + 4
    return start, start - 8 + int.from_bytes(data[start - 8 : start - 4], "big")


def black_video(path: Path, count: int, width: int, height: int) -> None:
    """Write many large frames in few bytes."""
    black = av.VideoFrame(width, height, "yuv420p")
    for plane in black.planes:
        plane.update(bytes(plane.buffer_size))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "50"}
        for index in range(count):
            black.pts = index
            container.mux(stream.encode(black))
        container.mux(stream.encode())


def two_sizes() -> bytes:
    """An AVI of JPEG pictures whose size changes in the middle."""
    small, large = (picture(".jpg", side) for side in (48, 96))
    buffer = BytesIO()
    with av.open(buffer, "w", format="avi") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width = stream.height = 48
        stream.pix_fmt = "yuvj420p"
        (first,) = stream.encode(av.VideoFrame(48, 48, "yuvj420p"))
        container.mux(first)
        for index in range(1, 6):
            packet = av.Packet(small if index < 3 else large)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, index, index, first.time_base
            container.mux(packet)
    return buffer.getvalue()


def sound_only() -> bytes:
    """An mp4 without a picture."""
    buffer = BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        for index in range(4):
            frame.pts = 1024 * index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()


def picture(extension: str, side: int = 48) -> bytes:
    """A picture in the format of an extension."""
    _, data = cv2.imencode(extension, np.zeros((side, side, 3), np.uint8))
    return bytes(data.tobytes())


def gif_bomb() -> bytes:
    """A GIF of a few bytes with a canvas of 65,535 x 65,535 pixels."""
    screen = struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0) + bytes(6)
    image = b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\x02\x02\x4c\x01\x00"
    return b"GIF89a" + screen + image + b";"
