"""Every format through the commands: the same stress test, check and perturbed copies as of any other dataset."""

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import pytest

from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.core.terminal import counted
from rewardlab.core.video_encoding import encode
from rewardlab.data import READERS, open_dataset
from rewardlab.evaluation.evaluate import evaluate
from tests.conftest import moving_square, write_rows
from tests.data.lerobot_writer import write_v2, write_v3
from tests.data.tfrecord_writer import episode, write_rlds
from tests.plans import stress_plan


def write_roboreward(folder: Path) -> None:
    write_rows(folder, [{"file_name": "a.mp4", "task": "open the drawer", "reward": 5}])
    encode(moving_square("a"), folder / "a.mp4", 10)


def write_table(folder: Path) -> None:
    folder.mkdir()
    encode(moving_square("a"), folder / "a.mp4", 10)
    (folder / "rows.csv").write_text("video,instruction,success\na.mp4,open the drawer,yes\n")


def write_images(folder: Path) -> None:
    (folder / "open_the_drawer").mkdir(parents=True)
    for number, frame in enumerate(moving_square("a", count=6)):
        cv2.imwrite(str(folder / "open_the_drawer" / f"{number}.png"), frame)


def write_hdf5(folder: Path) -> None:
    pytest.importorskip("h5py")
    from tests.data.test_hdf5 import write_demos

    write_demos(folder / "lift.hdf5", {"demo_0": 6, "demo_1": 5})


def write_roboarena(folder: Path) -> None:
    pytest.importorskip("yaml")
    from tests.data.test_roboarena import write_session

    write_session(folder, "one", {"A": 1.0}, ("left_shoulder", "wrist"))


def write_envlogger(folder: Path) -> None:
    pytest.importorskip("brotli")
    shutil.copytree(Path(__file__).parent / "real_samples" / "envlogger", folder)


def write_single(folder: Path) -> None:
    folder.mkdir()
    encode(moving_square("a"), folder / "open_the_drawer.mp4", 10)


WRITERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "roboreward": (write_roboreward, ""),
    "lerobot": (write_v3, "@all"),
    "lerobot v2": (write_v2, ""),
    "rlds": (lambda folder: write_rlds(folder, [episode("open the drawer", 5), episode("push it left", 4)]), "@all"),
    "hdf5": (write_hdf5, "@all"),
    "roboarena": (write_roboarena, "@all"),
    "envlogger": (write_envlogger, ""),
    "table": (write_table, ""),
    "images": (write_images, ""),
    "video": (write_single, "/open_the_drawer.mp4"),
}


def test_every_reader_of_the_catalog_is_here() -> None:
    assert set(READERS) <= set(WRITERS)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_stress_test_runs_on_it_as_it_is(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write, suffix = WRITERS[kind]
    write(tmp_path / "data")
    data = f"{tmp_path / 'data'}{suffix}"
    episodes = open_dataset(data).episodes
    settings = dict(workers=1, engine="local", out=tmp_path / "run")
    plan = stress_plan(("length",), data, ("jpeg", "reverse"), (1,), controls=False, **settings)
    trials = Run(evaluate(plan).folder).trials().rows()
    assert {trial.episode for trial in trials} == {each.id for each in episodes}
    assert {trial.status for trial in trials} == {"scored"}
    assert main(["stress", "pocket", data, "--dry-run", "--out", str(tmp_path / "other")]) == 0
    assert main(["data", "check", data]) == 0
    assert f"{counted(len(episodes), 'valid episode')}, 0 problems" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["lerobot", "rlds", "images"])
def test_perturbed_copies_are_written_in_the_common_layout(kind: str, tmp_path: Path) -> None:
    write, suffix = WRITERS[kind]
    write(tmp_path / "data")
    data = f"{tmp_path / 'data'}{suffix}"
    out = ["--out", str(tmp_path / "out"), "--perturbations", "jpeg", "--severities", "1"]
    assert main(["data", "perturb", data, *out]) == 0
    copies = open_dataset(str(tmp_path / "out"))
    assert copies.problems == ()
    assert [len(each.clip) for each in copies.episodes] == [len(each.clip) for each in open_dataset(data).episodes]
