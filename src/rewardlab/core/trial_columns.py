"""Trials in memory, column by column: a text that repeats is held once, and no column is held twice for long."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

Chunks = list["pyarrow.ChunkedArray"]  # one column, part by part
_SORTED_BY = [("id", "ascending"), ("status", "descending")]  # the score of a cell before its failure


def read_columns(file: "pyarrow.parquet.ParquetFile", columns: Sequence[str]) -> "pyarrow.Table":
    """Return these columns of a Parquet file, read one after the other: decoding takes twice what is decoded."""
    import pyarrow as pa

    return pa.table({name: file.read([name], use_threads=False)[name] for name in columns})


def join_parts(parts: Iterable["pyarrow.Table"]) -> "pyarrow.Table":
    """Return every trial of one or more parts once, ordered by id; of a cell asked again, the score wins."""
    import pyarrow as pa

    columns = _by_column(parts)
    columns["id"] = [_one_after_another(columns["id"]).cast(pa.string())]  # no two are alike
    order = _order(columns["id"][0], _one_after_another(columns["status"]))
    joined = {}
    for name in list(columns):
        joined[name] = _joined(columns.pop(name), order)
        pa.default_memory_pool().release_unused()  # else what is let go of stays with the process
    return pa.table(joined)


def with_plain_texts(table: "pyarrow.Table") -> "pyarrow.Table":
    """Return the table with every text written out."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[place].cast(pa.string()))
    return table


def as_dictionary(data: "pyarrow.ChunkedArray") -> "pyarrow.DictionaryArray":
    """Return a column of text as codes and the texts they stand for, these in order of first appearance."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(data.type):
        return data.combine_chunks().dictionary_encode()
    whole = data.unify_dictionaries().combine_chunks()
    used = pc.unique(whole.indices).drop_null()
    return pa.DictionaryArray.from_arrays(pc.index_in(whole.indices, used), whole.dictionary.take(used))


def _by_column(parts: Iterable["pyarrow.Table"]) -> dict[str, Chunks]:
    """Take tables apart, so that each column can be let go of when it has been joined."""
    found: dict[str, Chunks] = {}
    for table in parts:
        for name in table.column_names:
            found.setdefault(name, []).append(table[name])
    return found


def _one_after_another(columns: Chunks) -> "pyarrow.ChunkedArray":
    import pyarrow as pa

    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def _order(ids: "pyarrow.ChunkedArray", status: "pyarrow.ChunkedArray") -> "pyarrow.Array | None":
    """Return the rows to take; None where they are ordered and each cell is there once, as in a finished run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.less(ids[:-1], ids[1:])).as_py() is not False:
        return None
    table = pa.table({"id": ids, "status": status.cast(pa.string())})
    order = pc.sort_indices(table, _SORTED_BY)
    ids = ids.take(order)
    new = pc.not_equal(ids[:-1], ids[1:])
    return order.filter(pa.chunked_array([pa.array([True]), *new.chunks]))


def _joined(columns: Chunks, order: "pyarrow.Array | None") -> "pyarrow.ChunkedArray":
    column = _one_after_another(columns).unify_dictionaries()
    return column if order is None else column.take(order)
