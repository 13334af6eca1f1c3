"""Frames that are stored as JPEG or PNG bytes in a column of a Parquet file."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Frames, Indices, InMemoryFrames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest
from rewardlab.data.dataset_files import digest_of_shared_file
from rewardlab.data.encoded_images import decode_images
from rewardlab.data.parquet_columns import opened_parquet, require_size

_ROWS_AT_ONCE = 1  # a few bytes of a file may stand for a large cell, again and again


@dataclass(frozen=True)
class ParquetImages:
    """So many images of a column from the row `first` on; a cell is bytes, or a struct that has `bytes`."""

    folder: Path
    path: Path
    column: str
    first: int
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their file and their place in it."""
        return digest(digest_of_shared_file(self.path), self.column, self.first, self.count)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        kept = np.unique(indices)
        wanted = set((kept + self.first).tolist())
        try:
            cells = takewhile(lambda cell: cell[0] < self.first + self.count, self._cells())
            frames = decode_images((data for row, data in cells if row in wanted), len(kept))
        except DataError as error:
            raise DataError(f"{self.path}, {self.column} from row {self.first} on: {error}") from None
        return InMemoryFrames(frames, kept, self.count, self.digest).read(indices)

    def _cells(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and bytes of the cells; row groups before and after them are not read."""
        with opened_parquet(self.folder, self.path) as file:
            if self.column not in file.schema_arrow.names:
                raise DataError("the column is missing; copy the dataset again")
            require_size(self.path, file.metadata, [self.column])
            row = 0
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if row < self.first + self.count and row + size > self.first:
                    batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[number], columns=[self.column])
                    cells = (cell for batch in batches for cell in batch.column(0).to_pylist())
                    yield from enumerate(map(_bytes, cells), start=row)
                row += size


def _bytes(cell: object) -> bytes:
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    return data if isinstance(data, bytes) else b""
