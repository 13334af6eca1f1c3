"""Frames of one episode in a TFRecord file: the record is read again and only the frames asked for are decoded."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Frames, Indices, InMemoryFrames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest
from rewardlab.data.encoded_images import decode_images
from rewardlab.data.rlds.tf_example import parse_example
from rewardlab.data.rlds.tfrecord import read_record


@dataclass(frozen=True)
class RecordImages:
    """The images of one feature of one record."""

    path: Path
    number: int
    offset: int
    size: int
    feature: str
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their record, wherever it is kept."""
        return digest(self._record(), self.feature)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        kept = np.unique(indices)
        images = parse_example(self._record())[self.feature].views()
        try:
            frames = decode_images((bytes(images[index]) for index in kept), len(kept))
        except DataError as error:
            raise DataError(f"{self.path}, record {self.number}, {self.feature}: {error}") from None
        return InMemoryFrames(frames, kept, self.count, "frames of a record").read(indices)

    def _record(self) -> bytes:
        return read_record(self.path, self.number, self.offset, self.size)
