"""Demonstrations in HDF5 files, compared with what h5py says of the same files."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rewardlab
from rewardlab.core.episode import Label
from rewardlab.core.errors import DataError
from rewardlab.data import dataset_notes, open_dataset
from tests.conftest import moving_square

h5py = pytest.importorskip("h5py")

ARGUMENTS = {"env_name": "Lift", "env_kwargs": {"control_freq": 20, "robots": ["Panda"], "reward_shaping": False}}
CAMERAS = ("robot0_eye_in_hand_image", "agentview_image")


def write_demos(path: Path, demos: dict[str, int], arguments: dict[str, Any] | None = ARGUMENTS) -> Path:
    """Write demonstrations of so many frames; those of even length succeed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        if arguments is not None:
            data.attrs["env_args"] = json.dumps(arguments)
        for name, count in demos.items():
            for camera in CAMERAS:
                frames = moving_square(f"{name} {camera}", count=count)
                data.create_dataset(f"{name}/obs/{camera}", data=frames, compression="gzip")
            data.create_dataset(f"{name}/obs/robot0_eef_pos", data=np.zeros((count, 3)))
            data.create_dataset(f"{name}/rewards", data=[0.0] * (count - 1) + [1.0 - count % 2])
    return path


def test_counts_times_and_frames_are_those_that_h5py_says(tmp_path: Path) -> None:
    path = write_demos(tmp_path / "lift_image.hdf5", {"demo_10": 6, "demo_2": 5})
    for data in (tmp_path, path, f"hdf5:{tmp_path}"):
        contents = open_dataset(str(data))
        assert contents.problems == ()
        names = [f"lift_image.hdf5#{name}@agentview_image" for name in ("demo_2", "demo_10")]
        assert [each.id for each in contents.episodes] == names
    with h5py.File(path) as file:
        for name, episode in zip(("demo_2", "demo_10"), contents.episodes, strict=True):
            frames = file[f"data/{name}/obs/agentview_image"][:]
            assert_array_equal(episode.frames, frames)
            assert_array_equal(episode.clip.source.read(np.array([3, 0, 3])), frames[[3, 0, 3]])
            assert_array_equal(episode.times, np.arange(len(frames)) / 20)
            assert episode.clip.frame_bytes == frames[0].nbytes
            assert (episode.provenance.embodiment, episode.instruction) == ("Panda", "lift the cube")
    assert [each.label for each in contents.episodes] == [Label(None, False), Label(5, True)]
    assert rewardlab.data_check(tmp_path).problems == ()


def test_cameras_are_chosen(tmp_path: Path) -> None:
    path = write_demos(tmp_path / "lift.hdf5", {"demo_0": 4})
    assert len({each.id for each in open_dataset(f"{path}@all").episodes}) == 2
    (episode,) = open_dataset(f"{path}@robot0_eye_in_hand_image").episodes
    assert episode.provenance.camera == "robot0_eye_in_hand_image"
    assert "agentview_image is read" in str(dataset_notes(str(path))[0])
    (problem,) = open_dataset(f"{path}@top").problems
    assert "no camera 'top'; there are agentview_image, robot0_eye_in_hand_image" in problem.what


def test_the_instruction_is_found_in_its_variants(tmp_path: Path) -> None:
    path = write_demos(tmp_path / "a.hdf5", {"demo_0": 4}, {"env_name": "KitchenOpenDoor"})
    assert open_dataset(str(path)).episodes[0].instruction == "kitchen open door"
    with h5py.File(path, "a") as file:  # as LIBERO has it
        file["data"].attrs["problem_info"] = json.dumps({"language_instruction": "open the top drawer"})
    assert open_dataset(str(path)).episodes[0].instruction == "open the top drawer"
    with h5py.File(path, "a") as file:  # as RoboCasa has it
        file["data/demo_0"].attrs["ep_meta"] = json.dumps({"lang": "open the left door"})
    assert open_dataset(str(path)).episodes[0].instruction == "open the left door"
    path = write_demos(tmp_path / "b" / "0001.hdf5", {"demo_0": 4}, None)
    assert open_dataset(str(path)).episodes[0].instruction == ""
    (path.parent / "task.txt").write_text("close the lid")
    assert open_dataset(str(path)).episodes[0].instruction == "close the lid"


