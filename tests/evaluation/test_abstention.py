"""Abstaining, from hidden ends through a scripted server to recall, false abstentions and the report page."""

import base64
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from rewardlab.api import bench_plan
from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.core.trial import ScoreInfo, Status, Trial
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import METRICS
from rewardlab.metrics.contract import answered, eligible
from rewardlab.reporting.benchmark_tables import load_benchmark
from rewardlab.reporting.report import write_report
from tests.conftest import ROWS
from tests.metrics.handmade_trials import table, trial
from tests.models.loopback import Call, chat_server
from tests.narrowing import known

TASKS = [str(row["task"]) for row in ROWS]


def is_black(call: Call) -> bool:
    """Tell whether the last frame that the server was sent is black."""
    images = [part["image_url"]["url"] for part in call.body["messages"][0]["content"] if part["type"] == "image_url"]
    data = np.frombuffer(base64.b64decode(images[-1].partition(",")[2]), np.uint8)
    return bool(known(cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)).max() < 16)


def honest(call: Call) -> None:
    """Abstain on what is black, but for one task; and on one clean clip."""
    if is_black(call):
        return call.say("ANSWER: 2" if call.task == TASKS[0] else "Nothing to see.\nANSWER: 0")
    return call.say("ANSWER: 0" if call.task == TASKS[1] else "ANSWER: 3")


@pytest.mark.slow
def test_a_benchmark_shows_hidden_ends_too_and_measures_recall_and_false_abstentions(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(honest) as server:
        model = "abstain:" + server.model()
        command = ["bench", model, str(tiny_data), "--out", str(tmp_path / "run"), "--engine", "local"]
        command += ["--frames", "all"]
        assert main([*command, "--no-duplicates"]) == 0
        assert len(server.bodies) == 3 * len(ROWS)  # clean, and severities 3 and 4
        assert main([*command, "--no-duplicates", "--retry-failures"]) == 0
        assert len(server.bodies) == 3 * len(ROWS)  # to abstain is an answer, so that it is not asked for again
    run = Run(tmp_path / "run")
    summary = load_summary(run)
    recall = summary.measurement(model, "covered_end", 4, "abstention_recall")
    assert recall.value == pytest.approx(5 / 6) and (recall.scored, recall.asked) == (6, 6)
    assert known(recall.low) < 5 / 6 < known(recall.high)
    alarms = summary.clean(model, "false_abstention_rate")
    assert alarms.value == pytest.approx(1 / 6) and known(alarms.high) > 1 / 6
    assert summary.clean(model, "micro_mae").scored == 4  # of five with a level, one was not judged
    counts = summary.outcomes(model)
    errors = known(load_benchmark(run)).errors.models[model]
    assert (errors.counts.scored, errors.counts.missing, errors.counts.unread) == (4, 1, 0)
    assert known(errors.helm).micro.scored == 4  # HELM reads no level 0
    assert counts.abstained == counts.failed == 11 and counts.unreadable == 0
    assert summary.measurement("length", "covered_end", 4, "abstention_recall").scored == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "It abstains on 0.17" in said and "on 0.83" in said and "clips whose end is hidden" in said
    page = write_report([run], tmp_path / "report.html").read_text()
    assert "abstention recall" in page and "false abstentions" in page and "It abstains on 0.17" in page


def test_a_stress_test_without_hidden_ends_says_that_the_recall_is_unknown(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(honest) as server:
        few = ["--perturbations", "none", "--no-controls", "--engine", "local", "--out", str(tmp_path / "run")]
        assert main(["stress", "abstain:" + server.model(), str(tiny_data), *few]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "its recall is unknown: --perturbations covered_end" in said


def test_a_model_that_always_abstains_does_not_end_the_run_as_one_that_always_fails(
    tiny_data: Path, tmp_path: Path
) -> None:
    with chat_server(lambda call: call.say("ANSWER: 0")) as server:
        few = ["--perturbations", "none", "--no-controls", "--engine", "local", "--out", str(tmp_path / "run")]
        model = "abstain:" + server.model()
        few += ["--junit", str(tmp_path / "j.xml")]
        assert main(["stress", model, str(tiny_data), *few, "--max-failures", "2", "--fail-fast"]) == 0
    assert 'errors="0"' in (tmp_path / "j.xml").read_text()
    summary = load_summary(Run(tmp_path / "run"))
    assert summary.outcomes(model).abstained == len(ROWS)
    assert summary.clean(model, "false_abstention_rate").value == 1


def test_a_benchmark_of_models_that_cannot_abstain_stays_as_it_is(tiny_data: Path) -> None:
    plan = bench_plan({"models": ("length",), "data": tiny_data, "engine": "local"})
    assert plan.perturbations == ("none",) and plan.severities == (0,)
    grounded = bench_plan({"models": ("abstain:openai:m@http://127.0.0.1:1/v1",), "data": tiny_data, "grounding": True})
    assert grounded.perturbations == ("instruction_swap", "covered_end") and grounded.severities == (1, 2, 3, 4)


def said(abstained: bool | None, one: Trial) -> Trial:
    status: Status = "failed" if abstained else "scored"
    return replace(one, status=status, level=None if abstained else 2.0, info=ScoreInfo(abstained=abstained))


def covered(severity: int) -> Trial:
    return trial(2.0, perturbation="covered_end", category="temporal", severity=severity, expectation="lower")


def test_hidden_ends_are_those_of_which_too_little_is_left() -> None:
    trials = table(
        [
            said(True, covered(2)),  # half of the rollout can be seen
            said(True, covered(3)),
            said(False, covered(4)),
            said(None, covered(4)),  # not read: lowers the coverage
            said(False, trial(1.0, 1)),
            said(True, trial(1.0, 1)),
        ]
    )
    assert eligible(trials, "hidden end").tolist() == [False, True, True, True, False, False]
    used = trials.where(answered(trials, "hidden end"))
    assert METRICS["abstention_recall"](used) == 0.5
    clean = trials.where(answered(trials, "visible end") & trials.matches("perturbation", "clean"))
    assert METRICS["false_abstention_rate"](clean) == 0.5
