"""Long episodes in `stress` and `bench`: stages asked about by their own instructions, measured and shown."""

import json
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, open_run
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.replay import replay
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import METRICS
from tests.conftest import moving_square, write_rows

QUIET = Execution(workers=1, quiet=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six episodes of two stages; in every other one the second stage is undone."""
    folder, rows = tmp_path_factory.mktemp("long"), []
    for number in range(6):
        encode(moving_square(f"clip {number}", count=12), folder / f"{number}.mp4", 10)
        second: dict[str, object] = {"instruction": "fill the drawer", "start": 4, "end": 7}
        stages = [{"instruction": "open the drawer", "start": 0, "end": 3}, second]
        if number % 2:
            second["undone"] = 10
        row = {"file_name": f"{number}.mp4", "task": f"open the drawer and fill it, {number}", "stages": stages}
        rows.append({**row, "reward": 3 if number % 2 else 5})
    return write_rows(folder, rows)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "bench"
    return rewardlab.bench(["length:12", "prefixes:constant:4"], data, stages=True, frames="uniform:12",
                           controls=False, out=out, execution=QUIET)  # fmt: skip


def test_each_stage_is_a_question_that_counts_in_no_other_metric(run: Run) -> None:
    trials = run.trials()
    assert len(trials) == 2 * 6 * 3
    own = np.array(["#stage" in name for name in trials.text("episode")])
    assert set(trials.text("instruction")[own]) == {"open the drawer", "fill the drawer"}
    assert np.isnan(trials.number("truth_level")[own]).all() and np.isnan(trials.number("truth_success")[own]).all()
    summary = load_summary(open_run(run.folder))
    assert summary.clean("length:12", "success_accuracy").asked == 6
    asked = {name: summary.clean("length:12", name).asked for name in METRICS if METRICS[name].display.stages}
    assert asked == {
        **{"stage_success_accuracy": 12, "stage_success_auc": 12, "stage_order": 12},
        **{"stage_separation": 6, "falls_when_undone": 3},
    }


def test_a_model_that_reads_no_words_orders_no_stages(run: Run) -> None:
    summary = load_summary(open_run(run.folder))
    for model in ("length:12", "prefixes:constant:4"):
        assert summary.clean(model, "stage_order").value == 0.5
        assert summary.clean(model, "falls_when_undone").value == 0
    assert summary.clean("length:12", "stage_separation").value == pytest.approx(0.85, abs=0.15)
    assert summary.clean("prefixes:constant:4", "stage_separation").value == 0.5
    assert summary.clean("length:12", "stage_success_accuracy").value == 0.75  # 9 of 12 stages are done at the end


def test_the_page_and_the_record_show_stages(run: Run) -> None:
    assert "Stages of long tasks" in run.page.read_text()
    assert json.loads((run.folder / "run.json").read_text())["settings"]["stages"] is True
    assert "1.mp4#stage2" in replay(open_run(run.folder), allow_code=True).episodes
    copies = json.loads((run.folder / "duplicates.json").read_text())["copies"]
    assert not [copy for copy in copies if "#stage" in copy["episode"] or "#stage" in copy["other"]]


def test_the_whole_task_needs_no_option(data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(["length:12"], data, perturbations=("low_light",), severities=(4,), controls=False,
                           out=tmp_path / "run", execution=QUIET)  # fmt: skip
    summary = load_summary(run)
    assert summary.clean("length:12", "stage_separation").asked == 6
    assert summary.clean("length:12", "stage_success_auc").asked == 0
    assert summary.measurement("length:12", "low_light", 4, "stage_separation").asked == 6  # truth follows the frames


def test_stages_of_data_without_stages_are_refused(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="has no stages; leave out --stages"):
        rewardlab.bench(["length"], tiny_data, stages=True, out=tmp_path / "run", execution=QUIET)