def test_files_without_frames_say_what_to_do(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "low.hdf5", "w") as file:
        file.create_dataset("data/demo_0/obs/robot0_eef_pos", data=np.zeros((4, 3)))
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file.create_dataset("env/qpos", data=np.zeros((9, 7)))
    said = {problem.place: problem.what for problem in open_dataset(str(tmp_path)).problems}
    assert "render them with dataset_states_to_obs.py" in said["low.hdf5, demo_0"]
    assert "expected demonstrations in data/demo_0, data/demo_1, ..., got env" in said["other.hdf5"]


def test_a_truncated_file_is_said(tmp_path: Path) -> None:
    path = write_demos(tmp_path / "lift.hdf5", {"demo_0": 6})
    path.write_bytes(path.read_bytes()[:-500])
    assert "cannot be read as HDF5" in open_dataset(str(path)).problems[0].what
    path.write_bytes(b"not HDF5 at all")
    assert "cannot be read as HDF5" in open_dataset(str(path)).problems[0].what


def test_nothing_leads_to_another_file(tmp_path: Path) -> None:
    secret = write_demos(tmp_path / "secret" / "lift.hdf5", {"demo_0": 4})
    path = tmp_path / "data" / "lift.hdf5"
    path.parent.mkdir()
    raw = np.lib.format.open_memmap(tmp_path / "raw.npy", "w+", np.uint8, (4, 8, 8, 3))
    layout = h5py.VirtualLayout((4, 48, 48, 3), np.uint8)
    layout[:] = h5py.VirtualSource(str(secret), f"data/demo_0/obs/{CAMERAS[1]}", (4, 48, 48, 3))
    with h5py.File(path, "w") as file:
        file["data/demo_0/obs/link"] = h5py.ExternalLink(str(secret), f"data/demo_0/obs/{CAMERAS[1]}")
        file["data/demo_1"] = h5py.ExternalLink(str(secret), "data/demo_0")
        file["data/demo_2/obs/soft"] = h5py.SoftLink("/data/demo_0")
        file.create_group("data/demo_3/obs").create_virtual_dataset("virtual", layout)
        stored = [(str(tmp_path / "raw.npy"), 0, h5py.h5f.UNLIMITED)]
        file.create_group("data/demo_4/obs").create_dataset("kept", raw.shape, np.uint8, external=stored)
    contents = open_dataset(str(path))
    assert contents.episodes == ()
    places = [problem.place for problem in contents.problems if "is a link to elsewhere" in problem.what]
    assert places == ["lift.hdf5, demo_0", "lift.hdf5"]  # a link among the demonstrations stops the file
    with h5py.File(path, "a") as file:
        del file["data/demo_1"]
    said = [problem.what for problem in open_dataset(str(path)).problems]
    assert ["link to elsewhere" in each for each in said[:2]] == [True, True]
    assert ["is kept in another file" in each for each in said[2:]] == [True, True]


def test_a_chunk_larger_than_memory_may_hold_is_not_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "lift.hdf5", "w") as file:
        shape = (1000, 600, 600, 3)
        file.create_dataset("data/demo_0/obs/front", shape, np.uint8, chunks=shape, compression="gzip")
    (problem,) = open_dataset(str(tmp_path)).problems
    assert "chunks of shape (1000, 600, 600, 3) do not fit into memory" in problem.what


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_demos(tmp_path / "lift.hdf5", {"demo_0": 4})
    episode = open_dataset(str(path)).episodes[0]
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "pip install 'rewardlab[hdf5]'" in open_dataset(str(path)).problems[0].what
    with pytest.raises(DataError, match="needs the package h5py"):
        _ = episode.frames
