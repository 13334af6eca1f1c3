"""Failure is loud: a model that cannot answer is told why, costs few trials, and the exit code says so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rewardlab.cli import main
from rewardlab.core.errors import StopRun
from rewardlab.core.run import Run
from rewardlab.core.trial import Trial
from rewardlab.evaluation.plan import EpisodeTrials, Job, PlannedTrial
from rewardlab.evaluation.worker_pool import FirstAnswers
from tests.command_here import run_here
from tests.evaluation.test_stress import run_judge, write_model
from tests.models.loopback import Call, chat_server
from tests.terminal import in_terminal

MANY = "truncate_end,polite_filler"  # with four severities and six episodes: 54 trials per model
HERE = ("--engine", "local")


def stress(model: str, data: Path, out: Path, *more: str) -> list[str]:
    few = ["--perturbations", MANY, "--no-controls", "--out", str(out)]
    return [sys.executable, "-m", "rewardlab", "stress", model, str(data), *few, *more]


def on_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command with a terminal for its output; return its exit code and what was shown."""
    code, shown = in_terminal(command, environment)
    return code, " ".join(shown.decode().split())


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "batch", "workers"), [("5", "2", "2"), ("7", "8", "1")])
def test_a_model_that_always_raises_is_asked_about_few_cells_and_named(
    tiny_data: Path, tmp_path: Path, limit: str, batch: str, workers: str
) -> None:
    log = tmp_path / "asked"
    body = f"for e in episodes: open({str(log)!r}, 'a').write(e.instruction + '\\n')\nraise ValueError('no weights')"
    environment = write_model(tmp_path, body) | {"COLUMNS": "200"}
    settings = ("--max-failures", limit, "--batch-size", batch, "--workers", workers)
    code, shown = on_a_terminal(stress("judge.model:Judge", tiny_data, tmp_path / "run", *settings), environment)
    assert code == 3
    assert f"the first {limit} answers of judge.model:Judge all failed alike: ValueError: no weights" in shown
    assert "--max-failures" in shown and "--retry-failures" in shown
    assert len(Run(tmp_path / "run").trials()) == int(limit)  # what is finished is kept
    assert len(log.read_text().splitlines()) <= 2 * int(limit)  # in a batch, and each alone


def test_a_server_that_answers_nonsense_costs_no_more_requests_than_allowed(tiny_data: Path, tmp_path: Path) -> None:
    def nonsense(call: Call) -> None:
        call.say(f"The weather is fine, number {call.number}.")

    with chat_server(nonsense) as server:
        words = stress(server.model(), tiny_data, tmp_path / "run", "--max-failures", "5", "--batch-size", "16", *HERE)
        done = run_here(*words[3:])
        assert done.returncode == 3 and "unreadable answer: expected one 'ANSWER: n'" in done.stderr
        assert server.asked.total() == 5


def test_a_server_that_is_no_model_at_all_costs_no_more_requests_than_allowed(tiny_data: Path, tmp_path: Path) -> None:
    with chat_server(lambda call: call.send(200, b"<html>Welcome</html>")) as server:
        words = stress(server.model(), tiny_data, tmp_path / "run", "--max-failures", "5", *HERE)
        done = run_here(*words[3:])
        assert done.returncode == 3 and "the answer cannot be read" in done.stderr
        assert server.asked.total() == 5


