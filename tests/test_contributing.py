"""The examples of CONTRIBUTING.md are true: each is one file, works end to end through `stress`, and is on the page."""

import math
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import pytest

import rewardlab
from rewardlab.metrics import METRICS
from rewardlab.testing import check_model, check_perturbation
from tests.conftest import IN_PROCESS, moving_square

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
FILES = {
    "Add a perturbation": "lights.py",
    "Add a model": "reward.py",
    "Add a VLM backend": "vlm.py",
    "Add a metric": "median.py",
    "Add a learning objective": "losses.py",
    "Add a dataset reader": "still_images.py",
}


@pytest.fixture
def mylab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package outside rewardlab with one file for each example of the page."""
    package = tmp_path / "elsewhere" / "mylab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for section in re.split(r"^## (?=Add )", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        (package / FILES[section.split("\n")[0]]).write_text(code)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylab"]:  # of another test
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(package.parent))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylab"]:
        del sys.modules[name]


def page_of(run: rewardlab.Run) -> str:
    return (run.folder / "report.html").read_text()


def test_every_section_has_one_example_that_is_one_file(mylab: Path) -> None:
    assert {path.name for path in mylab.glob("*.py")} == {"__init__.py", *FILES.values()}


@pytest.mark.slow
@pytest.mark.usefixtures("mylab")
def test_the_perturbation(tiny_data: Path, tmp_path: Path) -> None:
    name = "mylab.lights:dim_lights"
    run = rewardlab.stress("constant", tiny_data, perturbations=name, execution=IN_PROCESS, out=tmp_path / "run")
    assert {1, 2, 3, 4} <= set(run.trials().where(run.trials().text("perturbation") == "dim_lights").number("severity"))
    assert "dim_lights" in page_of(run)
    check_perturbation(import_module("mylab.lights").dim_lights, rewardlab.open_dataset(tiny_data).episodes)


@pytest.mark.slow
@pytest.mark.usefixtures("mylab")
def test_the_model(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(
        "mylab.reward:Brightness", tiny_data, perturbations="polite_filler", execution=IN_PROCESS, out=tmp_path / "run"
    )
    assert run.summary.outcomes("mylab.reward:Brightness").failed == 0
    assert "mylab.reward:Brightness" in page_of(run)
    check_model(import_module("mylab.reward").Brightness(), rewardlab.open_dataset(tiny_data).episodes)


@pytest.mark.usefixtures("mylab")
def test_the_vlm_backend_under_every_protocol(tiny_data: Path, tmp_path: Path) -> None:
    names = [f"{protocol}:mylab.vlm:AlwaysFour" for protocol in ("rubric", "topreward")]
    run = rewardlab.stress(names, tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "run")
    levels = {model: set(run.trials().where(run.trials().matches("model", model)).number("level")) for model in names}
    assert levels == {names[0]: {4.0}, names[1]: {1 + 4 * math.exp(-0.5)}}
    assert all(name in page_of(run) for name in names)
    failure = rewardlab.score("gvl:mylab.vlm:AlwaysFour", moving_square("cup", count=4), "lift the cup")
    assert isinstance(failure, rewardlab.Failure) and "percentage" in failure.reason


@pytest.mark.usefixtures("mylab")
def test_the_metric(tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "median_error", import_module("mylab.median").median_error)
    run = rewardlab.stress(
        "length",
        tiny_data,
        perturbations="polite_filler",
        severities=(2,),
        controls=False,
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    found = run.summary.clean("length", "median_error")
    assert found.value is not None and found.low is not None and found.low <= found.value <= (found.high or 0)
    assert "median error" in page_of(run)


@pytest.mark.slow
@pytest.mark.usefixtures("mylab")
def test_the_reader(tmp_path: Path) -> None:
    for task in ("lift_the_cup", "open_the_drawer"):
        (tmp_path / "frames" / task).mkdir(parents=True)
        for number, frame in enumerate(moving_square(task, count=6)):
            cv2.imwrite(str(tmp_path / "frames" / task / f"{number:03d}.png"), frame)
    (tmp_path / "frames" / "empty").mkdir()
    data = f"mylab.still_images:STILL_IMAGES:{tmp_path / 'frames'}"
    assert [str(problem) for problem in rewardlab.data_check(data).problems] == ["empty: holds no PNG frame"]
    few: dict[str, Any] = {"perturbations": "gaussian_noise", "execution": IN_PROCESS}
    run = rewardlab.stress("length", data, skip_invalid=True, out=tmp_path / "run", **few)
    assert set(run.trials().text("instruction")) == {"lift the cup", "open the drawer"}
    assert "gaussian_noise" in page_of(run)


@pytest.mark.usefixtures("mylab")
def test_the_objective() -> None:
    torch = pytest.importorskip("torch", reason="needs rewardlab[train]")
    from rewardlab.training.objectives.contract import DRAWS, ClipBatch
    from rewardlab.training.objectives.losses import name_objective

    images = torch.nn.functional.normalize(torch.randn(2, 3, 4), dim=-1).requires_grad_()
    won = torch.tensor([True, False])
    facts = (torch.zeros(2, 3), torch.ones(2, 3), won, torch.arange(2), won, torch.zeros(2, DRAWS))
    loss = name_objective("mylab.losses:last_frame?weight=2").loss(ClipBatch(images, images[:, -1].detach(), *facts))
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6) and loss.requires_grad
