"""RLDS datasets in TFRecord files, compared with what was written, byte by byte, by another hand."""

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rewardlab
from rewardlab.core.episode import Label
from rewardlab.core.errors import DataError
from rewardlab.data import dataset_notes, open_dataset
from rewardlab.data.reading import wordless_note
from rewardlab.data.tfrecord import Feature, masked_crc, parse_example
from tests.data.tfrecord_writer import SPEC, Values, crc32c, decoded, episode, example, masked, record, write_rlds

TWO = [episode("open the drawer", 5), episode("push the red block", 3)]


def test_the_checksum_is_the_castagnoli_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    for size in (0, 1, 7, 8, 9, 64, 1001):
        data = np.random.default_rng(size).bytes(size)
        assert struct.pack("<I", masked_crc(data)) == masked(data)


def test_lists_are_read_as_they_were_written() -> None:
    found = parse_example(example({"a": [1, -5, 2**40], "b": [0.5, -2.0], "c": [b"x", b""], "d": []}))
    assert found["a"].numbers().tolist() == [1, -5, 2**40]
    assert found["b"].numbers().tolist() == [0.5, -2.0]
    assert [bytes(each) for each in found["c"].each()] == [b"x", b""]
    assert found["d"].numbers().size == 0 and list(found["d"].each()) == []


def test_a_list_of_numbers_that_ends_too_early_is_a_data_error() -> None:
    for kind, packed in (("int", b"\x0a\x01\xff"), ("float", b"\x0a\x01\x00")):
        with pytest.raises(DataError, match=r"no tf\.train\.Example"):
            Feature(kind, memoryview(packed)).numbers()


@pytest.mark.parametrize("packed", ["", "gzip", "zlib"])
@pytest.mark.parametrize("names", [SPEC, None])
def test_counts_texts_and_frames_are_those_written(packed: str, names: dict[str, str] | None, tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO, packed=packed, names=names)
    for data in (tmp_path, file.parent, file, f"rlds:{tmp_path}"):
        contents = open_dataset(str(data))
        assert contents.problems == ()
        assert [each.instruction for each in contents.episodes] == ["open the drawer", "push the red block"]
    for written, read in zip(TWO, contents.episodes, strict=True):
        frames = np.stack([decoded(each) for each in written["steps/observation/image"]])
        assert_array_equal(read.frames, frames)
        assert_array_equal(read.clip.source.read(np.array([2, 0, 0])), frames[[2, 0, 0]])
        assert read.clip.frame_bytes == frames[0].nbytes
        assert_array_equal(read.times, np.arange(len(frames)) / 10)
        assert (read.label, read.provenance.subset, read.provenance.camera) == (Label(5, True), "toys", "image")
    assert rewardlab.data_check(tmp_path).problems == ()


def test_cameras_are_chosen(tmp_path: Path) -> None:
    write_rlds(tmp_path, TWO)
    (wrist,) = {each.provenance.camera for each in open_dataset(f"{tmp_path}@wrist_image").episodes}
    assert wrist == "wrist_image"
    every = open_dataset(f"{tmp_path}@all").episodes
    assert len(every) == len({each.id for each in every}) == len({each.hash for each in every}) == 4
    assert "wrist_image" in str(dataset_notes(str(tmp_path))[0])
    (problem,) = open_dataset(f"{tmp_path}@top").problems
    assert "no camera 'top'; there are image, wrist_image" in problem.what


@pytest.mark.parametrize(
    "given",
    [
        {"steps__observation__natural_language_instruction": [b"open it up"] * 4},
        {"steps__observation__instruction": [*b"open it up", *[0] * 6] * 4},
        {"episode_metadata__language_instruction": [b"open it up"]},
        {"steps__language_instruction_2": [b"", b"open it up", b"", b""]},
        {"task_code": [b"open-it_up"]},
        {"steps__language_instruction": ["  öffne das\n".encode()] * 4},
    ],
)
def test_the_instruction_is_found_in_its_variants(given: dict[str, Values], tmp_path: Path) -> None:
    without = episode("", 4) | {"steps/language_instruction": [b""] * 4}
    variant = {key.replace("__", "/"): values for key, values in given.items()}
    write_rlds(tmp_path, [without | variant])
    (read,) = open_dataset(str(tmp_path)).episodes
    assert read.instruction in ("open it up", "öffne das")


def test_an_episode_without_words_is_noted_until_they_are_written(tmp_path: Path) -> None:
    write_rlds(tmp_path, [episode("", 4)])
    (note,) = wordless_note(open_dataset(str(tmp_path)).episodes)
    assert note.place == "1 of 1 episodes" and "models are asked in empty words; write it into a task.txt" in note.what
    (tmp_path / "task.txt").write_text("open the drawer\n")
    assert [each.instruction for each in open_dataset(str(tmp_path)).episodes] == ["open the drawer"]


