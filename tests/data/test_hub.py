"""`hub:`: a dataset fetched from a hub, here a small one on loopback that speaks what huggingface_hub asks for."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import choose_split, open_dataset
from tests.conftest import moving_square, write_rows
from tests.data.lerobot_writer import write_v3
from tests.models.loopback import LoopbackHandler, serving

pytest.importorskip("huggingface_hub")
COMMIT = "a" * 40


class Hub(LoopbackHandler):
    """The files of `folder` as the dataset lab/toys."""

    folder: Path

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = sorted(each.relative_to(self.folder).as_posix() for each in self.folder.rglob("*") if each.is_file())
        name = path.removeprefix(f"/datasets/lab/toys/resolve/{COMMIT}/")
        if path.startswith("/api/datasets/lab/toys/tree/"):
            listed = [{"type": "file", "path": each, "size": 1, "oid": "b" * 40} for each in files]
            self.send_file(json.dumps(listed).encode())
        elif path.startswith("/api/datasets/lab/toys"):
            about = {"id": "lab/toys", "sha": COMMIT, "siblings": [{"rfilename": each} for each in files]}
            self.send_file(json.dumps(about).encode())
        elif name in files:
            self.send_file((self.folder / name).read_bytes())
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def send_file(self, data: bytes) -> None:
        self.send(200, data, etag=f'"{hashlib.sha256(data).hexdigest()}"', x_repo_commit=COMMIT)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    (tmp_path / "files").mkdir()
    handler = type("OneHub", (Hub,), {"folder": tmp_path / "files"})
    with serving(handler) as url:
        yield tmp_path / "files", url


EPISODES = (
    "import sys, rewardlab\n"
    "for e in rewardlab.open_dataset(sys.argv[1]).episodes: print(e.id, len(e.frames), e.instruction, sep='|')"
)
COMMAND = (
    "import sys; from rewardlab.evaluation.rank import removal_command\n"
    "print(*removal_command(sys.argv[1], ['episode_000001@front']))"
)


def opened(name: str, address: str, cache: Path, code: str = EPISODES) -> subprocess.CompletedProcess[str]:
    """What another process says of a dataset on the hub: addresses are fixed when huggingface_hub is imported."""
    places = {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}
    places |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", code, name]
    return subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=False)


def test_a_dataset_is_fetched_and_read_in_any_layout(hub: tuple[Path, str], tmp_path: Path) -> None:
    files, address = hub
    write_v3(files)
    said = opened("hub:lab/toys@all", address, tmp_path / "cache")
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert len(lines) == 6 and lines[0] == "episode_000000@wrist|12|open the drawer"


def test_lerobot_is_told_to_edit_the_dataset_of_the_hub(hub: tuple[Path, str], tmp_path: Path) -> None:
    files, address = hub
    write_v3(files)
    write_v3(files / "half")
    said = opened("hub:lab/toys@front", address, tmp_path / "cache", COMMAND)
    assert said.stdout.startswith("lerobot-edit-dataset --repo_id lab/toys --new_repo_id lab/toys_kept "), said.stderr
    assert "edits whole datasets" in opened("hub:lab/toys/half", address, tmp_path / "other", COMMAND).stdout


def test_one_split_is_fetched_alone(hub: tuple[Path, str], tmp_path: Path) -> None:
    files, address = hub
    for split in ("train", "test"):
        write_rows(files / split, [{"file_name": "a.mp4", "task": f"open {split}", "reward": 5}])
        encode(moving_square(split), files / split / "a.mp4", 10)
    name = choose_split("hub:lab/toys", "test")
    said = opened(name, address, tmp_path / "cache")
    assert said.stdout == "a.mp4|20|open test\n", said.stderr
    assert not list((tmp_path / "cache").rglob("train"))


def test_what_is_not_there_is_one_sentence(hub: tuple[Path, str], tmp_path: Path) -> None:
    said = opened("hub:lab/nothing", hub[1], tmp_path / "cache").stderr
    assert "hub:lab/nothing cannot be fetched (" in said and "or download it by hand and name its folder" in said
    with pytest.raises(DataError, match="expected hub:OWNER/NAME or hub:OWNER/NAME/SPLIT, got 'hub:toys'"):
        open_dataset("hub:toys")
