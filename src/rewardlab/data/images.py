"""JPEG and PNG frames: single images, numbered images in folders (a format), images in a Parquet column."""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path, PurePosixPath

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, Indices, Provenance, read_in_order
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB, FRAME_PIXELS
from rewardlab.core.seeding import digest
from rewardlab.data.contract import Contents, Reader, bounded_contents
from rewardlab.data.reading import bounded_text, task_beside
from rewardlab.data.safe_files import (
    IMAGE_SUFFIXES,
    digest_of_file,
    digest_of_shared_file,
    has_video,
    open_regular,
    opened_parquet,
    require_inside,
    require_size,
)
from rewardlab.data.safe_video import DEFAULT_FPS

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"  # how a file begins
_STANDALONE = {0x01, *range(0xD0, 0xD9)}  # JPEG markers that no length follows
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def is_encoded(data: bytes | memoryview) -> bool:
    """Tell whether bytes begin as a JPEG or PNG file does."""
    return bytes(data[:8]).startswith((_JPEG, _PNG))


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height as the header states them; DataError where it is no JPEG or PNG, or too large."""
    if data.startswith(_PNG) and len(data) >= 24:
        size = struct.unpack(">2I", data[16:24])
    elif data.startswith(_JPEG):
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
    for decoded, data in enumerate(images, start=1):
        if decoded == 1:
            width, height = image_size(data)
            if count * width * height * 3 > CLIP_MB.in_bytes:
                size = f"{count:,} frames of {width} x {height} pixels"
                raise DataError(f"{size} do not fit into memory: {CLIP_MB.describe(' MB')}")
            frames = np.empty((count, height, width, 3), np.uint8)
        frames[decoded - 1] = _decode(data, decoded - 1, (frames.shape[2], frames.shape[1]))
    if decoded < count:
        raise DataError(f"{decoded} of {count} images are there; the data are damaged, copy them again")
    return frames


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
            height, width = struct.unpack(">2H", data[place + 5 : place + 9])
            return width, height
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    raise DataError("a JPEG image without a frame header; the data are damaged, copy them again")


# Folders of numbered images, one per frame: the episodes of a dataset of their own, or named by a row.

_NUMBERED = re.compile(r"\d$")
_FEWEST = 2  # one image is a picture


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder as a source of frames, in the order of their numbers."""

    folder: Path
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Return how many frames there are."""
        return len(self.names)

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their files."""
        return digest(*(digest_of_file(self.folder / name) for name in self.names))

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        return read_in_order(indices, self._decode)

    def _decode(self, kept: Indices) -> Frames:
        try:
            return decode_images((self._bytes(self.names[index]) for index in kept), len(kept))
        except DataError as error:
            raise DataError(f"{self.folder}: {error}") from None

    def _bytes(self, name: str) -> bytes:
        most = 8 * FRAME_PIXELS.value
        try:
            with open_regular(self.folder / name) as file:
                data = file.read(most + 1)
        except OSError as error:
            raise DataError(f"{name} cannot be read ({error.strerror}); is the dataset still there?") from error
        if len(data) > most:
            raise DataError(f"{name} has more than {most:,} bytes; store it smaller")
        return data


def image_clip(root: Path, folder: Path, fps: float | None) -> Clip:
    """Return the clip of a folder's images; DataError where there are none, or too many, or one leads elsewhere."""
    names = _frame_names(path.name for path in folder.iterdir())
    if len(names) < _FEWEST:
        raise DataError(f"{folder}: at least {_FEWEST} numbered images are expected, got {len(names)}")
    if len(names) > CLIP_FRAMES.value:
        raise DataError(f"{folder}: {len(names):,} images, {CLIP_FRAMES.describe()}")
    for name in names:
        require_inside(root, folder / name)
    every = np.arange(len(names))
    return Clip(ImageFolder(folder, names), every, every, fps or DEFAULT_FPS)


def recognises(folder: Path) -> bool:
    """Tell whether the folder, or one below it, has numbered images, and none has a video."""
    return next(_frame_folders(folder), None) is not None and not has_video(folder)


def read_folder(folder: Path) -> Contents:
    """Read one episode from every folder of numbered images."""
    places = sorted(_frame_folders(folder))
    return bounded_contents(((place, partial(_episode, folder, place)) for place in places), "folder")


def _episode(folder: Path, place: str) -> Episode:
    name = place if place != "." else folder.resolve().name
    task = task_beside(folder, place) or task_beside(folder, "")
    if not task and place == ".":
        task = task_beside(folder.resolve().parent, folder.resolve().name)
    bounded_text(task)
    parts = PurePosixPath(place).parts
    provenance = Provenance(subset=parts[0] if len(parts) > 1 else "", task=task)
    return Episode(name, task, image_clip(folder, folder / place, None), provenance=provenance)


def _frame_folders(folder: Path) -> Iterator[str]:
    """Yield the folders of numbered images, as seen from the dataset; links to folders are not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(_frame_names(names)) >= _FEWEST:
            yield Path(place).relative_to(folder).as_posix()


def _frame_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of numbered images in the order of their numbers: frame_2 comes before frame_10."""
    images = [name for name in names if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")]

    def by_number(name: str) -> tuple[list[str | int], str]:
        return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)], name

    return tuple(sorted((name for name in images if _NUMBERED.search(Path(name).stem)), key=by_number))


IMAGES = Reader(
    "images",
    "folders of numbered PNG or JPEG frames, one folder per episode; the task is in task.txt or the folder's name",
    "folders of numbered images",
    recognises,
    read_folder,
)


# Frames that are stored as JPEG or PNG bytes in a column of a Parquet file.

_ROWS_AT_ONCE = 1  # a few bytes of a file may stand for a large cell, again and again


@dataclass(frozen=True)
class ParquetImages:
    """So many images of a column from the row `first` on; a cell is bytes, or a struct that has `bytes`."""

    folder: Path
    path: Path
    column: str
    first: int
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their file and their place in it."""
        return digest(digest_of_shared_file(self.path), self.column, self.first, self.count)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        return read_in_order(indices, self._decode)

    def _decode(self, kept: Indices) -> Frames:
        wanted = set((kept + self.first).tolist())
        try:
            cells = takewhile(lambda cell: cell[0] < self.first + self.count, self._cells())
            return decode_images((data for row, data in cells if row in wanted), len(kept))
        except DataError as error:
            raise DataError(f"{self.path}, {self.column} from row {self.first} on: {error}") from None

    def _cells(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and bytes of the cells; row groups before and after them are not read."""
        with opened_parquet(self.folder, self.path) as file:
            if self.column not in file.schema_arrow.names:
                raise DataError("the column is missing; copy the dataset again")
            require_size(self.path, file.metadata, [self.column])
            row = 0
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if row < self.first + self.count and row + size > self.first:
                    batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[number], columns=[self.column])
                    cells = (cell for batch in batches for cell in batch.column(0).to_pylist())
                    yield from enumerate(map(_bytes, cells), start=row)
                row += size


def _bytes(cell: object) -> bytes:
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    return data if isinstance(data, bytes) else b""
