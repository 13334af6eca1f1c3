"""Files that survive a crash: atomic writes, folder locks, journals, Parquet, CSV, and folders in an object store."""

import csv
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from rewardlab.core.errors import RunError
from rewardlab.core.limits import TRIALS_MB
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest

_PARTIAL = re.compile(r"\..+\.([0-9]+)\.tmp")  # a file that the process of this number is writing


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free the space or fix the permission, "
            "then run the same command again: finished trials are kept"
        ) from error


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` and rename it when done: readers never see half a file, nor does a crash."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writable(path):
        try:
            partial.unlink(missing_ok=True)  # what is there may be a link to another file
            yield partial
            _flush(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        with suppress(OSError):  # some file systems have no such thing for folders
            _flush(path.parent)


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file in one step, text as UTF-8, and return its path; its folder is made where it is missing."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _flush(path: Path) -> None:
    """Return when what was written is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; a second writer gets a RunError at once. The lock ends with the process."""
    try:
        import fcntl
    except ImportError:
        raise RunError("runs are written on Linux and macOS, whose file locks they need; use WSL on Windows") from None
    with writable(folder):
        handle = (folder / "lock").open("ab")  # never truncates: it may be a link to something else
    with handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{folder} is being written by another process; wait for it or choose another --out"
            ) from None
        for path in (*folder.glob(".*.tmp"), *folder.glob("trials/.*.tmp")):
            named = _PARTIAL.fullmatch(path.name)
            if named is not None and not _is_alive(int(named[1])):  # left behind by a process that has ended
                with suppress(OSError):
                    path.unlink()
        _LOCKED.add(folder.resolve())
        try:
            yield
        finally:
            _LOCKED.discard(folder.resolve())


_LOCKED: set[Path] = set()  # folders that this process has locked


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds a folder; the question itself takes no lock and creates no file."""
    if folder.resolve() in _LOCKED:  # to open and close the file here would end this process's own lock
        return True
    try:
        import fcntl

        file = os.open(folder / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return False
    mac = sys.platform == "darwin"  # `struct flock` begins with type and origin on Linux, and ends with them there
    layout, held = ("qqihh", (0, 0, 0, fcntl.F_WRLCK, 0)) if mac else ("hhqqi", (fcntl.F_WRLCK, 0, 0, 0, 0))
    try:
        found = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, *held)))
    except OSError:
        return False
    finally:
        os.close(file)
    return bool(found[3 if mac else 0] != fcntl.F_UNLCK)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        pass
    return True


def append_to_journal(path: Path, entry: Mapping[str, Any], *, durable: bool = True) -> None:
    """Append a JSON object to a file with one per line; a durable one survives a crash of the machine."""
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        torn = file.read(1) not in (b"", b"\n")  # by a process that was killed: what it wrote stays a line of its own
        file.write((b"\n" if torn else b"") + json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())


def read_journal(path: Path, keys: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a journal that have these keys; a torn line is passed over, a missing file has none."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.keys() >= set(keys):
            yield entry


def write_parquet(table: object, path: Path) -> None:
    """Write an Arrow table in one step."""
    import pyarrow.parquet as pq

    with atomic_write(path) as partial:
        pq.write_table(table, partial, compression="zstd")


# CSV files that a spreadsheet shows and does not run.

_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # what a cell of a spreadsheet begins a formula with
_NUMBERS = re.compile(r"[-+][-+\d.,%/± eE]*")  # a dash, a number, or a few of them with their intervals


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # csv does not quote it, and some readers end the row there
    return f"'{text}" if _FORMULA.match(value) and not _NUMBERS.fullmatch(value) else text


# Folders in an object store, by Arrow's clients.
#
# Keys come from the environment or the machine, as for every client of the store; `AWS_ENDPOINT_URL` names a server
# other than Amazon's. Without a key Google's client retries for 15 minutes: here it has some seconds, and a store that
# does not answer is given up after two minutes.

SCHEMES = ("s3", "gs")
_LOOK_FOR_A_KEY, _WAIT_FOR_THE_STORE = timedelta(seconds=10), timedelta(seconds=120)
_KEYS = (
    "let GOOGLE_APPLICATION_CREDENTIALS name a file of keys, run `gcloud auth application-default login`, "
    "or work on a machine of Google's that may write there"
)
_NEEDED = re.compile(r"(?:trials/)?[A-Za-z0-9][A-Za-z0-9._-]*\.(?:json|jsonl|parquet)")  # to go on with a run


def store_address(path: str | Path) -> str | None:
    """Return the address that a path stands for, such as s3://bucket/run, of which pathlib folds the slashes."""
    scheme, colon, rest = str(path).partition(":/")
    return f"{scheme}://{rest.strip('/')}" if colon and scheme in SCHEMES else None


def cache_folder() -> Path:
    """Return the folder of this machine for what can be fetched or found again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewardlab"


def working_copy(address: str) -> Path:
    """Return the folder of this machine that holds the files of a run in an object store."""
    return cache_folder() / "runs" / f"{re.sub('[^A-Za-z0-9.-]+', '-', address)[-80:]}-{digest(address)[:8]}"


@dataclass(frozen=True)
class ObjectStore:
    """A folder in an object store."""

    address: str

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file by its name below the folder."""
        from pyarrow.fs import FileSelector

        with self._opened("read", "") as (filesystem, folder):
            found = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
        return {info.path[len(folder) + 1 :]: int(info.size) for info in found if info.is_file}

    def write(self, name: str, data: bytes) -> None:
        """Write a file; readers see all of it or nothing."""
        with self._opened("write", name) as (filesystem, path), filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._opened("write", name) as (filesystem, path), suppress(FileNotFoundError):
            filesystem.delete_file(path)

    def fetch(self, folder: Path) -> None:
        """Bring what is needed to go on with the run into a folder; parts that are there already stay."""
        for name, size in self.sizes().items():
            place = folder / name
            grown = place.suffix == ".jsonl" and place.exists() and place.stat().st_size >= size  # a ledger only grows
            same = place.suffix == ".parquet" and place.exists()  # parts are named by their content
            if _NEEDED.fullmatch(name) and not (grown or same):
                if size > TRIALS_MB.in_bytes:
                    raise RunError(f"{self.address}/{name}: {size / 1e6:,.0f} MB, {TRIALS_MB.describe()}")
                with self._opened("read", name) as (filesystem, path), filesystem.open_input_stream(path) as stream:
                    data = stream.read()
                write_file(place, data)

    def publish(self, folder: Path) -> None:
        """Write every file of a folder, but for parts of trials that are there; hidden ones and the lock stay here."""
        there = self.sizes()
        for place in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = place.relative_to(folder).as_posix()
            hidden = any(part.startswith(".") for part in Path(name).parts)
            same = name.startswith("trials/") and there.get(name) == place.stat().st_size  # named by their content
            if name != "lock" and not hidden and not same:
                self.write(name, place.read_bytes())

    @contextmanager
    def _opened(self, verb: str, name: str) -> Iterator[tuple[Any, str]]:
        """Give the client and the path of a file there; a failure becomes one sentence that says what to do."""
        from pyarrow.lib import ArrowException

        filesystem, root = _open_store(self.address)
        try:
            yield filesystem, f"{root}/{name}" if name else root
        except (OSError, ArrowException) as error:
            what = " ".join(str(error).split())[:300]
            raise RunError(
                f"cannot {verb} {self.address}/{name}: {what}; see that the store answers and its keys allow it, "
                "then run the same command again: finished trials are kept"
            ) from error


@cache
def _open_store(address: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    if address.startswith("gs://"):
        return _opened_google(address)
    try:
        filesystem, root = FileSystem.from_uri(address)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot open {address}: {error}; it must be like s3://bucket/runs/mine") from error
    return filesystem, root


def _opened_google(address: str) -> tuple[Any, str]:
    """Open a folder of Google's store; where no key file is known, see first whether this machine has a key."""
    from pyarrow.lib import ArrowException

    try:
        from pyarrow.fs import GcsFileSystem
    except ImportError as error:
        raise RunError(f"cannot open {address}: this build of pyarrow has no client of Google's store") from error
    root = address.removeprefix("gs://")
    if not _google_key_file(address):
        try:
            GcsFileSystem(retry_time_limit=_LOOK_FOR_A_KEY).get_file_info(root)
        except (OSError, ArrowException) as error:
            what = " ".join(str(error).split())[:200]
            raise RunError(
                f"cannot open {address}: expected a key for Google's store and found none that works ({what}); {_KEYS}"
            ) from error
    return GcsFileSystem(retry_time_limit=_WAIT_FOR_THE_STORE), root


def _google_key_file(address: str) -> Path | None:
    """Return the file of keys that Google's client will read; None where there is none, as on a machine of Google's."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named and not Path(named).is_file():
        raise RunError(
            f"cannot open {address}: GOOGLE_APPLICATION_CREDENTIALS names {named}, which is no file; {_KEYS}"
        )
    usual = Path.home() / ".config/gcloud/application_default_credentials.json"
    return Path(named) if named else usual if usual.is_file() else None


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, in place of what has it, or copy the file where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with suppress(OSError):
        os.link(source, target)
        return
    with atomic_write(target) as partial:
        shutil.copyfile(source, partial)
