"""Many trials as Arrow columns: schema, views, joining parts, digest of the results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import GuardVerdict, ScoreInfo, Trial

if TYPE_CHECKING:
    import pandas
    import pyarrow


def join_parts(parts: Iterable["pyarrow.Table"]) -> "pyarrow.Table":
    """Return every trial of one or more parts once, ordered by id.

    Of a trial that was asked again the score wins, and where it failed again the last of the parts.
    """
    import pyarrow as pa

    columns: dict[str, list[pa.ChunkedArray]] = {}  # part by part, so that each can be let go of when it is joined
    for table in parts:
        for name in table.column_names:
            columns.setdefault(name, []).append(table[name])
        del table  # else the last part would stay whole

    def joined(name: str) -> "pyarrow.ChunkedArray":
        return pa.chunked_array([chunk for part in columns[name] for chunk in part.chunks], columns[name][0].type)

    columns["id"] = [joined("id").cast(pa.string())]  # no two are alike
    order = _order(columns["id"][0], joined("status"))
    found = {}
    for name in list(columns):
        column = joined(name).unify_dictionaries()
        found[name] = column if order is None else column.take(order)
        del columns[name], column
        pa.default_memory_pool().release_unused()  # else what is let go of stays with the process
    return pa.table(found)


def with_plain_texts(table: "pyarrow.Table") -> "pyarrow.Table":
    """Return the table with every text written out."""
    import pyarrow as pa

    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(place, column.name, table[place].cast(pa.string()))
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


def _order(ids: "pyarrow.ChunkedArray", status: "pyarrow.ChunkedArray") -> "pyarrow.Array | None":
    """Return the rows to take; None where they are ordered and each trial is there once, as in a finished run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.less(ids[:-1], ids[1:])).as_py() is not False:
        return None
    table = pa.table({"id": ids, "status": status.cast(pa.string()), "place": np.arange(len(ids))})
    first = [("id", "ascending"), ("status", "descending"), ("place", "descending")]  # a score before a failure
    order = pc.sort_indices(table, first)
    ids = ids.take(order)
    new = pc.not_equal(ids[:-1], ids[1:])
    return order.filter(pa.chunked_array([pa.array([True]), *new.chunks]))


