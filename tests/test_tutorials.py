"""The tutorials are true: their blocks run in order in an empty folder, and print what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="needs the dependency group docs")

from rewardlab.core.errors import PlanError
from rewardlab.worlds.offscreen import backend
from tests.test_docs import DOCS, ROOT, script

tutorials = script("run_tutorials")
BLOCK = re.MULTILINE | re.DOTALL
NEEDS = {"stress-my-vlm": "httpx2", "label-a-dataset": "fastapi", "reward-for-rl": "metaworld"}


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    if page.stem in NEEDS and not find_spec(NEEDS[page.stem]):
        pytest.skip(f"needs {NEEDS[page.stem]}")
    if page.stem == "reward-for-rl":
        try:
            backend()
        except PlanError as error:
            pytest.skip(str(error))
    steps = list(tutorials.run_page(page.read_text(encoding="utf-8"), tmp_path))
    wrong = [f"$ {step.command}\n{step.printed}" for step in steps if not step.fits]
    assert steps and wrong == [], "run `python docs/run_tutorials.py`, and read what changed"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_prints_what_it_shows() -> None:
    path = DOCS / "tutorials" / "notebook.ipynb"
    notebooks = tutorials.nbformat.read(path, 4), tutorials.run_notebook(path)
    pairs = list(zip(*map(tutorials.printed, notebooks), strict=True))
    wrong = [run for (shown, tolerance), (run, _) in pairs if not tutorials.fits(shown, run, tolerance)]
    assert len(pairs) > 3 and wrong == [], "run `python docs/run_tutorials.py`, and read what changed"


@pytest.mark.slow
def test_the_demo_ends_with_what_the_readme_shows(tmp_path: Path) -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    block = re.search(rf"^{tutorials.LOOSE}\n+```\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), BLOCK)
    assert recipe is not None and block is not None
    command = [sys.executable, "-m", "rewardlab", *shlex.split(recipe[1].replace("\\\n", ""))[1:]]
    wide = os.environ | {"COLUMNS": "80"}
    done = subprocess.run(command, cwd=tmp_path, env=wide, stdout=subprocess.PIPE, text=True, check=True)
    assert tutorials.fits(f"...{block[1]}", done.stdout, tutorials.DEPENDS_ON_PROCESSOR), done.stdout


def test_shown_output_fits_other_spaces_and_close_numbers_and_nothing_else() -> None:
    shown = "MAE  1.40 of\n5 ...\nreport: run/report.html"
    assert tutorials.fits(shown, "MAE 1.42 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MAE 1.80 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MSE 1.40 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MAE 1.40 of 5 clips\nmore\nreport: other/report.html\n")


def test_numbers_may_differ_more_only_in_the_block_that_says_so(tmp_path: Path) -> None:
    block = "```console\n$ echo kept 0.75 of 4\nkept 0.50 of 4\n```\n"
    loose, strict = tutorials.run_page(f"{tutorials.LOOSE}\n\n{block}\ntext\n\n{block}", tmp_path)
    assert loose.fits and not strict.fits
    assert not tutorials.fits("kept 0.50 of 4", "lost 0.50 of 4", loose.tolerance)
    assert not tutorials.fits("kept 0.50 of 4", "kept 0.50 of 9", loose.tolerance)
