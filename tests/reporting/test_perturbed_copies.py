"""`data perturb`: copies of a dataset, continued where it was stopped."""

import json
from pathlib import Path

import pytest

import rewardlab
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from tests.conftest import moving_square, write_rows


def test_bad_rows_stop_it_or_are_told(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data", [{"file_name": f"{n}.mp4", "task": "open it", "reward": n} for n in (5, 9)])
    for n in (5, 9):
        encode(moving_square(str(n)), data / f"{n}.mp4", 10)
    with pytest.raises(DataError, match=r"has 1 bad row; correct .* --skip-invalid\n  .*9"):
        rewardlab.data_perturb(data, perturbations="reverse", severities=1, out=tmp_path / "out")
    lines = rewardlab.data_perturb(data, perturbations="reverse", severities=1, skip_invalid=True, out=tmp_path / "out")
    assert lines[0].startswith("left out line 2: ") and lines[1:] == ["episodes/5.reverse.1.mp4"]


def test_copies_continue_after_a_torn_row(tiny_data: Path, tmp_path: Path) -> None:
    def perturb() -> None:
        rewardlab.data_perturb(tiny_data, perturbations="gaussian_noise", severities=2, limit=2, out=tmp_path / "out")

    perturb()
    path = tmp_path / "out" / "metadata.jsonl"
    whole = path.read_bytes()
    row = json.loads(whole.splitlines()[-1])
    path.write_bytes(whole.removesuffix(b"\n")[:-5])
    perturb()
    assert [json.loads(line)["file_name"] for line in path.read_text().splitlines()][-1] == row["file_name"]
    assert path.read_bytes() == whole