@dataclass(frozen=True, eq=False)
class TrialTable:
    """Many trials as columns; missing numbers are nan. Metrics read this.

    pandas, Polars and whatever reads Arrow take it: `to_pandas()`, `polars.DataFrame(trials)`.

    `where` gives a view: it shares the source and the columns read so far, so that thousands of subsets cost little.
    """

    source: "pyarrow.Table"
    row_indices: NDArray[np.int64] | None = None  # the rows of the source in this view; None for all
    cache: dict[str, Any] = field(default_factory=dict, repr=False)  # columns of the source read so far

    @property
    def arrow(self) -> "pyarrow.Table":
        """Return the trials as an Arrow table of their own."""
        return with_plain_texts(self._own())

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the trials as a pandas DataFrame; pandas must be installed."""
        return self.arrow.to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the trials as other libraries read them: `polars.DataFrame(trials)`, or DuckDB."""
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return (
            f"TrialTable({len(self):,} trials, {self.source.num_columns} columns; to_pandas() or polars.DataFrame(it))"
        )

    def __len__(self) -> int:
        return int(self.source.num_rows) if self.row_indices is None else len(self.row_indices)

    def text(self, column: str) -> NDArray[np.object_]:
        """Return a text column as an object array, None where missing."""

        def read() -> NDArray[np.object_]:
            if column == "id":  # no two are alike, so that codes would only be in the way
                return np.array(self.source[column].to_pylist(), dtype=object)
            rows, names = TrialTable(self.source, cache=self.cache).codes(column)
            return np.asarray(np.array([*names, None], dtype=object)[rows])  # -1 is the last

        return self._column(column, read)

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a numeric or boolean column as floats, nan where missing."""
        return self._column(column, lambda: np.array(self.source[column].cast("float64").to_numpy()))

    def codes(self, column: str) -> tuple[NDArray[np.int64], list[str]]:
        """Return a text column as codes (-1: missing) and the names they stand for, in order of first appearance."""
        key = f"codes of {column}"
        if key not in self.cache:
            encoded = as_dictionary(self.source[column])
            self.cache[key] = encoded.dictionary.to_pylist()
            self.cache[f"{key}: rows"] = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        rows = self.cache[f"{key}: rows"]
        return (rows if self.row_indices is None else rows[self.row_indices]), self.cache[key]

    def matches(self, column: str, value: str) -> NDArray[np.bool_]:
        """Tell at which trials a text column holds this value."""
        rows, names = self.codes(column)
        found: NDArray[np.bool_] = rows == (names.index(value) if value in names else -1)
        return found

    def lists(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return a column of lists as one flat array and the length of each trial's list, 0 where missing."""
        import pyarrow.compute as pc

        data = self.source[column] if self.row_indices is None else self.source[column].take(self.row_indices)
        return np.asarray(pc.list_flatten(data).to_numpy(), dtype=np.float64), self.list_lengths(column)

    def list_lengths(self, column: str) -> NDArray[np.int64]:
        """Return the length of each trial's list, 0 where missing."""
        import pyarrow.compute as pc

        read = lambda: pc.list_value_length(self.source[column]).fill_null(0).to_numpy().astype(np.int64)
        return self._column(f"lengths of {column}", read)

    def vectors(self, column: str, width: int) -> NDArray[np.float64]:
        """Return a column of lists of one length as rows, nan where missing."""
        flat, lengths = self.lists(column)
        found = np.full((len(lengths), width), np.nan)
        found[lengths == width] = flat[np.repeat(lengths == width, lengths)].reshape(-1, width)
        return found

    def where(self, mask: NDArray[np.bool_]) -> "TrialTable":
        """Return the trials at which the mask is true."""
        return self.take(np.flatnonzero(mask))

    def take(self, rows: NDArray[np.int64]) -> "TrialTable":
        """Return the trials at these rows, in this order."""
        return TrialTable(self.source, rows if self.row_indices is None else self.row_indices[rows], self.cache)

    def with_column(self, column: str, values: NDArray[np.float64] | NDArray[np.int64]) -> "TrialTable":
        """Return the same trials with one more column of numbers."""
        import pyarrow as pa

        if self.row_indices is None:
            return TrialTable(self.source.append_column(column, pa.array(values)), cache=dict(self.cache))
        whole = np.zeros(self.source.num_rows, dtype=values.dtype)  # of the source, which is too much to copy
        whole[self.row_indices] = values
        if not np.array_equal(whole[self.row_indices], values, equal_nan=True):  # a trial is in the view twice
            return TrialTable(self._own().append_column(column, pa.array(values)))
        return TrialTable(self.source.append_column(column, pa.array(whole)), self.row_indices, dict(self.cache))

    def blocks(self) -> Iterator["TrialTable"]:
        """Yield the trials in pieces of bounded size, for what takes much memory per trial."""
        for start in range(0, len(self), _BLOCK):
            yield self.take(np.arange(start, min(start + _BLOCK, len(self))))

    def select(self, columns: Sequence[str]) -> "TrialTable":
        """Return the same trials with these columns only."""
        return TrialTable(self.source.select(columns), self.row_indices)

    def derived(self, name: str, compute: Callable[["TrialTable"], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return one number per trial, computed once for the source and all its views."""
        return self._column(name, lambda: compute(TrialTable(self.source, cache=self.cache)))

    def rows(self) -> list[Trial]:
        """Return the trials as objects; for few trials, not for statistics."""
        return [_trial(record) for record in self.records(TRIAL_COLUMNS)]

    def records(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return these columns of each trial by their names, None where missing; for few trials too."""
        found: list[dict[str, Any]] = self.select(columns).arrow.to_pylist()
        return found

    def _own(self) -> "pyarrow.Table":
        return self.source if self.row_indices is None else self.source.take(self.row_indices)

    def _column(self, column: str, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if column not in self.cache:
            self.cache[column] = read()
            self.cache[column].flags.writeable = False  # it is shared by every view
        whole: NDArray[Any] = self.cache[column]
        return whole if self.row_indices is None else whole[self.row_indices]


# The digest of trials: the same for the same results, in whatever files they stand and however long they took.

_NO_RESULT = ("seconds", "traceback")  # differ from one attempt, or machine, to the next


def trials_digest(trials: TrialTable) -> str:
    """Return the SHA-256 of every column but the seconds and tracebacks, in the order of the trials.

    An optional column that is missing everywhere does not count: an earlier run, which has none, keeps its digest.
    """
    import pyarrow as pa

    hasher = sha256()
    for name in trials.source.column_names:
        unknown = name in OPTIONAL_COLUMNS and trials.source[name].null_count == trials.source.num_rows
        if name not in _NO_RESULT and not unknown:
            column = trials.select([name]).arrow[name].combine_chunks()  # one at a time: written out, they are large
            hasher.update(f"{name} {column.type} {len(trials)};".encode())
            _update(hasher, column, pa)
    return hasher.hexdigest()


def _update(hasher: Any, column: "pyarrow.Array", pa: Any) -> None:
    """Take in a column in a form that no version of Arrow changes: what is there, lengths, and values end to end."""
    import pyarrow.compute as pc

    hasher.update(pc.is_valid(column).to_numpy(zero_copy_only=False).tobytes())
    if pa.types.is_map(column.type):
        _update(hasher, map_pairs(column), pa)
    elif pa.types.is_struct(column.type):
        for part in column.flatten():
            _update(hasher, part, pa)
    elif pa.types.is_list(column.type):
        hasher.update(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).tobytes())
        _update(hasher, column.flatten(), pa)
    elif pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        hasher.update(pc.binary_length(filled).to_numpy(zero_copy_only=False).tobytes())
        _, offsets, data = filled.buffers()
        if data is not None and len(filled):
            ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1]
            hasher.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
    else:
        hasher.update(pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False).tobytes())


