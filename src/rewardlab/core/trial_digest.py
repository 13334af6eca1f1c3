"""The digest of trials: the same for the same results, in whatever files they stand and however long they took."""

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rewardlab.core.trial import TrialTable

if TYPE_CHECKING:
    import pyarrow

_NO_RESULT = "seconds"  # differs from one attempt to the next


def trials_digest(trials: TrialTable) -> str:
    """Return the SHA-256 of every column but the seconds, in the order of the trials."""
    import pyarrow as pa

    hasher = sha256()
    for name in trials.source.column_names:
        if name != _NO_RESULT:
            column = trials.select([name]).arrow[name].combine_chunks()  # one at a time: written out, they are large
            hasher.update(f"{name} {column.type} {len(trials)};".encode())
            _update(hasher, column, pa)
    return hasher.hexdigest()


def _update(hasher: Any, column: "pyarrow.Array", pa: Any) -> None:
    """Take in a column in a form that no version of Arrow changes: what is there, lengths, and values end to end."""
    import pyarrow.compute as pc

    hasher.update(pc.is_valid(column).to_numpy(zero_copy_only=False).tobytes())
    if pa.types.is_list(column.type):
        hasher.update(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).tobytes())
        _update(hasher, column.flatten(), pa)
    elif pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        hasher.update(pc.binary_length(filled).to_numpy(zero_copy_only=False).tobytes())
        hasher.update(_characters(filled, pa))
    else:
        hasher.update(pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False).tobytes())


def _characters(texts: "pyarrow.Array", pa: Any) -> bytes:
    """Return the bytes of all texts, one after the other."""
    import numpy as np

    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1] if len(texts) else (0, 0)
    return b"" if data is None else bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])
