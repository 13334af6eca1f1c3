"""Files of every format with bytes changed, cut and put in: each is read or refused in a sentence, and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.seeding import rng_for
from rewardlab.data import dataset_notes, open_dataset
from tests.data.lerobot_writer import write_v2, write_v3
from tests.data.test_formats_end_to_end import WRITERS
from tests.data.tfrecord_writer import episode, example, record, write_rlds

ROUNDS = 60


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with a few of them changed, cut off, doubled or left out."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place, size = int(rng.integers(len(changed) + 1)), int(rng.integers(1, 40))
        kind = int(rng.integers(4))
        if kind == 0:
            changed[place : place + size] = rng.bytes(min(size, 4))
        elif kind == 1:
            del changed[place:]
        elif kind == 2:
            changed[place:place] = changed[place : place + size]
        elif changed:
            changed[place % len(changed)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
    return bytes(changed)


def read_everything(data: str) -> None:
    """Open, note and decode; only errors on purpose are let through."""
    for step in (dataset_notes, _read):
        with suppress(RewardlabError):
            step(data)


def _read(data: str) -> None:
    contents = open_dataset(data)
    assert not any("\n" in str(problem) for problem in contents.problems)
    for each in contents.episodes:
        with suppress(DataError):
            frames = each.clip.source.read(each.clip.order[[0, -1]])
            assert frames.dtype == np.uint8 and frames.shape[0] == 2 and frames.shape[-1] == 3


def each_mutation(folder: Path, name: str) -> Iterator[None]:
    """Change one file of the folder at a time and put it right again."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for number in range(ROUNDS):
        rng = rng_for(number, name)
        path = files[int(rng.integers(len(files)))]
        sound = path.read_bytes()
        path.write_bytes(mutated(sound, rng))
        yield
        path.write_bytes(sound)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "roboreward"])
def test_changed_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    write, suffix = WRITERS[kind]
    write(tmp_path / "data")
    for _ in each_mutation(tmp_path / "data", kind):
        read_everything(f"{tmp_path / 'data'}{suffix}")


@pytest.mark.parametrize("writer", [write_v2, write_v3])
def test_changed_rows_with_images_are_read_or_refused(writer: Callable[..., Path], tmp_path: Path) -> None:
    writer(tmp_path / "data", images=True)
    for _ in each_mutation(tmp_path / "data", "images in rows"):
        read_everything(f"{tmp_path / 'data'}@all")


def test_records_whose_checksums_are_right_and_content_is_not(tmp_path: Path) -> None:
    sound = example(episode("open the drawer", 3))
    file = write_rlds(tmp_path, [])
    for number in range(4 * ROUNDS):
        file.write_bytes(record(mutated(sound, rng_for(number, "sealed"))))
        read_everything(f"{tmp_path}@all")


def test_a_text_that_is_repeated_without_end_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    count = 20_000
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["x" * 2_000_000]))
    table = pa.table({"file_name": column, "task": column})
    pq.write_table(table, tmp_path / "metadata.parquet")
    contents = open_dataset(str(tmp_path))
    assert len(contents.problems) == count
    assert "must be a path below the folder" in contents.problems[0].what
