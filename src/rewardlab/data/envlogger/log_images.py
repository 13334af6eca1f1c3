"""Frames of an EnvLogger log: the chunks that hold the steps are decoded again, and only the frames asked for."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Frames, Indices, InMemoryFrames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.seeding import digest
from rewardlab.data.dataset_files import digest_of_shared_file
from rewardlab.data.encoded_images import decode_images
from rewardlab.data.envlogger.log_values import Value, named_values
from rewardlab.data.envlogger.riegeli_file import read_records


@dataclass(frozen=True)
class LogImages:
    """What one camera saw in so many steps of a log from the given one on."""

    path: Path
    camera: str
    first: int
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their file and their place in it."""
        return digest(digest_of_shared_file(self.path), self.camera, self.first, self.count)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        kept = np.unique(indices)
        wanted = set(kept.tolist())
        try:
            steps = read_records(self.path, self.first, self.count)
            found = [step_values(data)[self.camera] for place, data in enumerate(steps) if place in wanted]
            frames = _decode(found)
        except (DataError, KeyError) as error:
            raise DataError(f"{self.path}, {self.camera} from step {self.first} on: {error}") from None
        return InMemoryFrames(frames, kept, self.count, self.digest).read(indices)


def step_values(data: bytes) -> dict[str, Value]:
    """Return the arrays of a step by their path; DataError where it is none."""
    try:
        return named_values(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a step is no value of EnvLogger ({error}); copy the log again") from None


def _decode(found: list[Value]) -> Frames:
    if found[0].pixels is None:
        return decode_images((value.data for value in found), len(found))
    pixels = [value.pixels for value in found]
    if any(each is None or each.shape != found[0].shape for each in pixels):
        raise DataError("frames have different sizes; store them at one size")
    if sum(len(value.data) for value in found) > CLIP_MB.in_bytes:
        raise DataError(f"{len(found):,} frames do not fit into memory, in MB {CLIP_MB.describe()}")
    return np.stack([each for each in pixels if each is not None])
