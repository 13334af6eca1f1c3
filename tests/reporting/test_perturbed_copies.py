"""`data perturb`: copies of a dataset, continued where it was stopped."""

import json
from pathlib import Path

import rewardlab


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
