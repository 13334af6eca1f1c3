"""JPEG and PNG images as strangers send them: measured by their header before anything is decoded."""

from collections.abc import Iterable

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_MB, FRAME_PIXELS

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_STANDALONE = {0x01, *range(0xD0, 0xD9)}  # JPEG markers that no length follows
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height as the header states them; DataError where it is no JPEG or PNG, or too large."""
    if data[:8] == _PNG and len(data) >= 24:
        size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data[:2] == _JPEG:
        size = _jpeg_size(data)
    else:
        raise DataError(f"expected a JPEG or PNG image, got bytes that begin with {data[:8].hex(' ') or 'nothing'}")
    if 0 in size:
        raise DataError(f"an image of {size[0]} x {size[1]} pixels; its header is damaged")
    if size[0] * size[1] > FRAME_PIXELS.value:
        raise DataError(f"an image of {size[0]} x {size[1]} pixels, {FRAME_PIXELS.describe()}")
    return size


def decode_images(images: Iterable[bytes], count: int) -> Frames:
    """Return the frames of images that have one size, RGB as they are stored: no orientation tag turns them."""
    frames, decoded = np.empty((0, 0, 0, 3), np.uint8), 0
    for number, data in enumerate(images):
        if number == 0:
            frames = _room(count, *image_size(data))
        frames[number] = _decode(data, number, (frames.shape[2], frames.shape[1]))
        decoded += 1
    if decoded < count:
        raise DataError(f"{decoded} of {count} images are there; the data are damaged, copy them again")
    return frames


def _room(count: int, width: int, height: int) -> Frames:
    if count * width * height * 3 > CLIP_MB.in_bytes:
        size = f"{count:,} frames of {width} x {height} pixels"
        raise DataError(f"{size} do not fit into memory, in MB {CLIP_MB.describe()}")
    return np.empty((count, height, width, 3), np.uint8)


def _decode(data: bytes, number: int, size: tuple[int, int]) -> Frames:
    import cv2  # here: it is slow to load, and many a command reads rows alone

    if image_size(data) != size:
        found = " x ".join(map(str, image_size(data)))
        raise DataError(f"image {number} has {found} pixels, the first {size[0]} x {size[1]}; store them at one size")
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if pixels is None or pixels.shape != (size[1], size[0], 3):
        raise DataError(f"image {number} does not decode; the data are damaged, copy them again")
    rgb: Frames = pixels[..., ::-1]
    return rgb


def _jpeg_size(data: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF or marker in _STANDALONE:
            place += 1 if marker == 0xFF else 2
            continue
        if marker in _START_OF_FRAME:
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    raise DataError("a JPEG image without a frame header; the data are damaged, copy them again")
