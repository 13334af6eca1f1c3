"""Columns of a stranger's Parquet file: measured by its footer before they are read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROW_BYTES, ROWS, TABLE_MB
from rewardlab.data.dataset_files import open_regular, require_inside

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet


@contextmanager
def opened_parquet(folder: Path, path: Path) -> "Iterator[pyarrow.parquet.ParquetFile]":
    """Open a Parquet file below the folder; every way in which it can be broken becomes one DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_inside(folder, path)
    try:
        with open_regular(path) as file:
            schema = pq.read_schema(file)
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
    with opened_parquet(folder, path) as file:
        present = [name for name in file.schema_arrow.names if names is None or name in names]
        require_size(path, file.metadata, present)
        table = file.read(columns=present)
        _require_short_texts(path, table)
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
    wanted = [each for each in columns if any(_is_part(each.path_in_schema, name) for name in names)]
    size = sum(max(each.total_uncompressed_size, 8 * each.num_values) for each in wanted)
    if size > TABLE_MB.in_bytes:
        raise DataError(f"{path}: {size / 1e6:,.0f} MB of columns, {TABLE_MB.describe()}")


def _is_part(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _require_short_texts(path: Path, table: "pyarrow.Table") -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in table.columns:
        texts = [chunk.dictionary for chunk in column.chunks if pa.types.is_dictionary(chunk.type)]
        longest = max((pc.max(pc.binary_length(each)).as_py() or 0 for each in texts), default=0)
        if longest > ROW_BYTES.value:
            raise DataError(f"{path}: a text of {longest:,} bytes, {ROW_BYTES.describe()}")
