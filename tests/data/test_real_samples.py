"""Files that other projects publish: frames, texts and times are what another reader says of the same bytes."""

import gzip
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rewardlab
from rewardlab.core.trial import Trial
from rewardlab.data import open_dataset
from rewardlab.data.riegeli import read_records
from rewardlab.evaluation.evaluate import evaluate
from tests.plans import stress_plan

SAMPLES = Path(__file__).parent / "real_samples"
EPISODES = {  # how many a sample holds, for one camera and for all
    "bair": (1, 2),
    "envlogger": (2, 2),
    "language_table": (1, 1),
    "lerobot_v2_gr1": (2, 2),
    "octo_bridge": (1, 4),
    "rlds_without_words": (1, 1),
    "robomimic": (1, 2),
    "robonet": (1, 1),
}


def require_packages(name: str) -> None:
    needed = {"envlogger": "brotli", "robomimic": "h5py", "robonet": "h5py"}
    if name in needed:
        pytest.importorskip(needed[name])


def picture(data: bytes) -> np.ndarray:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))[..., ::-1]


def examples(path: Path) -> Iterator[dict[str, list[Any]]]:
    """The records of a TFRecord file, read by the protobuf package from the published definition of the message."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = {"BytesList": 12, "FloatList": 2, "Int64List": 3}  # types of fields: bytes, float, int64
    for name, kind in kinds.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=3, type=kind)
    feature = file.message_type.add(name="Feature")
    for number, name in enumerate(kinds, start=1):
        feature.field.add(name=name, number=number, label=1, type=11, type_name=f".t.{name}")
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".t.Feature")
    features.field.add(name="feature", number=1, label=3, type=11, type_name=".t.Features.FeatureEntry")
    whole = file.message_type.add(name="Example")
    whole.field.add(name="features", number=1, label=1, type=11, type_name=".t.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    example = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))
    data = path.read_bytes()
    data, place = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        read = example.FromString(data[place + 12 : place + 12 + length]).features.feature
        yield {name: [v for kind in kinds for v in getattr(each, kind).value] for name, each in read.items()}
        place += length + 16


@pytest.mark.parametrize("name", EPISODES)
def test_it_is_read_for_one_camera_and_for_all(name: str) -> None:
    require_packages(name)
    one, every = EPISODES[name]
    for data, count in ((str(SAMPLES / name), one), (f"{SAMPLES / name}@all", every)):
        contents = open_dataset(data)
        assert contents.problems == () and len({each.id for each in contents.episodes}) == count
    assert rewardlab.data_check(SAMPLES / name).problems == ()


def test_rlds_is_what_protobuf_reads() -> None:
    names = {
        "octo_bridge": ("steps/observation/image_0", "steps/language_instruction"),
        "language_table": ("steps/observation/rgb", "steps/observation/instruction"),
        "rlds_without_words": ("steps/observation/image", "steps/observation/natural_language_instruction"),
    }
    for name, (image, text) in names.items():
        (file,) = (SAMPLES / name).rglob("*.tfrecord-*")
        (record,) = examples(file)
        (episode,) = open_dataset(str(SAMPLES / name)).episodes
        words = record[text]
        stated = words[0] if isinstance(words[0], bytes) else bytes(words[: len(words) // len(record[image])])
        assert episode.instruction == stated.rstrip(b"\0").decode()
        assert_array_equal(episode.frames, [picture(data) for data in record[image]])
        assert_array_equal(episode.times, np.arange(len(record[image])) / 10)


def test_frames_of_one_feature_per_step_are_what_protobuf_reads() -> None:
    (record,) = examples(SAMPLES / "bair" / "softmotion30_44k" / "test" / "traj_0_to_255.tfrecords")
    for camera in ("image_main", "image_aux1"):
        (episode,) = open_dataset(f"{SAMPLES / 'bair'}@{camera}").episodes
        stored = [record[f"{step}/{camera}/encoded"][0] for step in range(30)]
        assert_array_equal(episode.frames, np.frombuffer(b"".join(stored), np.uint8).reshape(30, 64, 64, 3))
    assert open_dataset(str(SAMPLES / "bair")).episodes[0].provenance.camera == "image_main"


def test_lerobot_is_what_pyarrow_and_pyav_read() -> None:
    folder = SAMPLES / "lerobot_v2_gr1"
    tasks = {
        row["task_index"]: row["task"]
        for row in map(json.loads, (folder / "meta" / "tasks.jsonl").read_text().splitlines())
    }
    for number, episode in zip((1, 4), open_dataset(str(folder)).episodes, strict=True):
        table = pq.read_table(folder / "data" / "chunk-000" / f"episode_{number:06d}.parquet")
        with av.open(str(next(folder.rglob(f"episode_{number:06d}.mp4")))) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert_allclose(episode.frames, frames, atol=1)
        assert episode.times == pytest.approx(np.array(table["timestamp"]) - table["timestamp"][0].as_py(), abs=1e-6)
        assert episode.instruction == tasks[table["task_index"][0].as_py()]


def test_robomimic_is_what_h5py_reads() -> None:
    h5py = pytest.importorskip("h5py")
    (episode,) = open_dataset(str(SAMPLES / "robomimic")).episodes
    with h5py.File(SAMPLES / "robomimic" / "lift_image.hdf5") as file:
        (demo,) = file["data"].values()
        assert_array_equal(episode.frames, demo["obs/agentview_image"])
        rate = json.loads(file["data"].attrs["env_args"])["env_kwargs"]["control_freq"] if file["data"].attrs else 10
    assert_array_equal(episode.times, np.arange(4) / rate)
    assert episode.instruction == "lift the cube"


def test_robonet_is_what_h5py_and_pyav_read_with_red_and_blue_put_right() -> None:
    h5py = pytest.importorskip("h5py")
    (episode,) = open_dataset(str(SAMPLES / "robonet")).episodes
    with h5py.File(SAMPLES / "robonet" / "stanford_fetch_traj464.hdf5") as file:
        array = file["env/cam0_video/frames"]
        assert array.attrs["image_format"] == "BGR" and array.attrs["T"] == 15
        with av.open(io.BytesIO(array[()].tobytes()), "r") as container:
            decoded = list(container.decode(video=0))
    assert_allclose(episode.frames, [frame.to_ndarray(format="rgb24")[..., ::-1] for frame in decoded], atol=1)
    assert episode.times == pytest.approx([float(frame.time) for frame in decoded])
    assert (episode.instruction, episode.provenance.embodiment) == ("interact with the objects in the bin", "fetch")


def test_a_riegeli_log_gives_back_every_byte_of_its_pictures() -> None:
    brotli = pytest.importorskip("brotli")
    file = next((SAMPLES / "envlogger").rglob("steps.riegeli"))
    data = file.read_bytes()
    blocks = b"".join(data[start + 24 : start + (1 << 16)] for start in range(0, len(data), 1 << 16))
    size, _, kind, decoded = struct.unpack_from("<4Q", blocks, 48)  # of the one chunk, which comes after the signature
    records = list(read_records(file))
    assert len(records) == kind >> 8 == 42 and sum(map(len, records)) == decoded
    pictures = [pictures_in(record)[0] for record in records]
    assert pictures_in(b"".join(decompressed(brotli, blocks[80 : 80 + size]))) == pictures[::-1]  # kept in reverse
    episodes = open_dataset(str(SAMPLES / "envlogger")).episodes
    assert_array_equal(np.concatenate([each.frames for each in episodes]), [picture(each) for each in pictures])
    assert {each.instruction for each in episodes} == {"pick up the can and place it in the bin"}


def pictures_in(data: bytes) -> list[bytes]:
    starts = [place for place in range(len(data)) if data.startswith(b"\xff\xd8\xff", place)]
    return [data[start : data.index(b"\xff\xd9", start) + 2] for start in starts]


def decompressed(brotli: Any, chunk: bytes) -> Iterator[bytes]:
    """The buckets of a transposed chunk, which are compressed one by one after a header that says their sizes."""
    size, place = number_at(chunk, 1)
    header = brotli.decompress(chunk[number_at(chunk, place)[1] : place + size])
    start = place + size
    buckets, at = number_at(header, 0)
    _, at = number_at(header, at)
    for _ in range(buckets):
        length, at = number_at(header, at)
        yield brotli.decompress(chunk[number_at(chunk, start)[1] : start + length])
        start += length


def number_at(data: bytes, place: int) -> tuple[int, int]:
    end = next(index for index in range(place, len(data)) if data[index] < 0x80) + 1
    return sum((byte & 0x7F) << 7 * shift for shift, byte in enumerate(data[place:end])), end


def scored(data: str, folder: Path) -> list[Trial]:
    scoring = dict(workers=1, engine="local", out=folder)
    plan = stress_plan(("pocket",), data, ("jpeg", "reverse"), (2,), controls=False, **scoring)
    return evaluate(plan).trials().rows()


def test_a_stress_test_runs_on_a_sample_as_it_is(tmp_path: Path) -> None:
    trials = scored(f"{SAMPLES / 'bair'}@all", tmp_path)
    assert len(trials) == 6 and {trial.status for trial in trials} == {"scored"}


def test_a_model_that_needs_words_says_so_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = scored(str(SAMPLES / "rlds_without_words"), tmp_path)
    assert "1 of 1 episodes: no instruction is stored" in capsys.readouterr().err
    assert {trial.status for trial in trials} == {"failed"}
    assert all("the instruction is empty" in str(trial.reason) for trial in trials)
