"""A large dataset is read once: the next command knows its files, unless one of them changed."""

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.video_encoding import encode
from rewardlab.data import known_files, open_dataset, video
from rewardlab.data.safe_files import digest_of_file
from rewardlab.data.safe_video import VideoInfo, VideoLocation, read_info
from rewardlab.data.video import read_digests
from tests.conftest import moving_square, write_rows


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Count what is read of each video; files of a test are settled at once, and one finding is worth keeping."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(known_files, "_TOGETHER", 1)
    monkeypatch.setattr(known_files, "_SETTLED_SECONDS", -1e9)
    found = Counter[str]()

    def counted_info(path: VideoLocation) -> VideoInfo:
        found[f"info of {Path(str(path)).name}"] += 1
        return read_info(path)

    def counted_digest(path: Path) -> str:
        found[f"digest of {path.name}"] += 1
        return digest_of_file(path)

    monkeypatch.setattr(video, "read_info", counted_info)
    monkeypatch.setattr(video, "digest_of_file", counted_digest)
    return found


def next_command(data: Path) -> list[tuple[str, str]]:
    """Open the dataset as a new process does, and return the identity of each episode."""
    video._info_of_version.cache_clear()
    known_files._close_all()
    known_files._begin_again()
    episodes = open_dataset(data).episodes
    read_digests(episodes)
    return [(episode.id, episode.hash) for episode in episodes]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = write_rows(tmp_path / "data", [{"file_name": f"{name}.mp4", "task": "lift it"} for name in "ab"])
    for name in "ab":
        encode(moving_square(name), folder / f"{name}.mp4", fps=10)
    return folder


def test_the_next_command_reads_no_video_again(data: Path, read: Counter[str]) -> None:
    first = next_command(data)
    assert read == {"info of a.mp4": 1, "info of b.mp4": 1, "digest of a.mp4": 1, "digest of b.mp4": 1}
    read.clear()
    assert next_command(data) == first
    assert not read


@pytest.mark.parametrize("way", ["rewritten", "replaced"])
def test_another_video_of_the_same_size_and_date_is_another_video(data: Path, read: Counter[str], way: str) -> None:
    path = data / "a.mp4"
    before, first = path.stat(), next_command(data)
    other = bytearray(path.read_bytes())
    other[-1] ^= 1
    if way == "rewritten":
        path.write_bytes(other)
    else:
        (data / "new").write_bytes(other)
        os.replace(data / "new", path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read.clear()
    second = next_command(data)
    assert (second[0] == first[0], second[1] == first[1]) == (False, True)
    assert read == {"info of a.mp4": 1, "digest of a.mp4": 1}


def test_a_video_that_has_just_changed_is_not_kept(
    data: Path, read: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_files, "_SETTLED_SECONDS", 1e9)
    assert next_command(data) == next_command(data)
    assert set(read.values()) == {2}


def test_a_limit_holds_for_a_known_video(data: Path, read: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(next_command(data)) == 2
    monkeypatch.setenv("REWARDLAB_MAX_FRAME_PIXELS", "1000")
    assert next_command(data) == []
    assert read["info of a.mp4"] == 3  # as it is opened ahead and for its row


@pytest.mark.parametrize("what", ["no database", "another program's table", "a folder"])
def test_what_cannot_be_kept_is_read(data: Path, read: Counter[str], tmp_path: Path, what: str) -> None:
    place = tmp_path / "cache" / "rewardlab" / "files.sqlite"
    place.parent.mkdir(parents=True)
    if what == "a folder":
        place.mkdir()
    elif what == "no database":
        place.write_text("no database at all, but long enough to be read as a header of one" * 20)
    else:
        with closing(sqlite3.connect(place)) as database, database:
            database.execute("CREATE TABLE found (other)")
    assert next_command(data) == next_command(data)
    assert set(read.values()) == {2}


def test_frame_times_of_every_kind_are_kept(tmp_path: Path, read: Counter[str]) -> None:
    frames = moving_square("x", count=6)
    times = {"even": None, "uneven": np.array([0, 0.1, 0.3, 0.35, 0.9, 1.0]), "two": np.array([0, 0.7])}
    for name, at in times.items():
        encode(frames if at is None else frames[: len(at)], tmp_path / f"{name}.mp4", fps=10, times=at)
        first = video.info_of_file(tmp_path / f"{name}.mp4")
        video._info_of_version.cache_clear()
        again = video.info_of_file(tmp_path / f"{name}.mp4")
        for key, value in vars(read_info(tmp_path / f"{name}.mp4")).items():
            for kept in (vars(first)[key], vars(again)[key]):
                assert np.array_equal(kept, value) and getattr(kept, "dtype", None) == getattr(value, "dtype", None)
    assert set(read.values()) == {1}


def test_videos_that_are_opened_ahead_keep_order_and_problems(data: Path) -> None:
    (data / "broken.mp4").write_bytes((data / "a.mp4").read_bytes()[:200])
    names = ["a.mp4", "broken.mp4", "b.mp4", "missing.mp4", "../outside.mp4", 3, "a.mp4"] * 100
    contents = open_dataset(write_rows(data, [{"file_name": name, "task": "lift it"} for name in names]))
    sound = [name for name in names if name in ("a.mp4", "b.mp4")]
    assert [episode.id.partition("#")[0] for episode in contents.episodes] == sound
    bad = [number for number, name in enumerate(names, start=1) if name not in ("a.mp4", "b.mp4")]
    assert [problem.place for problem in contents.problems] == [f"line {number}" for number in bad]
