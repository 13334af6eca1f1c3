"""Runs in an object store: every file of the working copy on this machine is written there too, as soon as it is made.

The keys are those that the environment or the machine gives, as for every client of the store; `AWS_ENDPOINT_URL`
names a server other than Amazon's.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rewardlab.core.errors import RunError
from rewardlab.core.limits import TRIALS_MB
from rewardlab.core.seeding import digest

SCHEMES = ("s3", "gs")
_NEEDED = re.compile(r"(?:trials/)?[A-Za-z0-9][A-Za-z0-9._-]*\.(?:json|jsonl|parquet)")  # to go on with a run


def store_address(path: str | Path) -> str | None:
    """Return the address that a path stands for, such as s3://bucket/run, of which pathlib folds the slashes."""
    scheme, colon, rest = str(path).partition(":/")
    return f"{scheme}://{rest.strip('/')}" if colon and scheme in SCHEMES else None


def working_copy(address: str) -> Path:
    """Return the folder of this machine that holds the files of a run in an object store."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "rewardlab" / "runs" / f"{re.sub('[^A-Za-z0-9.-]+', '-', address)[-80:]}-{digest(address)[:8]}"


@dataclass(frozen=True)
class ObjectStore:
    """A folder in an object store."""

    address: str

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file by its name below the folder."""
        from pyarrow.fs import FileSelector

        filesystem, root = _opened(self.address)
        with self._told("read", ""):
            found = filesystem.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        return {info.path[len(root) + 1 :]: int(info.size) for info in found if info.is_file}

    def write(self, name: str, data: bytes) -> None:
        """Write a file; readers see all of it or nothing."""
        filesystem, root = _opened(self.address)
        with self._told("write", name), filesystem.open_output_stream(f"{root}/{name}") as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        filesystem, root = _opened(self.address)
        with self._told("write", name):
            try:
                filesystem.delete_file(f"{root}/{name}")
            except FileNotFoundError:
                return

    def fetch(self, folder: Path) -> None:
        """Bring what is needed to go on with the run into a folder; parts that are there already stay."""
        for name, size in self.sizes().items():
            place = folder / name
            if _NEEDED.fullmatch(name) and not _is_newer(place, size):
                if size > TRIALS_MB.in_bytes:
                    raise RunError(f"{self.address}/{name}: {size / 1e6:,.0f} MB, {TRIALS_MB.describe()}")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(self._read(name))

    def publish(self, folder: Path) -> None:
        """Write every file of a folder that is not there in this size; hidden ones and the lock stay here."""
        there = self.sizes()
        for place in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = place.relative_to(folder).as_posix()
            hidden = any(part.startswith(".") for part in Path(name).parts)
            if name != "lock" and not hidden and there.get(name) != place.stat().st_size:
                self.write(name, place.read_bytes())

    def _read(self, name: str) -> bytes:
        filesystem, root = _opened(self.address)
        with self._told("read", name), filesystem.open_input_stream(f"{root}/{name}") as stream:
            return bytes(stream.read())

    @contextmanager
    def _told(self, verb: str, name: str) -> Iterator[None]:
        """Turn a failure of the store into one sentence that says what to do."""
        try:
            yield
        except OSError as error:
            what = " ".join(str(error).split())[:300]
            raise RunError(
                f"cannot {verb} {self.address}/{name}: {what}; see that the store answers and its keys allow it, "
                "then run the same command again: finished cells are kept"
            ) from error


def _is_newer(place: Path, size: int) -> bool:
    """Tell whether the file here says at least as much: parts are named by their content, a ledger only grows."""
    if not place.exists():
        return False
    return place.suffix == ".parquet" or (place.suffix == ".jsonl" and place.stat().st_size >= size)


@cache
def _opened(address: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    try:
        filesystem, root = FileSystem.from_uri(address)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot open {address}: {error}; it must be like s3://bucket/runs/mine") from error
    return filesystem, root
