"""The tutorials are true: their blocks run in order in an empty folder, and print what the page shows."""

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="needs the dependency group docs")

from rewardlab.core.errors import PlanError
from rewardlab.worlds.offscreen import backend
from tests.test_docs import DOCS, script

tutorials = script("run_tutorials")
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
    shown, run = (_printed(notebook) for notebook in (tutorials.nbformat.read(path, 4), tutorials.run_notebook(path)))
    assert len(shown) > 3 and [texts for texts in zip(shown, run, strict=True) if not tutorials.fits(*texts)] == []


def _printed(notebook: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return [output["text"] for output in outputs if output.get("name") == "stdout"]


def test_shown_output_fits_other_spaces_and_close_numbers_and_nothing_else() -> None:
    shown = "MAE  1.40 of\n5 ...\nreport: run/report.html"
    assert tutorials.fits(shown, "MAE 1.42 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MAE 1.80 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MSE 1.40 of 5 clips\nmore\nreport: run/report.html\n")
    assert not tutorials.fits(shown, "MAE 1.40 of 5 clips\nmore\nreport: other/report.html\n")