def map_pairs(column: "pyarrow.MapArray") -> "pyarrow.ListArray":
    """Return a column of values by name as lists of their pairs."""
    import pyarrow as pa

    pair = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    return column.cast(pa.list_(pair))


TRIAL_SCHEMA = (
    1  # version of the columns, in the metadata of every file; docs/reference/trials.md says what it promises
)
_BLOCK = 50_000  # trials held at a time where each takes much memory
_MAPS = ("member_levels", "member_failures", "frame_quality", "failure_probabilities", "guard_shift")  # values by name
_OF_GUARD = "guard_"  # before the fields of a guard's verdict
INFO_COLUMNS = (
    *(f.name for f in fields(ScoreInfo) if f.name != "guard"),
    *(_OF_GUARD + f.name for f in fields(GuardVerdict)),
)
OPTIONAL_COLUMNS = (
    "traceback",
    "truth_stages",
    "embodiment",
    "perspective",
    "truth_failure_cause",
    "truth_failure_frame",
    "drawn",
    "repeat",
    *INFO_COLUMNS,
)  # that runs of earlier versions may lack
TRIAL_COLUMNS = (*(f.name for f in fields(Trial) if f.name != "info"), *INFO_COLUMNS)
# What metrics read. What models said in words can be most of a run.
_NOT_READ = {"raw", "traceback", *INFO_COLUMNS} - {"abstained"}
METRIC_COLUMNS = tuple(name for name in TRIAL_COLUMNS if name not in _NOT_READ)


def trial_schema() -> "pyarrow.Schema":
    """Return the Parquet schema of trials: one column per field of Trial and of its info."""
    import pyarrow as pa

    numbers, numbers_by_name = pa.list_(pa.float64()), pa.map_(pa.string(), pa.float64())
    types = {
        "severity": pa.int8(),
        "seed": pa.int64(),
        "truth_level": pa.int8(),
        **dict.fromkeys(("truth_success", "unfamiliar", "abstained"), pa.bool_()),
        "repeat": pa.int16(),
        "truth_progress": numbers,
        "truth_stages": pa.list_(pa.int8()),
        "shown": pa.list_(pa.int32()),
        "level": pa.float64(),
        "probabilities": numbers,
        "progress": numbers,
        "seconds": pa.float64(),
        "prediction_set": pa.list_(pa.int8()),
        "member_levels": numbers_by_name,
        "member_failures": pa.map_(pa.string(), pa.string()),
        "frame_quality": numbers_by_name,
        "failure_probabilities": numbers_by_name,
        "guard_shift": numbers_by_name,
        **dict.fromkeys(("truth_failure_frame", "failure_frame"), pa.int64()),
        **dict.fromkeys(("input_tokens", "output_tokens", "skipped_members"), pa.int64()),
        **dict.fromkeys(("set_coverage", "novelty", "training_distance", "distance_limit"), pa.float64()),
        **dict.fromkeys(("disagreement", "uncalibrated_level"), pa.float64()),
        **dict.fromkeys(("cost", "log_probability", "guard_risk", "guard_success_probability"), pa.float64()),
        "abstention_probability": pa.float64(),
    }
    return pa.schema([(name, types.get(name, pa.string())) for name in TRIAL_COLUMNS])


def to_arrow(trials: Sequence[Trial]) -> "pyarrow.Table":
    """Return trials as an Arrow table with the trial schema."""
    import pyarrow as pa

    rows = [_row(trial) for trial in trials]
    return pa.table({name: [row.get(name) for row in rows] for name in TRIAL_COLUMNS}, schema=trial_schema())


def with_optional_columns(table: "pyarrow.Table") -> "pyarrow.Table":
    """Return trials that were read from a file with every optional column; those that it lacks are missing values."""
    import pyarrow as pa

    schema, texts = trial_schema(), pa.dictionary(pa.int32(), pa.string())  # as texts are read
    for place, name in enumerate(TRIAL_COLUMNS):
        if name in OPTIONAL_COLUMNS and name not in table.column_names:
            kind = schema.field(name).type
            missing = pa.nulls(table.num_rows, texts if pa.types.is_string(kind) else kind)
            table = table.add_column(place, name, missing)
    return table


def _row(trial: Trial) -> dict[str, Any]:
    """Return the values of a trial by column; what is empty in its info is missing."""
    known = {name: value for name, value in vars(trial.info).items() if value != {}}
    guard = {} if trial.info.guard is None else vars(trial.info.guard)
    return vars(trial) | known | {_OF_GUARD + name: value for name, value in guard.items() if value != {}}


def _trial(row: dict[str, Any]) -> Trial:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    info = {name: values.pop(name) for name in INFO_COLUMNS}
    known: dict[str, Any] = {
        name: dict(value) if name in _MAPS else value for name, value in info.items() if value is not None
    }
    guard = {f.name: known.pop(_OF_GUARD + f.name) for f in fields(GuardVerdict) if _OF_GUARD + f.name in known}
    verdict = GuardVerdict(**guard) if {"decision", "risk"} <= guard.keys() else None
    return Trial(**values, info=ScoreInfo(**known, guard=verdict))
