"""Frames of one episode in a TFRecord file: the record is read again and only the frames asked for are decoded."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Frames, Indices, InMemoryFrames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest
from rewardlab.data.rlds.record_layout import decode_frames, frames_of_camera
from rewardlab.data.rlds.tf_example import parse_example
from rewardlab.data.rlds.tfrecord import read_record


@dataclass(frozen=True)
class RecordImages:
    """What one camera saw of the episode in one record."""

    path: Path
    number: int
    offset: int
    size: int
    camera: str
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their record, wherever it is kept."""
        return digest(self._record(), self.camera)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        kept = np.unique(indices)
        features = parse_example(self._record())
        images = frames_of_camera(features, self.camera)
        try:
            frames = decode_frames(features, self.camera, [images[index] for index in kept])
        except DataError as error:
            raise DataError(f"{self.path}, record {self.number}, {self.camera}: {error}") from None
        return InMemoryFrames(frames, kept, self.count, "frames of a record").read(indices)

    def _record(self) -> bytes:
        return read_record(self.path, self.number, self.offset, self.size)
