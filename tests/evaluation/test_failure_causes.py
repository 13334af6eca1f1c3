"""Why rollouts failed, from collected rollouts through a scripted server and a tiny model to the report page."""

import json
from collections import Counter
from pathlib import Path

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.reporting.benchmark_tables import CONSTANT, load_benchmark
from rewardlab.reporting.report import write_report
from tests.models.loopback import Call, chat_server
from tests.narrowing import known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve rollouts of the tabletop of four qualities, each with its cause."""
    folder = tmp_path_factory.mktemp("rollouts") / "data"
    rewardlab.collect(
        "tabletop", tasks=("put-in", "lift", "open"), episodes=4, quality=("missed_grasp", "stop", "success", "idle"),
        balance=False, size=32, frames=(12, 12), counterfactuals=0, execution=Execution(workers=1), out=folder,
    )  # fmt: skip
    return folder


def test_a_benchmark_measures_causes_beside_the_most_common_one(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = open_dataset(str(data)).episodes
    failures = {e.instruction: e.label.failure for e in episodes}
    assert len(failures) == 12

    def react(call: Call) -> None:
        if "CAUSE:" not in call.text:
            return call.say("ANSWER: 2")
        failure = failures[call.task]
        if failure is None:
            return call.say("FRAME: 0\nCAUSE: 0")
        if failure.cause == "other":
            return call.say("I cannot tell.")
        named = {"missed_grasp": 1, "early_end": 1}[failure.cause]  # every stop is taken for a missed grasp
        return call.say(f"FRAME: {1 + known(failure.frame)}\nCAUSE: {named}")

    with chat_server(react) as server:
        model = "causes:" + server.model()
        command = ["bench", model, str(data), "--out", str(tmp_path / "run"), "--engine", "local", "--frames", "all"]
        assert main([*command, "--no-duplicates"]) == 0
        assert len(server.bodies) == 24
    found = json.loads((tmp_path / "run" / "causes.json").read_text())
    (errors,) = found["models"].values()  # the controls were not asked
    true = Counter(failure.cause if failure else "none" for failure in failures.values())
    assert true["early_end"] and true["other"] == 3 and len(true) == 4
    assert errors["accuracy"]["value"] == pytest.approx((9 - true["early_end"]) / 9)
    assert (errors["accuracy"]["scored"], errors["accuracy"]["asked"]) == (9, 12)
    assert errors["confusion"]["early_end"]["missed_grasp"] == true["early_end"]
    assert errors["confusion"]["other"]["unread"] == 3
    frames = true["early_end"] + true["missed_grasp"]
    assert errors["frame_error"]["value"] == 0 and errors["frame_error"]["asked"] == frames
    assert found["constant"]["accuracy"]["value"] == pytest.approx(max(true.values()) / 12)
    assert 0 < found["constant"]["frame_error"]["value"] < 1
    run = Run(tmp_path / "run")
    causes = run.trials().text("truth_failure_cause")
    assert {name for name in causes if name} == {"missed_grasp", "early_end", "other"}
    benchmark = known(load_benchmark(run))
    assert list(benchmark.named_causes)[-1] == CONSTANT
    said = " ".join(capsys.readouterr().out.split())
    assert "Why rollouts failed" in said and "macro F1" in said and "most common" in said
    page = write_report([run], tmp_path / "report.html").read_text()
    assert "Why rollouts failed" in page and "true cause" in page and "FRAME: 0" in page


def test_a_run_without_a_model_that_names_causes_has_no_table(data: Path, tmp_path: Path) -> None:
    command = ["bench", "pocket", str(data), "--out", str(tmp_path / "run"), "--engine", "local", "--no-duplicates"]
    assert main(command) == 0
    assert not (tmp_path / "run" / "causes.json").exists()
    run = Run(tmp_path / "run")
    assert known(load_benchmark(run)).named_causes == {}
    assert "Why rollouts failed" not in write_report([run], tmp_path / "report.html").read_text()