def test_a_wrong_number_of_answers_is_told_and_nobody_is_asked_again(
    tiny_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "sys.stderr.write('batch\\n'); sys.stderr.flush()\nreturn [Score(3)] * (len(episodes) - 1)"
    write_model(tmp_path, body)
    words = stress("judge.model:Judge", tiny_data, tmp_path / "run", "--batch-size", "9", "--max-failures", "18", *HERE)
    assert run_judge(tmp_path, words) == 3
    said = capfd.readouterr().err
    assert "8 answers to a batch of 9: score(episodes) must return one per episode" in said
    assert said.count("batch\n") == 2


def test_reasons_are_counted_on_the_terminal_and_a_silent_model_is_no_success(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "moody.py").write_text(
        "from rewardlab import Failure, Score\n"
        "class Some:\n"
        "    def score(self, episodes):\n"
        "        return [Failure(f'too dark at {len(e.frames)}') if 'o' in e.instruction else Score(2)"
        " for e in episodes]\n"
        "class Never:\n"
        "    def score(self, episodes):\n"
        "        return [Failure('closed ' + e.instruction) for e in episodes]\n"
    )
    monkeypatch.chdir(tmp_path)
    few = ["--perturbations", "none", "--no-controls", *HERE]
    assert main(["stress", "moody:Some", str(tiny_data), *few]) == 0
    assert "failed: 5 x moody:Some: too dark at " in capsys.readouterr().out
    assert main(["stress", "moody:Never", str(tiny_data), *few]) == 3
    said = capsys.readouterr()
    assert "failed: 1 x moody:Never: closed" in said.out and "3 x moody:Never: 3 other reasons" in said.out
    assert "off by - levels" not in said.out and "returned no score at all" in said.err


def trial(model: str, reason: str | None, *, prepared: bool = True) -> Trial:
    return Trial(
        id="id", model=model, episode="e", video="v", subset="s", task="t", perturbation="clean", category="clean",
        severity=0, seed=0, expectation="same", truth_level=3, truth_success=False, truth_progress=None,
        instruction="open it", shown=(0,), frames_hash="0f" if prepared else "",
        status="failed" if reason else "scored", reason=reason,
    )  # fmt: skip


def test_only_failures_alike_from_the_start_end_a_run() -> None:
    first = FirstAnswers(("a", "b"), 3)
    first.count([trial("a", "no 1"), trial("b", "x"), trial("a", "no 2"), trial("c", "no 3")])
    first.count([trial("b", "y"), *[trial("b", "y")] * 5])  # not alike: it says different things
    first.count([trial("a", "video is broken", prepared=False)])  # no answer
    assert first.untried == {"a"}
    with pytest.raises(StopRun, match="first 3 answers of a all failed alike: no 1"):
        first.count([trial("a", "no 99")])
    sound = FirstAnswers(("a",), 1)
    sound.count([trial("a", None), *[trial("a", "no")] * 9])
    assert not sound.untried and not FirstAnswers(("a",), 0).untried


def test_an_untried_model_is_handed_no_more_cells_than_may_fail() -> None:
    trials = [PlannedTrial(f"{model}{place}", "clean", 0, model) for place in range(9) for model in "ab"]
    job = Job((EpisodeTrials(None, tuple(trials)),))  # type: ignore[arg-type]  # no episode is looked at
    first = FirstAnswers(("a",), 5)
    part, rest = first.first_part(job, batch=8)
    assert [trial.model for trial in part.trials].count("a") == 5 and len(part.trials) + len(rest[0].trials) == 18
    first.count([trial("a", "no")] * 3)
    assert sum(trial.model == "a" for trial in first.first_part(rest[0], batch=8)[0].trials) == 2
    first.count([trial("a", None)])
    assert first.first_part(rest[0], batch=8) == (rest[0], ())


RAISES = "raise ValueError('bad \\x1b[31m weights')"


@pytest.mark.parametrize("here", [(), HERE])
def test_the_traceback_of_a_model_is_shown_with_file_and_line_and_steers_no_terminal(
    tiny_data: Path, tmp_path: Path, here: tuple[str, ...]
) -> None:
    environment = write_model(tmp_path, RAISES)
    command = stress("judge.model:Judge", tiny_data, tmp_path / "run", "--max-failures", "0", *here)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.count("Traceback (most recent call last):") == 1 and "\x1b" not in done.stdout
    assert (
        re.search(r'File ".*judge/model\.py", line \d+, in score', done.stdout) and "isolated_model" not in done.stdout
    )
    assert ("--engine local runs judge.model:Judge in this process" in done.stderr) is bool(here)
    run = Run(tmp_path / "run")
    assert "judge/model.py" in str(run.trials().rows()[0].traceback)


def test_score_shows_the_first_traceback_or_with_v_every_one(tiny_data: Path, tmp_path: Path) -> None:
    environment = write_model(tmp_path, RAISES)
    clip = str(tiny_data / "arm/a.mp4")
    command = [sys.executable, "-m", "rewardlab", "score", "judge.model:Judge", clip, clip, "open it"]
    for more, count in (((), 1), (("-v",), 2)):
        done = subprocess.run([*command, *more], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 3 and done.stdout.count("Traceback") == count and "judge/model.py" in done.stdout


def test_fail_fast_stops_at_the_first_failed_trial_and_keeps_what_is_scored(tiny_data: Path, tmp_path: Path) -> None:
    body = "if any('cup' in e.instruction for e in episodes): raise ValueError('no cups')\nreturn [3 for _ in episodes]"
    environment = write_model(tmp_path, body)
    words = stress("judge.model:Judge", tiny_data, tmp_path / "run", "--fail-fast", "--batch-size", "1", *HERE)
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3 and "ValueError: no cups" in done.stderr and "--retry-failures" in done.stderr
    run = Run(tmp_path / "run")
    assert run.trials().matches("status", "failed").sum() == 1 and len(run.trials()) < run.record.trials
