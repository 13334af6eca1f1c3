"""Numbers of a run in MLflow and Weights & Biases, written by the real packages into files."""

import sys
import time
from pathlib import Path
from typing import Literal

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.reporting.trackers import exported_run
from tests.plans import stress_plan


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Run:
    scoring = dict(workers=1, quiet=True, engine="local", out=tmp_path_factory.mktemp("run") / "stress one")
    return evaluate(stress_plan(("length",), str(tiny_data), ("jpeg",), (4,), **scoring))


def test_the_numbers_are_those_of_the_summary(run: Run) -> None:
    exported = exported_run(run)
    summary = run.summary
    assert exported.numbers["length/clean/macro_mae"] == summary.clean("length", "macro_mae").value
    assert any(name.startswith("length/visual_4/") for name in exported.numbers)
    assert all(name.startswith("length/") for name in exported.numbers)  # controls are not judged
    assert exported.settings["data"] == run.record.settings.data


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_them(run: Run, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    place = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert (
        main(["runs", "export", str(run.folder), "--to", "mlflow", "--project", "rewards", "--tracking-uri", place])
        == 0
    )
    client = mlflow.MlflowClient(tracking_uri=place)
    (found,) = client.search_runs([client.get_experiment_by_name("rewards").experiment_id])
    exported = exported_run(run)
    assert found.data.metrics == pytest.approx(dict(exported.numbers)) and found.info.run_name == "stress one"
    assert found.data.params["seed"] == "0" and found.info.status == "FINISHED"
    with pytest.raises(PlanError, match="MLflow rejects the run"):
        rewardlab.runs_export(run, tracking_uri="nothing://here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_them_offline(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    rewardlab.runs_export(run, to="wandb", project="rewards", tracking_uri=str(tmp_path))
    (file,) = tmp_path.rglob("*.wandb")
    names = list(exported_run(run).numbers)
    for _ in range(600):  # wandb's own process writes the file, and may go on after the export
        written = file.read_bytes()
        found = [name for name in names if name.encode() in written]
        if len(found) >= len(names) - 2:  # a name may lie across two blocks of the file
            return
        time.sleep(0.1)
    raise AssertionError(f"{len(found)} of {len(names)} numbers are in the file of {len(written)} bytes")


def test_a_tracker_that_is_not_installed_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("mlflow", "wandb", "duckdb"):
        monkeypatch.setitem(sys.modules, package, None)
    trackers: tuple[Literal["mlflow", "wandb"], ...] = ("mlflow", "wandb")
    for tracker in trackers:
        with pytest.raises(PlanError, match=rf"needs the package {tracker}: pip install 'rewardlab\[trackers\]'"):
            rewardlab.runs_export(run, to=tracker)
    with pytest.raises(PlanError, match=r"SQL needs the package duckdb: pip install 'rewardlab\[sql\]'"):
        rewardlab.runs_sql("SELECT 1", run.folder)
    with pytest.raises(PlanError, match="to of runs_export must be 'mlflow' or 'wandb', got 'comet'"):
        rewardlab.runs_export(run, to="comet")  # type: ignore[arg-type]
