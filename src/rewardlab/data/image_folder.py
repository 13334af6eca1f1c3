"""Folders of numbered images, one per frame: the episodes of a dataset of their own, or named by a row."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, Indices, InMemoryFrames, Origin
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, FRAME_PIXELS
from rewardlab.core.seeding import digest
from rewardlab.data.bounded_contents import bounded_contents
from rewardlab.data.contract import Contents, Reader
from rewardlab.data.dataset_files import IMAGE_SUFFIXES, digest_of_file, has_video, open_regular, require_inside
from rewardlab.data.encoded_images import decode_images
from rewardlab.data.presentation_times import DEFAULT_FPS
from rewardlab.data.task_text import bounded_task, task_beside

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
        kept = np.unique(indices)
        try:
            frames = decode_images((self._bytes(self.names[index]) for index in kept), len(kept))
        except DataError as error:
            raise DataError(f"{self.folder}: {error}") from None
        return InMemoryFrames(frames, kept, self.count, self.digest).read(indices)

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
    task = bounded_task(task_beside(folder, place) or task_beside(folder, "") or _own_name(folder, place))
    parts = PurePosixPath(place).parts
    origin = Origin(subset=parts[0] if len(parts) > 1 else "", task=task)
    return Episode(name, task, image_clip(folder, folder / place, None), origin=origin)


def _own_name(folder: Path, place: str) -> str:
    return task_beside(folder.resolve().parent, folder.resolve().name) if place == "." else ""


def _frame_folders(folder: Path) -> Iterator[str]:
    """Yield the folders of numbered images, as seen from the dataset; links to folders are not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if len(_frame_names(names)) >= _FEWEST:
            yield Path(place).relative_to(folder).as_posix()


def _frame_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of numbered images in the order of their numbers: frame_2 comes before frame_10."""
    images = [name for name in names if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")]
    return tuple(sorted((name for name in images if _NUMBERED.search(Path(name).stem)), key=_by_number))


def _by_number(name: str) -> tuple[list[str | int], str]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)], name


IMAGES = Reader(
    "images",
    "folders of numbered PNG or JPEG frames, one folder per episode; the task is in task.txt or the folder's name",
    "folders of numbered images",
    recognises,
    read_folder,
)
