"""Entries that another package registers: found by name, listed, used from end to end; a broken one stops nothing."""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.errors import PlanError
from rewardlab.data import READERS, open_dataset
from rewardlab.metrics import METRICS
from rewardlab.models import MODELS, name_model
from rewardlab.perturbations import PERTURBATIONS, choose_perturbations
from tests.conftest import IN_PROCESS

PACKAGE = Path(__file__).parent / "plugin_package"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE), prepend=":")
    yield
    for name in ("brightlab", "brightlab.entries"):
        sys.modules.pop(name, None)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate(("lift the cup", "open the drawer")):
        np.save(folder / f"{name}.npy", np.full((6, 16, 16, 3), 100 * (number + 1), np.uint8))
    return folder


def test_the_metadata_is_what_pyproject_says() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    written = ConfigParser(delimiters=("=",))
    written.read(PACKAGE / "brightlab-1.0.dist-info" / "entry_points.txt")
    assert project["entry-points"] == {group: dict(written[group]) for group in written.sections()}


@pytest.mark.usefixtures("installed")
def test_our_own_entries_are_found_without_importing_other_packages() -> None:
    assert MODELS["length"] and METRICS["micro_mae"] and PERTURBATIONS["jpeg"] and READERS["roboreward"]
    choose_perturbations(("all",))
    assert "brightlab" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_every_kind_is_found_by_its_name_and_listed() -> None:
    entries: dict[str, Iterable[str]] = {
        "brightness": MODELS,
        "half_light": PERTURBATIONS,
        "mean_level": METRICS,
        "arrays": READERS,
    }
    for name, catalog in entries.items():
        assert name in catalog and name in list(catalog)
    assert MODELS["brightness"].summary == "Reward a bright last frame, from 1 to 5."
    with pytest.raises(PlanError, match="did you mean brightness"):
        name_model("brightnes")


@pytest.mark.usefixtures("installed")
def test_a_registered_model_is_the_code_that_it_names() -> None:
    by_name, by_path = name_model("brightness?gain=2"), name_model("brightlab.entries:Brightness?gain=2")
    assert by_name.fingerprint == by_path.fingerprint != name_model("brightness").fingerprint
    assert by_name.isolated and by_name.name == "brightness?gain=2"


@pytest.mark.usefixtures("installed")
def test_all_of_them_go_through_a_stress_test(arrays: Path, tmp_path: Path) -> None:
    assert len(open_dataset(f"arrays:{arrays}").episodes) == 2
    run = rewardlab.stress(
        "brightness?gain=1.5",
        f"arrays:{arrays}",
        perturbations="half_light",
        severities=(3,),
        controls=False,
        frames="uniform:2",
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    levels = {(trial.instruction, trial.severity): trial.level for trial in run.trials().rows()}
    assert levels["lift the cup", 0] == pytest.approx(1 + 6 * 100 / 255)
    assert levels["lift the cup", 3] == pytest.approx(1 + 6 * 50 / 255)
    assert METRICS["mean_level"](run.trials()) == pytest.approx(np.mean(list(levels.values())))
    assert any(found.metric == "mean_level" for found in run.summary.measurements)


@pytest.mark.usefixtures("installed")
def test_a_registered_objective_is_trained_by_its_name() -> None:
    pytest.importorskip("torch")
    from rewardlab.training.objectives.losses import name_objective

    assert name_objective("halfway?target=0.25").options == {"target": 0.25}


def test_a_broken_package_is_one_sentence_and_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    groups = ("models", "readers", "perturbations", "metrics")
    points = "\n".join(f"[rewardlab.{group}]\nbroken = broken_lab:thing" for group in groups)
    (metadata / "entry_points.txt").write_text(points)
    (tmp_path / "broken_lab.py").write_text("raise RuntimeError('no such\\n library')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for catalog in (MODELS, READERS, PERTURBATIONS, METRICS):
        caplog.clear()
        assert "broken" not in list(catalog)
        assert [record.message for record in caplog.records] and "broken_lab:thing" in caplog.messages[0]
    with pytest.raises(
        PlanError, match="broken, registered by an installed package as broken_lab:thing, cannot"
    ) as told:
        name_model("broken")
    assert "\n" not in str(told.value)
    assert name_model("length").name == "length"