@pytest.mark.parametrize(
    ("given", "success"),
    [
        ({"steps/reward": [0.0, 0.0, 0.0, 0.0]}, None),  # a demonstration that nobody rewarded
        ({"steps/reward": [0.0, 0.0, 100.0, 0.0]}, True),  # the last step has no reward of its own
        ({"steps/reward": [0.1, 0.2, 0.3, 0.4]}, None),  # dense rewards say nothing about the end
        ({"episode_metadata/success": [0]}, False),
    ],
)
def test_success_is_known_only_where_it_is_said(given: dict[str, Values], success: bool | None, tmp_path: Path) -> None:
    write_rlds(tmp_path, [episode("open it", 4) | given])
    (read,) = open_dataset(str(tmp_path)).episodes
    assert read.label == Label(5 if success else None, success)


def test_a_truncated_file_keeps_what_came_before(tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO)
    data = file.read_bytes()
    second = len(record(example(TWO[0])))
    for cut, words in (
        (len(data) - 1, "truncated in record 1, "),
        (second + 40, "truncated in record 1, 28 of"),
        (second + 5, "truncated in record 1, 5 of 12 bytes"),
    ):
        file.write_bytes(data[:cut])
        contents = open_dataset(str(tmp_path))
        assert [each.instruction for each in contents.episodes] == ["open the drawer"]
        assert words in contents.problems[0].what and "copy the file again" in contents.problems[0].what


@pytest.mark.parametrize("packed", ["gzip", "zlib"])
def test_a_truncated_compressed_file_is_said(packed: str, tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO, packed=packed)
    file.write_bytes(file.read_bytes()[:-200])
    contents = open_dataset(str(tmp_path))
    assert "cannot be decompressed" in contents.problems[0].what


def test_damaged_bytes_are_told_by_their_record(tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO)
    sound = file.read_bytes()
    second = len(record(example(TWO[0])))
    for place, words in (
        (200, "the data of record 0 have a wrong checksum"),
        (second + 3, "the length of record 1 has a wrong checksum; the file is damaged from here on"),
        (second + 300, "the data of record 1 have a wrong checksum"),
        (0, "the length of record 0 has a wrong checksum; it is no TFRecord file"),
    ):
        damaged = bytearray(sound)
        damaged[place] ^= 4
        file.write_bytes(damaged)
        assert words in open_dataset(str(tmp_path)).problems[0].what


def test_a_file_that_changes_after_opening_is_noticed(tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO)
    read = open_dataset(str(tmp_path)).episodes[1]
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match="the data of record 1 have a wrong checksum"):
        _ = read.frames


def test_features_that_are_not_known_are_named(tmp_path: Path) -> None:
    write_rlds(tmp_path, [episode("open it", 4, steps__extra=[1, 2, 3, 4])], names=SPEC | {"steps/cloud": "PointCloud"})
    notes = " | ".join(str(note) for note in dataset_notes(str(tmp_path)))
    assert "features that are not read: steps/cloud (PointCloud)" in notes
    assert "features that features.json does not name: steps/extra" in notes


def test_a_record_without_the_promised_camera_is_a_problem(tmp_path: Path) -> None:
    blind = {name: values for name, values in TWO[1].items() if "image" not in name}
    write_rlds(tmp_path, [TWO[0], blind])
    contents = open_dataset(str(tmp_path))
    assert len(contents.episodes) == 1
    assert "no frames in steps/observation/image, which the dataset says it has" in contents.problems[0].what


def test_records_that_are_no_episodes_are_said(tmp_path: Path) -> None:
    write_rlds(tmp_path, [{"image_0": [b"x"], "success": [1]}], names=None)
    (problem,) = open_dataset(str(tmp_path)).problems
    assert "no JPEG or PNG among the features of the record, which are image_0, success" in problem.what
    write_rlds(tmp_path, [], names={"steps/action": "Tensor"}).write_bytes(record(b"\xff\xff\xff") + record(b"hello"))
    assert "no RGB Image among the features of steps, but steps/action" in open_dataset(str(tmp_path)).problems[0].what
    write_rlds(tmp_path, []).write_bytes(record(b"\xff\xff\xff") + record(b"hello"))
    said = [problem.what for problem in open_dataset(str(tmp_path)).problems]
    assert len(said) == 2 and all("the record is no tf.train.Example" in each for each in said)


def test_files_that_are_not_here_are_noted(tmp_path: Path) -> None:
    file = write_rlds(tmp_path, TWO)
    file.rename(file.with_name("toys-train.tfrecord-00001-of-00004"))
    assert "toys-train: 1 of 4 files are here" in str(dataset_notes(str(tmp_path))[-1])


def test_a_record_larger_than_allowed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    length = struct.pack("<Q", 5_000_000)
    write_rlds(tmp_path, []).write_bytes(length + masked(length))
    monkeypatch.setenv("REWARDLAB_MAX_RECORD_MB", "1")
    (problem,) = open_dataset(str(tmp_path)).problems
    assert "record 0 has 5 MB, at most 1 are taken in" in problem.what


def test_damaged_images_are_told_by_their_step(tmp_path: Path) -> None:
    bad = episode("open it", 4)
    bad["steps/observation/image"] = [*bad["steps/observation/image"][:2], b"GIF89a", b""]
    write_rlds(tmp_path, [bad])
    (problem,) = rewardlab.data_check(tmp_path).problems
    assert "record 0, steps/observation/image: expected a JPEG or PNG image, got bytes" in problem.what
