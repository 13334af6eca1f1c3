"""Paths that lead elsewhere: only regular files below the dataset's folder are opened, and nothing is fetched."""

import os
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.contract import Contents
from rewardlab.data.roboreward import read_folder
from rewardlab.data.video import VideoFile
from tests.attack.hostile_files import EMPTY_PLAYLIST, small_mp4
from tests.conftest import moving_square, write_rows
from tests.models.loopback import LoopbackHandler, serving


def row(name: str, **more: object) -> dict[str, object]:
    return {"file_name": name, "task": "push the block", "reward": 2, **more}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset folder with one sound video, and another video outside it."""
    folder = write_rows(tmp_path / "data", [row("x.mp4")])
    (folder / "x.mp4").write_bytes(small_mp4())
    (tmp_path / "outside.mp4").write_bytes(small_mp4(count=5))
    return folder


def only_problem(contents: Contents) -> str:
    assert not contents.episodes
    (problem,) = contents.problems
    assert problem.place == "line 1"
    return problem.what


@pytest.mark.parametrize(
    "name", ["../outside.mp4", "a/../../outside.mp4", "/etc/passwd", "x\x00.mp4", "x\n.mp4", "\x1b[2J.mp4", "a" * 5000]
)
def test_a_name_that_is_no_path_below_the_folder_is_a_problem(dataset: Path, name: str) -> None:
    assert "file_name must" in only_problem(read_folder(write_rows(dataset, [row(name)])))


def test_a_link_out_of_the_folder_is_a_problem_and_one_inside_is_not(dataset: Path) -> None:
    (dataset / "out.mp4").symlink_to(dataset.parent / "outside.mp4")
    (dataset / "elsewhere").symlink_to(dataset.parent)
    (dataset / "in.mp4").symlink_to("x.mp4")
    (dataset / "loop.mp4").symlink_to("loop.mp4")
    names = ("out.mp4", "elsewhere/outside.mp4", "loop.mp4", "in.mp4")
    contents = read_folder(write_rows(dataset, [row(name) for name in names]))
    assert [episode.id for episode in contents.episodes] == ["in.mp4"]
    assert "leads out of the dataset's folder" in contents.problems[0].what
    assert "leads out of the dataset's folder" in contents.problems[1].what
    assert len(contents.problems) == 3


def test_a_folder_that_is_a_link_is_read(dataset: Path) -> None:
    (dataset.parent / "link").symlink_to(dataset)
    assert len(open_dataset(str(dataset.parent / "link")).episodes) == 1


def test_a_snapshot_of_the_hub_is_read_through_its_links(tmp_path: Path) -> None:
    snapshot = write_rows(tmp_path / "datasets--lab--set" / "snapshots" / "abc" / "test", [row("x.mp4")])
    blobs = tmp_path / "datasets--lab--set" / "blobs"
    blobs.mkdir()
    (blobs / "123").write_bytes(small_mp4())
    (snapshot / "x.mp4").symlink_to(blobs / "123")
    assert len(read_folder(snapshot).episodes) == 1


def test_the_record_of_a_world_stays_below_the_folder(dataset: Path) -> None:
    np.save(dataset.parent / "outside.npy", np.zeros((3, 4)))
    (dataset / "out.npy").symlink_to(dataset.parent / "outside.npy")
    for name in ("out.npy", "../outside.npy", "/etc/passwd", 7):
        rows = [row("x.mp4", world={"kind": "metaworld", "file": name})]
        what = only_problem(read_folder(write_rows(dataset, rows)))
        assert "world.file must" in what or "leads out of" in what


def special_files(folder: Path) -> Iterator[str]:
    """Make what is no regular file, and yield the names."""
    os.mkfifo(folder / "pipe.mp4")
    yield "pipe.mp4"
    (folder / "folder.mp4").mkdir()
    yield "folder.mp4"
    (folder / "zero.mp4").symlink_to("/dev/zero")
    yield "zero.mp4"


def test_pipes_folders_and_devices_are_problems_and_block_nobody(dataset: Path) -> None:
    names = list(special_files(dataset))
    write_rows(dataset, [row(name) for name in names])
    # A process of its own: a pipe that is waited for would stop this one for good.
    done = subprocess.run(
        [sys.executable, "-m", "rewardlab", "data", "check", str(dataset)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert "pipe.mp4: expected a regular file, got a pipe" in done.stdout
    assert "folder.mp4: expected a regular file, got a folder" in done.stdout
    assert "zero.mp4: a link leads out" in done.stdout


def test_a_video_that_became_a_pipe_blocks_nobody(dataset: Path) -> None:
    (dataset / "x.mp4").unlink()
    os.mkfifo(dataset / "x.mp4")
    with pytest.raises(DataError, match="got a pipe"):
        _ = VideoFile(dataset / "x.mp4").digest
    with pytest.raises(DataError, match="got a pipe"):
        _ = VideoFile(dataset / "x.mp4").info


def test_a_socket_is_a_problem(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dataset)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.mp4")
        assert "got a socket" in only_problem(read_folder(write_rows(dataset, [row("s.mp4")])))


def test_metadata_must_be_a_regular_file_below_the_folder(dataset: Path) -> None:
    (dataset / "metadata.jsonl").rename(dataset.parent / "rows.jsonl")
    (dataset / "metadata.jsonl").symlink_to(dataset.parent / "rows.jsonl")
    with pytest.raises(DataError, match="leads out of the dataset's folder"):
        open_dataset(str(dataset))
    (dataset / "metadata.jsonl").unlink()
    os.mkfifo(dataset / "metadata.jsonl")
    with pytest.raises(DataError, match=r"is a folder that no reader takes"):
        open_dataset(str(dataset))


PROTOCOLS = ("file:x.mp4", "concat:x.mp4|x.mp4", "cache:x.mp4", "subfile,,start,0,end,0,,:x.mp4", "async:x.mp4")


@pytest.mark.parametrize("name", [*PROTOCOLS, f"data:video/mp4;base64,{b64encode(small_mp4(4, 16)).decode()[:900]}"])
def test_a_name_is_never_an_address(dataset: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write_rows(dataset, [row(name)])
    monkeypatch.chdir(dataset)  # so that the path begins with the name
    assert "does not exist" in only_problem(open_dataset("."))


@pytest.mark.parametrize("name", ["http:", "file:", "concat:a|b", "tcp:", "data:,x", "pipe:0"])
def test_a_folder_may_be_called_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_rows(Path(name), [row("x.mp4")])
    encode(moving_square("x"), folder / "x.mp4", 10)
    (episode,) = open_dataset(f"{name}/").episodes
    assert episode.frames.shape == (20, 48, 48, 3)


@pytest.fixture
def requests() -> Iterator[list[str]]:
    """Paths that a server on this machine is asked for; the first is its address."""
    asked: list[str] = []

    class Handler(LoopbackHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with serving(Handler) as url:
        asked.append(url)
        yield asked


def with_external_media(data: bytes, url: str) -> bytes:
    """Return the mp4 whose track says that its frames are at an address."""
    place = data.index(b"url ")
    edited = bytearray(data)
    edited[place + 4 : place + 8] = bytes(4)  # no longer in this file
    text = url.encode() + b"\x00"
    start = place - 4
    edited[start : start + 4] = (12 + len(text)).to_bytes(4, "big")
    edited[place + 8 : place + 8] = text
    for box in (b"dref", b"dinf", b"minf", b"mdia", b"trak", b"moov"):
        at = edited.index(box) - 4
        edited[at : at + 4] = (int.from_bytes(edited[at : at + 4], "big") + len(text)).to_bytes(4, "big")
    return bytes(edited)


def test_no_address_in_a_file_is_asked(dataset: Path, requests: list[str]) -> None:
    url = f"{requests[0]}/x.ts"
    playlists = {
        "hls.mp4": EMPTY_PLAYLIST.format(url).encode(),
        "hls.m3u8": EMPTY_PLAYLIST.format(url).encode(),
        "concat.mp4": f"ffconcat version 1.0\nfile '{url}'\n".encode(),
        "dash.mp4": f'<?xml version="1.0"?><MPD><BaseURL>{url}</BaseURL></MPD>'.encode(),
        "external.mp4": with_external_media(small_mp4(), url),
    }
    for name, data in playlists.items():
        (dataset / name).write_bytes(data)
    contents = read_folder(write_rows(dataset, [row(name) for name in playlists]))
    for episode in contents.episodes:  # an external reference is not followed: the bytes are those of the file itself
        _ = episode.frames
    assert {episode.id for episode in contents.episodes} <= {"external.mp4"}
    assert len(requests) == 1
