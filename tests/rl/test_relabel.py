"""`rewardlab relabel`: a model's progress for every frame, in the file that LeRobot reads."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rewardlab.cli import main
from rewardlab.data import open_dataset
from tests.conftest import write_rows
from tests.data.lerobot_writer import write_v2


def relabel_here(data: Path, model: str, out: Path, *more: str, engine: str = "local") -> int:
    """Relabel, in this process unless another engine is named; what the model answers is kept beside the file."""
    words = ["relabel", str(data), "--model", model, "--out", str(out), "--run", str(out.parent / f"{model}.run"), "-q"]
    return main([*words, "--engine", engine, *more])


def test_every_frame_of_every_episode_has_its_row(tiny_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "some" / "length_progress.parquet"
    assert relabel_here(tiny_data, "length:20", out, "--frames", "uniform:4") == 0
    table = pq.read_table(out)
    lengths = [len(episode.clip) for episode in open_dataset(str(tiny_data)).episodes]
    assert table.column_names == ["index", "episode_index", "frame_index", "progress_sparse", "progress_dense"]
    assert table.schema.metadata[b"reward_model_path"] == b"length:20"
    assert table["index"].to_pylist() == list(range(sum(lengths)))
    assert np.bincount(table["episode_index"].to_numpy()).tolist() == lengths
    first = np.array(table["progress_sparse"].to_pylist()[: lengths[0]])
    assert np.isfinite(first).all() and (np.diff(first) >= 0).all() and first[-1] > first[0]


def test_episodes_without_an_answer_have_no_numbers(tiny_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    assert relabel_here(tiny_data, "oracle", out) == 3
    progress = pq.read_table(out)["progress_dense"]
    assert 0 < progress.null_count < len(progress)


def test_a_file_that_cannot_be_written_is_one_sentence(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = ["--run", str(tmp_path / "run"), "--out", str(tmp_path / "file" / "p.parquet"), "-q", "--engine", "local"]
    assert main(["relabel", str(tiny_data), "--model", "length", *words]) == 2
    assert f"cannot write {tmp_path}/file/p.parquet: " in capsys.readouterr().err


def test_what_cannot_be_counted_is_refused(tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert relabel_here(tiny_data, "constant", tmp_path / "p.parquet") == 3
    assert "the model gives no progress" in capsys.readouterr().err
    broken = write_rows(tmp_path / "broken", [{"file_name": "gone.mp4", "task": "a", "reward": 1}])
    assert main(["relabel", str(broken), "--model", "length"]) == 4
    assert "mend it first" in capsys.readouterr().err
    assert relabel_here(tiny_data, "length", tmp_path / "p.csv") == 2
    assert "out must be a file that ends in .parquet" in capsys.readouterr().err
    assert not (tmp_path / "p.parquet").exists() and not (tmp_path / "p.csv").exists()


def test_a_partial_copy_and_several_cameras_are_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_v2(tmp_path / "data")
    assert main(["relabel", f"{tmp_path / 'data'}@all", "--model", "length"]) == 2
    assert "DATA@CAMERA" in capsys.readouterr().err
    (tmp_path / "data" / "data" / "chunk-000" / "episode_000001.parquet").unlink()
    assert main(["relabel", str(tmp_path / "data"), "--model", "length"]) == 2
    said = capsys.readouterr().err
    assert "episode 1 is not" in said and "copy" in said and "CAMERA" not in said


def test_a_dataset_without_episodes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.tfrecord").touch()
    assert main(["relabel", str(tmp_path), "--model", "length"]) == 4
    assert "holds no usable episode" in capsys.readouterr().err


MODEL = """
import ctypes
from pathlib import Path
from rewardlab import Score

class Poisoned:
    "Crashes as C code does whenever it is shown the drawer, and counts what it is asked."
    def score(self, episodes):
        with (Path(__file__).parent / "asked").open("a") as file: file.write("x" * len(episodes))
        if any("drawer" in e.instruction for e in episodes): ctypes.string_at(0)
        return [Score(3.0, progress=(0.5,) * len(e.clip)) for e in episodes]
"""


@pytest.mark.slow
def test_an_episode_that_kills_the_model_has_no_numbers_and_nothing_is_asked_twice(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relabellab.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    out, few = tmp_path / "p.parquet", ("--batch-size", "1", "--limit", "3")
    assert relabel_here(tiny_data, "relabellab:Poisoned", out, *few, engine="processes") == 3
    table = pq.read_table(out)
    missing = {row["episode_index"] for row in table.to_pylist() if row["progress_dense"] is None}
    assert missing == {1}
    assert (tmp_path / "asked").read_text() == "x" * 4  # the deadly one twice
    before = out.read_bytes()
    assert relabel_here(tiny_data, "relabellab:Poisoned", out, *few, engine="processes") == 3
    assert (tmp_path / "asked").read_text() == "x" * 4 and out.read_bytes() == before
