"""Videos that are there twice, with real encoded files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from rewardlab.api import bench_plan
from rewardlab.cli import main
from rewardlab.core.episode import Episode, Frames, episode_from_frames
from rewardlab.core.video_encoding import encode
from rewardlab.data import DATASETS, open_dataset
from rewardlab.data.duplicates import (
    MAYBE_DUPLICATE,
    NEAR_DUPLICATE,
    compared_frames,
    episodes_to_leave_out,
    find_duplicates,
    frame_hashes,
    motion_distance,
    video_distance,
)
from rewardlab.evaluation.bench import run_benchmark
from tests.conftest import write_rows

CLIPS = ("bridge_v2/175c9d5a21.mp4", "robometer_page/9349ae2359.mp4", "pi0_wild/9f982858c6.mp4")


def sample(names: tuple[str, ...] = CLIPS) -> list[Episode]:
    every = {episode.id: episode for episode in open_dataset("sample").episodes}
    return [every[name] for name in names]


def resized(frames: Frames) -> Frames:
    height, width = frames.shape[1:3]
    size = (width * 6 // 20 * 2, height * 6 // 20 * 2)
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


CHANGES: dict[str, Callable[[Frames], tuple[Frames, int]]] = {
    "another quality": lambda frames: (frames, 36),
    "another size": lambda frames: (resized(frames), 23),
    "without its first frames": lambda frames: (frames[2:], 23),
    "without its last frames": lambda frames: (frames[:-2], 23),
    "smaller, shorter and worse": lambda frames: (resized(frames)[1:-1], 30),
}


@pytest.mark.parametrize(
    "change", [c if c == "another size" else pytest.param(c, marks=pytest.mark.slow) for c in CHANGES]
)
def test_a_copy_is_found_in_the_training_set(change: str, tmp_path: Path) -> None:
    rows = []
    for number, episode in enumerate(sample()):
        frames, quality = CHANGES[change](episode.frames)
        encode(frames, tmp_path / f"{number}.mp4", episode.clip.fps, crf=quality)
        rows.append({"file_name": f"{number}.mp4", "task": f"another instruction {number}", "reward": 3})
    training = open_dataset(str(write_rows(tmp_path, rows))).episodes
    test = [*sample(), *sample(("bridge_v2/9be3d357ea.mp4", "robometer_page/63c7121f5e.mp4"))]
    copies = find_duplicates(test, training, tmp_path, ordered_map=map)["copies"]
    assert [(c["episode"], c["other"], c["where"], c["kind"]) for c in copies] == [
        (name, f"{number}.mp4", "training", "near") for number, name in enumerate(CLIPS)
    ]
    assert episodes_to_leave_out(copies) == set(CLIPS)


@pytest.mark.slow
def test_different_clips_are_no_copies_even_of_the_same_scene(tmp_path: Path) -> None:
    episodes = open_dataset("sample").episodes
    assert find_duplicates(episodes, None, tmp_path, ordered_map=map)["copies"] == []
    same_scene = sample(("pi0_wild/c6791532de.mp4", "pi0_wild/55606f7bec.mp4"))
    near, other = (frame_hashes(compared_frames(e.clip.source)) for e in same_scene)
    assert 0.06 < video_distance(near, other) < 0.1


def test_what_moves_tells_rollouts_of_one_scene_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(0, 255, (1, 12, 12, 3), dtype=np.uint8), np.ones((1, 10, 10, 1), dtype=np.uint8))

    def rollout(rows: range) -> Frames:
        frames = np.repeat(scene, len(rows), axis=0).copy()
        for frame, row in zip(frames, rows, strict=True):
            frame[row : row + 7, 3 * (row % 30) : 3 * (row % 30) + 7] = (250, 20, 20)
        return frames

    there, back = rollout(range(0, 40, 2)), rollout(range(60, 100, 2))
    noisy = np.clip(there + rng.normal(0, 4, there.shape), 0, 255).astype(np.uint8)
    assert NEAR_DUPLICATE < video_distance(frame_hashes(there), frame_hashes(back)) < MAYBE_DUPLICATE
    assert motion_distance(there, noisy) < 0.3 < 0.9 < motion_distance(there, back)
    episodes = [episode_from_frames(frames, "push it") for frames in (there, back, noisy)]
    (copy,) = find_duplicates(episodes, None, tmp_path, ordered_map=map)["copies"]
    assert (copy["episode"], copy["other"], copy["kind"]) == (episodes[2].id, episodes[0].id, "near")


def written(folder: Path) -> Path:
    """A test set in which one clip comes three times, once under another instruction, and one in other words."""
    rows = []
    for number, (name, task) in enumerate(
        [(CLIPS[0], "move it"), (CLIPS[1], "open it"), (CLIPS[0], "move it"), (CLIPS[0], "close it"), (CLIPS[2], "go")]
    ):
        target = f"arm/{number}.mp4"
        (folder / "arm").mkdir(parents=True, exist_ok=True)
        shutil.copy(DATASETS["sample"] / name, folder / target)
        rows.append({"file_name": target, "task": task, "reward": 1 + number % 5})
    return write_rows(folder, rows)


def test_exact_copies_are_told_from_the_same_video_under_another_instruction(tmp_path: Path) -> None:
    episodes = open_dataset(str(written(tmp_path / "data"))).episodes
    copies = find_duplicates(episodes, None, tmp_path, ordered_map=map)["copies"]
    found = {c["episode"]: (c["other"], c["kind"], c["distance"], c["same_instruction"]) for c in copies}
    assert found == {"arm/2.mp4": ("arm/0.mp4", "exact", 0.0, True), "arm/3.mp4": ("arm/0.mp4", "exact", 0.0, False)}
    assert episodes_to_leave_out(copies) == {"arm/2.mp4"}


def test_the_run_folder_and_the_terminal_tell_what_copies_do_to_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "data")
    training = write_rows(tmp_path / "train", [{"file_name": "x.mp4", "task": "other", "reward": 3}])
    shutil.copy(data / "arm" / "4.mp4", training / "x.mp4")
    arguments = ["bench", "constant:1", str(data), "--against", str(training), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--engine", "local"]) == 0
    found = json.loads((tmp_path / "run" / "duplicates.json").read_text())
    assert (found["episodes"], found["training_episodes"], found["not_decoded"]) == (5, 1, [])
    assert episodes_to_leave_out(found["copies"]) == {"arm/2.mp4", "arm/4.mp4"}
    assert found["mae"]["constant:1"]["strict"] == {"with": 2.0, "without": pytest.approx((0 + 1 + 3) / 3)}
    said = " ".join(capsys.readouterr().out.split())
    assert "2 of 5 videos come earlier in the set, 1 are in the training set" in said
    assert "2 (40.0%) count twice or leaked: MAE of constant:1 2.000 with, 1.333 without them" in said


def test_nothing_is_hashed_twice_and_a_broken_line_or_video_stops_nothing(tmp_path: Path) -> None:
    data = written(tmp_path / "data")
    episodes = open_dataset(str(data)).episodes
    first = find_duplicates(episodes, None, tmp_path, ordered_map=map)
    lines = (tmp_path / "signatures.jsonl").read_text().splitlines()
    assert len(lines) == 3  # one for each video, however often it is there
    (tmp_path / "signatures.jsonl").write_text("\n".join([*lines[:2], lines[2][:40]]) + "\n")
    assert find_duplicates(episodes, None, tmp_path, ordered_map=map) == first
    assert len((tmp_path / "signatures.jsonl").read_text().splitlines()) == 4
    digests = [episode.clip.source.digest for episode in episodes]  # known before the file is cut
    (tmp_path / "signatures.jsonl").unlink()
    (data / "arm" / "1.mp4").write_bytes((data / "arm" / "1.mp4").read_bytes()[:3000])
    again = find_duplicates(episodes, None, tmp_path, ordered_map=map)
    assert len(set(digests)) == 3 and again["not_decoded"] == ["arm/1.mp4"] and again["copies"] == first["copies"]


def test_looking_for_copies_can_be_left_out(tmp_path: Path) -> None:
    data = written(tmp_path / "data")
    given = {"models": "length", "data": data, "controls": False, "engine": "local", "out": tmp_path / "run"}
    assert not (run_benchmark(bench_plan(given), duplicates=False, against=None).folder / "duplicates.json").exists()
