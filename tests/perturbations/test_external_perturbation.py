"""A perturbation of one file and one line: the file is its own, the line names it as `package.module:name`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import episode_from_frames
from rewardlab.core.errors import PlanError
from rewardlab.data import open_dataset
from rewardlab.perturbations import choose_perturbations
from rewardlab.perturbations.contract import Perturbation
from rewardlab.reporting.report import write_report
from rewardlab.testing import check_perturbation
from tests.conftest import IN_PROCESS

LIGHTS = '''
import numpy as np

from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import on_frames


@on_frames("visual", parameter="gain", table=(0.7, 0.5, 0.3, 0.15), based_on="a paper")
def dim_lights(frames, gain, rng):
    """Somebody turned the lights down."""
    if frames.max() == 0:
        raise NotApplicable("it is dark already")
    return (frames * gain).astype(np.uint8)


nothing = 3
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package outside of rewardlab with one perturbation in it."""
    package = tmp_path / "my_lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "lights.py").write_text(LIGHTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_lab.lights"
    for name in ("my_lab", "my_lab.lights"):
        sys.modules.pop(name, None)


def chosen(name: str) -> Perturbation:
    (perturbation,) = choose_perturbations((name,))
    return perturbation


def test_it_is_found_by_its_name_and_keeps_the_contract(lab: str, tiny_data: Path) -> None:
    dim = chosen(f"{lab}:dim_lights")
    white = episode_from_frames(np.full((2, 4, 4, 3), 200, np.uint8), "open the drawer")
    assert [int(dim(white, s, 0).episode.frames.max()) for s in (0, 1, 2, 3, 4)] == [200, 140, 100, 60, 30]
    check_perturbation(dim, open_dataset(str(tiny_data)).episodes[:2])


def test_it_composes_with_one_of_the_catalogue(lab: str, tiny_data: Path) -> None:
    both = chosen(f"{lab}:dim_lights+polite_filler")
    change = both(open_dataset(str(tiny_data)).episodes[0], 2, 0)
    assert (both.name, both.label, change.expect) == ("dim_lights+polite_filler", "keeps", "same")
    assert change.episode.instruction.endswith("put the red cup on the plate")


def test_what_is_no_perturbation_is_refused(lab: str) -> None:
    with pytest.raises(PlanError, match=r"my_lab\.lights:nothing must be a Perturbation"):
        choose_perturbations((f"{lab}:nothing",))


def test_a_stress_test_scores_it_and_its_page_shows_it(lab: str, tiny_data: Path, tmp_path: Path) -> None:
    names = (f"{lab}:dim_lights", "jpeg")
    run = rewardlab.stress(
        "length", tiny_data, perturbations=names, controls=False, execution=IN_PROCESS, out=tmp_path / "run"
    )
    trials = [trial for trial in run.trials().rows() if trial.perturbation == "dim_lights"]
    assert {trial.severity for trial in trials} == {1, 2, 3, 4}
    assert {(trial.category, trial.status, trial.expectation) for trial in trials} == {("visual", "scored", "same")}
    page = run.page.read_text()
    assert '<tr id="dim_lights" data-category="visual"><td title="Somebody turned the lights down.">' in page


def test_a_page_is_still_written_when_the_package_is_gone(lab: str, tiny_data: Path, tmp_path: Path) -> None:
    name = f"{lab}:dim_lights"
    run = rewardlab.stress(
        "length",
        tiny_data,
        perturbations=name,
        severities=(4,),
        controls=False,
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    (tmp_path / "my_lab" / "lights.py").unlink()
    sys.modules.pop(lab)
    page = write_report([run], tmp_path / "report.html").read_text()
    assert '<tr id="dim_lights" data-category="visual"><td title="">' in page
