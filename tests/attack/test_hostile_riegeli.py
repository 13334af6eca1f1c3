"""Riegeli chunks without compression, so that every changed byte reaches the state machine that takes them apart."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.data.envlogger import named_values
from rewardlab.data.riegeli import read_records, varint_bytes
from tests.attack.test_hostile_formats import mutated
from tests.data.test_real_samples import SAMPLES, decompressed, number_at

brotli = pytest.importorskip("brotli")
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c3727300000000000000" + "00" * 8
)


def chunk_file(data: bytes, records: int, size: int, kind: str = "t") -> bytes:
    """A file with one chunk that says it holds so many records of so many bytes."""
    header = struct.pack("<5Q", 0, len(data), 0, records << 8 | ord(kind), size)
    whole = header + data
    first = (1 << 16) - len(SIGNATURE)
    out = SIGNATURE + whole[:first]
    for start in range(first, len(whole), (1 << 16) - 24):
        out += bytes(24) + whole[start : start + (1 << 16) - 24]
    return out


@pytest.fixture(scope="module")
def plain() -> tuple[bytes, int, int]:
    """The metadata of the sample, its chunk without compression: the data, how many records, and their size."""
    data = next((SAMPLES / "envlogger").rglob("metadata.riegeli")).read_bytes()
    size, _, kind, decoded = struct.unpack_from("<4Q", data, 72)
    chunk = data[104 : 104 + size]
    length, place = number_at(chunk, 1)
    header = brotli.decompress(chunk[number_at(chunk, place)[1] : place + length])
    buckets = list(decompressed(brotli, chunk))
    count, at = number_at(header, 0)
    buffers, at = number_at(header, at)
    used = place + length
    for _ in range(count):
        packed, at = number_at(header, at)
        used += packed
    rest = brotli.decompress(chunk[number_at(chunk, used)[1] :])
    sizes = b"".join(varint_bytes(len(bucket)) for bucket in buckets)
    new = varint_bytes(count) + varint_bytes(buffers) + sizes + header[at:]
    return b"\0" + varint_bytes(len(new)) + new + b"".join(buckets) + rest, kind >> 8, decoded


def test_a_chunk_without_compression_is_the_same(plain: tuple[bytes, int, int], tmp_path: Path) -> None:
    (tmp_path / "a.riegeli").write_bytes(chunk_file(*plain))
    packed = next((SAMPLES / "envlogger").rglob("metadata.riegeli"))
    assert list(read_records(tmp_path / "a.riegeli")) == list(read_records(packed))


def test_changed_machines_are_read_or_refused(plain: tuple[bytes, int, int], tmp_path: Path) -> None:
    data, records, size = plain
    refused = []
    for number in range(400):
        (tmp_path / "a.riegeli").write_bytes(chunk_file(b"\0" + mutated(data[1:], rng_for(number, "r")), records, size))
        try:
            for record in read_records(tmp_path / "a.riegeli"):
                with suppress(ValueError):
                    named_values(record)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all("cannot be read as a Riegeli file" in said and "\n" not in said for said in refused)


@pytest.mark.parametrize(
    ("data", "records", "size", "words"),
    [
        (b"\0" + b"\xff" * 12, 1, 10, "a number does not end"),
        (b"\0\x05\x00\x00\xff\xff\x7f", 1, 10, "things are promised"),
        (b"b" + b"\x05\xff\xff\xff\xff\x7f", 1, 10, "MB of records, at most"),
        (b"z\x00", 1, 10, "truncated|bytes are expected"),
        (b"\0\x00", 1 << 40, 10, "truncated: a chunk"),
        (b"\0\x00", 1, 1 << 50, "a chunk of .* MB, at most"),
        (b"\0\x09\x00\x00\x02\x00\x00\x02\x03\x00" + bytes(50), 1, 9, "does not end|records of"),  # nodes in a circle
    ],
)
def test_promises_are_not_believed(data: bytes, records: int, size: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.riegeli").write_bytes(chunk_file(data, records, size))
    with pytest.raises(DataError, match=words):
        list(read_records(tmp_path / "a.riegeli"))


def test_values_inside_each_other_without_end_are_refused() -> None:
    data = b""
    for _ in range(5000):
        inner = b"\x0a" + varint_bytes(len(data)) + data
        data = b"\x1a" + varint_bytes(len(inner)) + inner
    with pytest.raises(ValueError, match="too many values inside each other"):
        named_values(data)
