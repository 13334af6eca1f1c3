"""Files from strangers: regular ones below the folder, lines, digests, Parquet columns measured before reading."""

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from hashlib import file_digest
from io import BufferedReader, TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROW_BYTES, ROWS, TABLE_MB
from rewardlab.data.known_files import found_of_file

if TYPE_CHECKING:
    import pyarrow.parquet

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
VIDEO_SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v")

_NAME_CHARACTERS = 1000
_SHOWN_CHARACTERS = 80
_NAMES_SHOWN = 6


def shown(value: object) -> str:
    """Return a value as it is quoted in a sentence: at most 80 characters, whatever it is."""
    text = repr(value[: _SHOWN_CHARACTERS + 1] if isinstance(value, str | list) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def few(names: Sequence[str]) -> str:
    """Return the first names of a list, each cut to 80 characters, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(name[:_SHOWN_CHARACTERS] for name in names[:_NAMES_SHOWN]) + more


def video_names(folder: Path) -> list[str]:
    """Return the video files below a folder, as a row names them, in order; links to folders are not followed."""
    found = []
    for place, _, names in os.walk(folder):
        inside = Path(place).relative_to(folder)
        found += [(inside / name).as_posix() for name in names if Path(name).suffix.lower() in VIDEO_SUFFIXES]
    return sorted(name for name in found if not any(part.startswith(".") for part in PurePosixPath(name).parts))


def files_with_suffix(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the file itself, or the files in the folder, in order, where names end so; hidden ones are left out."""
    if path.is_file():
        return [path] if path.suffix.lower() in suffixes else []
    names = sorted(path.iterdir()) if path.is_dir() else []
    return [each for each in names if each.suffix.lower() in suffixes and each.name[0] != "." and each.is_file()]


def has_video(folder: Path) -> bool:
    """Tell whether a file below the folder is named like a video; links to folders are not followed."""
    return any(Path(name).suffix.lower() in VIDEO_SUFFIXES for _, _, names in os.walk(folder) for name in names)


def path_inside(folder: Path, name: object, key: str) -> Path:
    """Return the path of a file that a row names; DataError where it is not, or leads, below the folder."""
    path = folder / require_name(name, key)
    require_inside(folder, path)
    return path


def require_name(name: object, key: str) -> str:
    """Return the name of something below a folder; DataError where it is none, whatever is there."""
    if not isinstance(name, str) or not name or len(name) > _NAME_CHARACTERS:
        raise DataError(f"{key} must be a path below the folder, got {shown(name)}")
    if not name.isprintable() and any(unicodedata.category(character) == "Cc" for character in name):
        raise DataError(f"{key} must have no control characters, got {shown(name)}")
    if name.startswith("/") or ".." in name.split("/"):
        raise DataError(f"{key} must stay below the folder, got {shown(name)}")
    return name


def require_inside(folder: Path, path: Path) -> None:
    """Raise DataError where a path leads out of the folder, or to something that is no regular file."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    if real != root and not real.startswith(root.rstrip("/") + "/") and not _is_blob(Path(real), Path(root)):
        raise DataError(f"{path}: a link leads out of the dataset's folder; copy the file into it")
    try:
        mode = os.stat(real).st_mode
    except OSError:
        return  # what is not there is said by whoever reads it
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: expected a regular file, got {_kind(mode)}; name a file")


def _is_blob(real: Path, root: Path) -> bool:
    """Tell whether the cache of the Hugging Face hub keeps the file: beside the snapshots of which the root is one."""
    snapshots = (each.parent for each in (root, *root.parents) if each.parent.name == "snapshots")
    return any(real.is_relative_to(each.parent / "blobs") for each in snapshots)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read; OSError as `open` has it, DataError for what is no file. A pipe blocks nobody."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise DataError(f"{path}: expected a regular file, got {_kind(mode)}; name a file")
    return file


def text_lines(folder: Path, path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that hold something, each cut where it is longer than a row may be."""
    require_inside(folder, path)
    most = ROW_BYTES.value + 1
    with TextIOWrapper(open_regular(path), encoding="utf-8-sig", errors="surrogateescape") as handle:
        number = 0
        while text := handle.readline(most):
            number += 1
            rest = text
            while len(rest) == most and not rest.endswith("\n"):
                rest = handle.readline(most)
            if text.strip():
                yield number, text


def digest_of_file(path: Path) -> str:
    """Return 16 hex characters that identify the bytes of a file, read a piece at a time."""
    try:
        with open_regular(path) as file:
            return file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); is the dataset still there?") from error


def digest_of_shared_file(path: Path) -> str:
    """Return the digest of a file that holds many episodes; it is read again only when it has changed."""
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); is the dataset still there?") from error
    return _digest_of_version(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=4096)
def _digest_of_version(path: Path, _changed: int, _size: int) -> str:
    return found_of_file("digest", path, partial(digest_of_file, path))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


# Columns of a stranger's Parquet file: measured by its footer before they are read.


@contextmanager
def opened_parquet(folder: Path, path: Path) -> "Iterator[pyarrow.parquet.ParquetFile]":
    """Open a Parquet file below the folder; every way in which it can be broken becomes one DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_inside(folder, path)
    try:
        with open_regular(path) as file:
            schema = pq.read_schema(file)
            twice = next((name for name, count in Counter(schema.names).items() if count > 1), None)
            if twice is not None:
                raise DataError(f"{path}: two columns are called {shown(twice)}; rename one of them")
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            file.seek(0)
            yield pq.ParquetFile(file, read_dictionary=texts)  # so that a text repeated a million times is held once
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the dataset again") from None
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: cannot be read as Parquet ({what}); copy the file again") from error


def read_table(folder: Path, path: Path, names: Sequence[str] | None = None) -> "pyarrow.Table":
    """Return those of the named columns that the file has, or all; DataError where they are too large."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with opened_parquet(folder, path) as file:
        present = [name for name in file.schema_arrow.names if names is None or name in names]
        require_size(path, file.metadata, present)
        table = file.read(columns=present)
        for column in table.columns:
            texts = [chunk.dictionary for chunk in column.chunks if pa.types.is_dictionary(chunk.type)]
            longest = max((pc.max(pc.binary_length(each)).as_py() or 0 for each in texts), default=0)
            if longest > ROW_BYTES.value:
                raise DataError(f"{path}: a text of {longest:,} bytes, {ROW_BYTES.describe()}")
        table.validate(full=True)
    return table


def column_values(column: "pyarrow.ChunkedArray") -> Iterator[object]:
    """Yield the values of a column; a text that comes again is the same object, however often it does."""
    import pyarrow as pa

    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            texts = chunk.dictionary.to_pylist()
            yield from (None if index is None else texts[index] for index in chunk.indices.to_pylist())
        else:
            yield from (cell.as_py() for cell in chunk)


def require_size(path: Path, metadata: "pyarrow.parquet.FileMetaData", names: Sequence[str]) -> None:
    """Raise DataError where the columns have more rows, or take more memory, than a dataset may."""
    if metadata.num_rows > ROWS.value:
        raise DataError(f"{path}: {metadata.num_rows:,} rows, {ROWS.describe()}")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    wanted = [each for each in columns if f"{each.path_in_schema}.".startswith(tuple(f"{name}." for name in names))]
    size = sum(max(each.total_uncompressed_size, 8 * each.num_values) for each in wanted)
    if size > TABLE_MB.in_bytes:
        raise DataError(f"{path}: {size / 1e6:,.0f} MB of columns, {TABLE_MB.describe()}")
