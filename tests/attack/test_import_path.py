"""The current folder, such as that of a dataset, is where no module comes from unless the plan names it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rewardlab.core.run import Run
from tests.conftest import ROWS

NAMES = ("cloudpickle", "cv2", "numpy", "json", "multiprocessing", "av", "scipy", "pyarrow", "yaml", "sitecustomize")
STRESS = ["stress", "length", ".", "--perturbations", "polite_filler", "--severities", "1", "--out", "run"]


@pytest.fixture
def trapped(tiny_data: Path, tmp_path: Path) -> Path:
    """A dataset with modules in it that leave a mark when they are imported."""
    shutil.copytree(tiny_data, tmp_path / "data")
    for name in NAMES:
        (tmp_path / "data" / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'a').write({name!r})\n")
    return tmp_path / "data"


def run_in(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command in a folder; it starts Python without the current folder on its path."""
    source = str(Path(__file__).parents[2] / "src")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": source}
    command = [sys.executable, "-P", "-m", "rewardlab", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_dataset_with_modules_in_it_runs_none_of_them(trapped: Path) -> None:
    done = run_in(trapped, *STRESS, "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert not (trapped.parent / "mark").exists()


@pytest.mark.slow
def test_a_module_that_the_plan_names_is_found_there_and_still_hides_no_other(trapped: Path) -> None:
    code = "import json, numpy\nfrom rewardlab import Score\nimport judge_parts\n\nclass Judge:\n"
    code += "    def score(self, episodes):\n        return [Score(judge_parts.LEVEL)] * len(episodes)\n"
    (trapped / "judge.py").write_text(code)
    (trapped / "judge_parts.py").write_text("LEVEL = 4\n")
    done = run_in(trapped, "stress", "judge:Judge", *STRESS[2:])
    assert done.returncode == 0, done.stderr
    judged = [t for t in Run(trapped / "run").trials().rows() if t.model == "judge:Judge"]
    assert [t.level for t in judged] == [4.0] * 2 * len(ROWS)
    assert not (trapped.parent / "mark").exists()
