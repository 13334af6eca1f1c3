"""HDF5 files as strangers send them: nothing in them leads to another file, and no chunk is larger than a clip."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Frames, Indices, read_in_order
from rewardlab.core.errors import DataError, require_packages
from rewardlab.core.limits import CLIP_MB, FRAME_PIXELS
from rewardlab.core.seeding import digest
from rewardlab.data.safe_files import digest_of_shared_file, open_regular, shown

if TYPE_CHECKING:
    import h5py


_FEW_NUMBERS = 10_000_000  # of a list that is read whole


@contextmanager
def opened_hdf5(path: Path) -> "Iterator[h5py.File]":
    """Open a file to read; every way in which it can be broken becomes one DataError."""
    require_packages(str(path), "h5py", extra="hdf5", error=DataError)
    import h5py

    try:
        with open_regular(path) as handle, h5py.File(handle, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: cannot be read as HDF5 ({what}); copy the file again") from error


def child_group(group: "h5py.Group", name: str) -> "h5py.Group | None":
    """Return a group inside a group, or None where there is none of that name."""
    import h5py

    found = _child(group, name)
    return found if isinstance(found, h5py.Group) else None


def child_array(group: "h5py.Group", name: str) -> "h5py.Dataset | None":
    """Return an array inside a group, or None; DataError where its values lie in another file."""
    import h5py

    found = _child(group, name)
    if not isinstance(found, h5py.Dataset):
        return None
    if found.is_virtual or found.external:
        raise DataError(f"{found.name} is kept in another file; write its values into this one")
    return found


def array_at(file: "h5py.File", places: Sequence[str]) -> "h5py.Dataset | None":
    """Return the array that the last of these names calls, inside the groups that the others call, or None."""
    group: h5py.Group | None = file
    for name in places[:-1]:
        group = None if group is None else child_group(group, name)
    return None if group is None else child_array(group, places[-1])


def read_numbers(group: "h5py.Group", name: str) -> list[float]:
    """Return a list of numbers; empty where there is none of that name."""
    array = child_array(group, name)
    if array is None or array.dtype.kind not in "biuf" or array.size > _FEW_NUMBERS:
        return []
    return [float(number) for number in np.asarray(array[()]).ravel()]


def text_attribute(group: "h5py.Group", name: str) -> str:
    """Return a text attribute; empty where there is none of that name."""
    value = group.attrs.get(name)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _child(group: "h5py.Group", name: str) -> object:
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise DataError(f"{group.name}/{shown(name)} is a link to elsewhere; write what it leads to into this file")
    return group[name]


def require_frames(array: "h5py.Dataset") -> None:
    """Raise DataError where one frame of an array, or one chunk of it, is too large to be read."""
    if array.shape[1] * array.shape[2] > FRAME_PIXELS.value:
        raise DataError(
            f"{array.name}: frames of {array.shape[2]} x {array.shape[1]} pixels, {FRAME_PIXELS.describe()}"
        )
    if array.chunks and np.prod(array.chunks, dtype=np.float64) > CLIP_MB.in_bytes:
        raise DataError(f"{array.name}: chunks of shape {array.chunks} do not fit into memory, {CLIP_MB.describe()}")


@dataclass(frozen=True)
class Hdf5Frames:
    """The frames of an array (T, H, W, 3) of bytes in a file; `places` are the names of the groups down to it."""

    path: Path
    places: tuple[str, ...]
    count: int
    frame_bytes: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their file and their place in it."""
        return digest(digest_of_shared_file(self.path), *self.places)

    def read(self, indices: Indices) -> Frames:
        """Return these frames, in this order."""
        return read_in_order(indices, self._decode)

    def _decode(self, kept: Indices) -> Frames:
        if len(kept) * self.frame_bytes > CLIP_MB.in_bytes:
            raise DataError(f"{self.path}: {len(kept):,} frames do not fit into memory: {CLIP_MB.describe(' MB')}")
        with opened_hdf5(self.path) as file:
            array = array_at(file, self.places)
            if array is None or len(array.shape) != 4 or array.shape[0] != self.count:
                raise DataError(f"{self.path}: {'/'.join(self.places)} is not what it was when the dataset was opened")
            require_frames(array)
            return np.stack([np.asarray(array[int(index)], np.uint8) for index in kept])
