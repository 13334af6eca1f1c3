"""Trials in Parquet files whose names are made of their content: every bit of a part is checked whenever it is read."""

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rewardlab.core.errors import RunError
from rewardlab.core.limits import TRIALS_MB
from rewardlab.core.run_record import RunRecord
from rewardlab.core.trial import trial_schema
from rewardlab.core.trial_columns import read_columns, with_plain_texts
from rewardlab.core.trial_plan_check import check_trials

if TYPE_CHECKING:
    import pyarrow

PartKind = Literal["part", "all"]  # some trials as they came, or every one of the run
_NAME = re.compile(r"(?:part|all)-([0-9a-f]{32})\.parquet")
_PLAN = b"rewardlab.plan"  # key of the Parquet metadata that says to which plan the trials belong
_HEX = 32
_ROW_GROUP = 100_000  # trials


def encode_part(table: "pyarrow.Table", plan_digest: str) -> bytes:
    """Return trials as a Parquet file with a checksum on every page, bound to their plan."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    bound = table.replace_schema_metadata({_PLAN: plan_digest.encode()})
    schema = with_plain_texts(bound.slice(0, 0)).schema
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, table.num_rows, _ROW_GROUP):  # only so many trials are written out at a time
            writer.write_table(with_plain_texts(bound.slice(start, _ROW_GROUP)))
    return bytes(sink.getvalue())


def part_name(kind: PartKind, data: bytes) -> str:
    """Return the name of the file that holds these bytes."""
    return f"{kind}-{_checksum(data)}.parquet"


def read_part(path: Path, record: RunRecord) -> "pyarrow.Table":
    """Return the trials in a file, which must be whole and belong to the run; else one sentence says what is off."""
    import pyarrow as pa

    try:
        data = _read_bytes(path)
        _check_name(path, data, record)
        table = _decode(data, record)
        check_trials(table, record.plan)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"cannot read {path}: {what}; {_REMEDY}") from error
    return table


_REMEDY = (
    "remove that part and run the same command again: its cells are scored anew; if somebody gave you the run, "
    "get it again"
)


def _read_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("it is no regular file")
    size = path.stat().st_size
    if size > TRIALS_MB.in_bytes:
        raise ValueError(f"{size / 1e6:,.0f} MB of trials, {TRIALS_MB.describe()}")
    return path.read_bytes()


def _check_name(path: Path, data: bytes, record: RunRecord) -> None:
    """Compare the bytes with the name; files of earlier versions have no checksum, nor has their run.json."""
    named = _NAME.fullmatch(path.name)
    if named is None and record.sealed:
        raise ValueError("its name carries no checksum, so this run did not write it")
    if named is not None and named[1] != _checksum(data):
        raise ValueError("its content does not have the checksum in its name, so it was damaged or edited")


def _checksum(data: bytes) -> str:
    return sha256(data).hexdigest()[:_HEX]


def _decode(data: bytes, record: RunRecord) -> "pyarrow.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(pa.BufferReader(data))
    if record.sealed and (schema.metadata or {}).get(_PLAN) != record.plan_digest.encode():
        raise ValueError("it belongs to a run with another plan")
    if not schema.equals(trial_schema()):
        raise ValueError(f"its columns are not those of trials: {_difference(schema)}")
    # As dictionaries, texts take no more memory than the file says; a long one that is there a million times would.
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True)
    _check_size(file.metadata, record)
    table = read_columns(file, schema.names)
    _check_text_size(table, texts)
    table.validate(full=True)
    return table


def _difference(schema: "pyarrow.Schema") -> str:
    expected, found = ({field.name: field.type for field in each} for each in (trial_schema(), schema))
    names = [name for name in (*expected, *found) if expected.get(name) != found.get(name)]
    if not names:
        return "they stand in another order"
    return f"{names[0][:60]!r} is {found.get(names[0], 'not there')}, not {expected.get(names[0], 'a column')}"


def _check_size(metadata: "pyarrow.FileMetaData", record: RunRecord) -> None:
    if metadata.num_rows > record.cells:
        raise ValueError(f"{metadata.num_rows:,} trials, but the plan has {record.cells:,} cells")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    _limit_size(sum(max(column.total_uncompressed_size, 8 * column.num_values) for column in columns))


def _check_text_size(table: "pyarrow.Table", texts: list[str]) -> None:
    import pyarrow.compute as pc

    sizes = [
        pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        for name in texts
        for chunk in table[name].chunks
    ]
    _limit_size(sum(sizes))


def _limit_size(size: int) -> None:
    if size > TRIALS_MB.in_bytes:
        raise ValueError(f"{size / 1e6:,.0f} MB of trials in memory, {TRIALS_MB.describe()}")
