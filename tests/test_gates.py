"""Gates, JSON, JUnit and dry runs: what continuous integration and a careful payer meet, with real processes."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, start_run
from rewardlab.evaluation.gates import check_gates, parse_gate
from rewardlab.evaluation.summary import load_summary, summarise
from rewardlab.perturbations import FAMILIES, QUICK, choose_perturbations
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial
from tests.models.loopback import Call, chat_server
from tests.narrowing import known

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
FEW = ["--perturbations", "jpeg", "--severities", "1", "--engine", "local"]


def workflow_command() -> str:
    """Return the command of the workflow file that docs/howto/ci.md shows."""
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load((EXAMPLES / "reward-gate.yml").read_text())["jobs"]["stress"]["steps"]
    return next(str(step["run"]) for step in steps if step.get("name") == "stress test with gates")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "code", "failures"), [("oracle", 0, 0), ("random", 1, 2)])
def test_the_gate_of_the_workflow_passes_the_oracle_and_fails_random(
    tmp_path: Path, model: str, code: int, failures: int
) -> None:
    command = workflow_command().replace("rewardlab stress", f"{sys.executable} -m rewardlab stress", 1)
    words = ["sh", "-c", f"{command} --limit 60 --no-controls --engine local"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"MODEL": model})
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and lines[-1] == "report: gate-run/report.html" and not done.stderr
    suite = ElementTree.parse(tmp_path / "rewardlab.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", str(failures), "0")
    (case,) = suite.findall("testcase[@classname='rewardlab.models']")
    assert float(known(case.get("time"))) == float(known(suite.get("time"))) > 0
    said = [known(failure.get("message")) for failure in suite.findall("testcase/failure")]
    assert len(said) == failures
    if failures:
        assert said[0].startswith("gate FAILED: macro_mae<=0.8: random has ") and "[" in said[0]
        assert "certified up to no severity under visual changes" in said[1]


def test_the_pre_commit_example_is_one_command_of_ours() -> None:
    yaml = pytest.importorskip("yaml")
    hook = yaml.safe_load((EXAMPLES / "pre-commit-config.yaml").read_text())["repos"][0]["hooks"][0]
    assert hook["entry"].startswith("rewardlab bench") and hook["pass_filenames"] is False


def test_json_alone_is_on_stdout(tiny_data: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rewardlab", "stress", "length", str(tiny_data), *FEW, "--no-controls", "--json"]
    gate = ["--require", "success_accuracy:visual@1>=0.99", "--require", "coverage>=1"]
    done = subprocess.run([*words, *gate], capture_output=True, text=True, cwd=tmp_path)
    content = json.loads(done.stdout)
    assert done.returncode == content["exit_code"] == 1
    assert [gate["passed"] for gate in content["gates"]] == [False, True]
    assert content["models"]["length"]["counts"]["scored"] == 12
    assert set(content["models"]["length"]["clean"]) >= {"macro_mae", "success_accuracy"}
    assert "12 trials (6 episodes x 2 conditions x 1 model)" in done.stderr


def test_bench_has_gates_and_a_model_that_stops_the_run_is_an_error_in_the_junit_file(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--no-controls", "--no-duplicates", "--engine", "local", "-q"]
    assert main(["bench", "length", str(tiny_data), *few, "--require", "micro_mae<=0.1"]) == 1
    assert "gate FAILED: micro_mae<=0.1: length has " in capsys.readouterr().out
    (tmp_path / "mute.py").write_text("class Mute:\n    def score(self, episodes): raise ValueError('\\x00 <no>')\n")
    stop = ["--max-failures", "2", "--junit", "deep/j.xml"]
    assert main(["bench", "mute:Mute", str(tiny_data), *few, *stop]) == 3
    error = ElementTree.parse("deep/j.xml").getroot().find("testsuite/testcase/error")
    assert error is not None and "<no>" in str(error.text)


def test_a_junit_file_that_cannot_be_written_hides_no_result(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "failing.py").write_text("class Failing:\n    def score(self, episodes): raise ValueError('no')\n")
    words = [str(tiny_data), *FEW, "--no-controls", "-q", "--junit", "file/j.xml"]
    for more in ([], ["--json"]):
        assert main(["stress", "length", *words, "--require", "macro_mae<=0", *more]) == 2
        said = capsys.readouterr()
        assert "macro_mae<=0" in said.out and said.err.startswith("rewardlab: cannot write file/j.xml: ")
    assert main(["stress", "failing:Failing", *words, "--max-failures", "2"]) == 3
    unwritten, failed = capsys.readouterr().err.splitlines()[-2:]
    assert "cannot write file/j.xml" in unwritten and "failing:Failing all failed" in failed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("macro_mae", "is no gate"),
        ("macro_mae<=much", "is no gate"),
        ("macro_ma<=1", "did you mean macro_mae"),
        ("certified:visul>=1", "did you mean visual"),
        ("flip_rate:gaussian_nois<=1", "did you mean gaussian_noise"),
        ("macro_mae@4<=5", "only a metric under changes has a severity"),
        ("macro_mae:clean@4<=5", "only a metric under changes has a severity"),
        ("certified:visual@4>=0", "only a metric under changes has a severity"),
        ("coverage:visual>=0.6", "coverage is that of all trials"),
    ],
)
def test_a_gate_that_means_nothing_is_told_before_anything_is_scored(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlanError, match=words):
        parse_gate(text)
    monkeypatch.chdir(tmp_path)
    assert main(["stress", "length", "sample", "--require", text]) == 2
    assert not list(tmp_path.iterdir()) and words in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--require", "no gate"], ["--junit", "j.xml"], ["--json"], ["--open"]])
def test_results_of_a_whole_run_are_refused_with_a_shard(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["stress", "length", "sample", *FEW, "--shard", "1/2", *more]) == 2
    assert f"a shard has no results for {more[0]}: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_gates_of_shards_are_checked_on_the_merged_run(tiny_data: Path, tmp_path: Path) -> None:
    words = ["stress", "length", str(tiny_data), *FEW, "--no-controls", "-q"]
    shards = [str(tmp_path / part) for part in ("1", "2")]
    assert [main([*words, "--shard", f"{part[-1]}/2", "--out", part]) for part in shards] == [0, 0]
    assert main(["runs", "merge", *shards, "--out", str(tmp_path / "whole")]) == 0
    whole = [*words, "--out", str(tmp_path / "whole"), "--require"]
    assert (main([*whole, "coverage>=1"]), main([*whole, "macro_mae<=0"])) == (0, 1)


def test_a_gate_is_held_against_the_end_that_speaks_against_it(tiny_data: Path, tmp_path: Path) -> None:
    assert main(["stress", "length", str(tiny_data), *FEW, "--out", str(tmp_path / "run")]) == 0
    summary = load_summary(Run(tmp_path / "run"))
    found = summary.clean("length", "macro_mae")
    low, value, high = known(found.low), known(found.value), known(found.high)
    assert low < value < high
    texts = (f"macro_mae<={(value + high) / 2}", f"macro_mae<={high + 0.01}", f"macro_mae>={value}")
    results = check_gates(
        [parse_gate(text) for text in (*texts, "oracle/macro_mae<=0", "kendall_tau_b:temporal>=0")], summary
    )
    assert [result.passed for result in results] == [False, True, False, False, False]
    assert "0.000 without an interval" in results[-2].measured  # all of five labelled tasks
    assert "no value" in results[-1].measured


@pytest.mark.parametrize(("tasks", "passed"), [(5, False), (6, True)])
def test_a_gate_on_an_error_takes_six_tasks_where_all_have_the_same(tmp_path: Path, tasks: int, passed: bool) -> None:
    trials = [trial(3.0, 4, id=str(n), episode=f"e{n}", video=f"v{n}", task=f"t{n}") for n in range(tasks)]
    run = start_run(tmp_path / "run", record_of(trials))
    run.append(trials)
    (result,) = check_gates([parse_gate("macro_mae<=2")], summarise(run, draws=200))
    assert result.passed == passed and result.value == 1.0
    assert ("takes 2 clusters (tasks or videos), or 6" in result.sentence) != passed


def test_the_default_is_a_spread_of_all_categories() -> None:
    default = inspect.signature(rewardlab.stress).parameters["perturbations"].default
    chosen = choose_perturbations(default)
    assert default == ("quick",) and tuple(p.name for p in chosen) == QUICK
    assert {p.category for p in chosen} == set(FAMILIES) and len(chosen) == 8


def test_the_forecast_of_the_cost_leaves_out_models_that_cost_nothing(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(call: Call) -> None:
        call.say("ANSWER: 3")

    with chat_server(good) as server:
        model = server.model("input_price=2&output_price=10")
        assert main(["stress", model, str(tiny_data), "--perturbations", "none", "--out", str(tmp_path / "run")]) == 0
        requests = server.asked.total()
    said = capsys.readouterr().err
    assert requests == 6 and "scoring 48 of 48" in said
    assert set(re.findall(r"about (\S+) in all", said)) == {"0.0126"}  # six replies of 0.0021, however few came first


def test_a_dry_run_tells_cells_and_requests_and_asks_nobody(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(call: Call) -> None:
        call.say("ANSWER: 3")

    monkeypatch.chdir(tmp_path)
    with chat_server(good) as server:
        words = ["stress", server.model("input_price=2&output_price=10"), str(tiny_data)]
        assert main([*words, "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "1,584 trials (6 episodes x 33 conditions x 8 models)" in said
        assert f"{server.model()}: 198 requests or more to a server" in said
        assert "tokens and cost: known after the first answers" in said
        assert server.asked.total() == 0 and not list(tmp_path.iterdir())
        few = ["--perturbations", "none", "--no-controls", "--max-requests", "2", "--batch-size", "1"]
        assert main([*words, *few]) == 3
        assert main([*words, *few, "--dry-run"]) == 0
        assert server.asked.total() == 2
    said = capsys.readouterr().out
    assert "6 trials" in said and "2 of them finished" in said and "about 4,040 tokens, cost 0.0084" in said
