"""Whole runs of paid models: killed, out of budget, and with a key that must not be seen."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rewardlab.cli import main
from rewardlab.core.run import Run
from rewardlab.models.ledger import Spent
from rewardlab.reporting.findings_text import spent_text
from tests.conftest import ROWS
from tests.models.loopback import Call, ChatServer, chat_server

TRIALS = 2 * len(ROWS)  # clean, and one perturbation at one severity
KEY = "sk-marker-0123456789abcdef"


def command(server: ChatServer, data: Path, out: Path, *more: str, options: str = "") -> list[str]:
    words = [sys.executable, "-m", "rewardlab", "stress", server.model(options), str(data), "--out", str(out)]
    few = ["--perturbations", "polite_filler", "--severities", "1", "--no-controls", "--engine", "local"]
    return [*words, *few, *more]


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env=os.environ | environment, capture_output=True, text=True, check=False)


def run_here(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which takes a tenth of the time."""
    code = main(arguments[3:])
    said = capsys.readouterr()
    return subprocess.CompletedProcess(arguments, code, said.out, said.err)


def good(call: Call) -> None:
    call.say(f"ANSWER: {1 + len(call.task) % 5}")


def replies(folder: Path) -> int:
    path = folder / "ledger.jsonl"
    return path.read_text().count('"reply"') if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [3, 8])
def test_a_run_that_is_killed_pays_for_nothing_twice(tiny_data: Path, tmp_path: Path, allowed: int) -> None:
    killed = threading.Event()

    def react(call: Call) -> None:
        if call.number < allowed or killed.is_set():
            good(call)
        else:
            killed.wait(60)  # still under way when the process is killed, and never answered
            call.drop()

    with chat_server(react) as server:
        arguments = command(server, tiny_data, tmp_path / "run", "--engine", "processes")
        first = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        while replies(tmp_path / "run") < allowed:
            assert first.poll() is None
            threading.Event().wait(0.01)
        first.send_signal(signal.SIGKILL)
        first.wait()
        paid = set(server.answered)
        killed.set()
        before = server.asked.copy()
        again = run(arguments)
    assert again.returncode == 0, again.stderr
    assert len(paid) == allowed
    assert not paid & set(server.asked - before)
    assert set(server.answered.values()) == {1} and len(server.answered) == TRIALS
    trials = Run(tmp_path / "run").trials().rows()
    assert {trial.status for trial in trials} == {"scored"} and len(trials) == TRIALS
    assert f"{server.asked.total()} requests, {1000 * TRIALS:,} tokens read" in again.stdout


def test_the_budget_stops_the_run_and_the_same_command_goes_on(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "input_price=2&output_price=10"  # each request costs 0.0021
    with chat_server(good) as server:
        stopped = run_here(
            command(server, tiny_data, tmp_path / "run", "--max-requests", "9", "--batch-size", "4"), capsys
        )
        assert stopped.returncode == 3
        assert "stopped with 8 of 12 trials" in stopped.stderr and "--max-requests" in stopped.stderr
        assert "run the same command again to continue" in stopped.stderr
        assert server.answered.total() == 9
        kept = {(t.id, t.level) for t in Run(tmp_path / "run").trials().rows()}
        assert len(kept) == 8
        more = run_here(
            command(server, tiny_data, tmp_path / "run", "--max-requests", "12", "--batch-size", "4"), capsys
        )
        assert more.returncode == 0, more.stderr
        assert kept < {(t.id, t.level) for t in Run(tmp_path / "run").trials().rows()}
        assert server.answered.total() == TRIALS
        money = run_here(command(server, tiny_data, tmp_path / "money", "--max-cost", "0.008", options=options), capsys)
    assert money.returncode == 3 and "0.0063 of 0.008 are spent" in money.stderr
    assert "cost unknown" in more.stdout
    assert server.answered.total() == TRIALS + 3


def test_the_key_is_nowhere_to_be_found(tiny_data: Path, tmp_path: Path) -> None:
    """Not even where the server echoes it in answers and in errors."""
    seen: list[str] = []

    def react(call: Call) -> None:
        seen.append(call.authorization)
        if "drawer" in call.task:
            call.refuse(422, f"bad header {call.authorization}")
        elif "towel" in call.task:
            call.say(f"I was called with {call.authorization}")
        else:
            call.say(f"{call.authorization}\nANSWER: 2")

    with chat_server(react) as server:
        done = run(command(server, tiny_data, tmp_path / "run", options="key_env=MY_KEY&logprobs=off"), MY_KEY=KEY)
    with chat_server(lambda call: call.refuse(403, f"{call.authorization} may not")) as strict:
        refused = run(command(strict, tiny_data, tmp_path / "refused", options="key_env=MY_KEY"), MY_KEY=KEY)
    assert done.returncode == 0 and refused.returncode == 3, (done.stderr, refused.stderr)
    assert set(seen) == {f"Bearer {KEY}"}
    assert "answered 403: Bearer [key] may not; check" in refused.stderr
    trials = Run(tmp_path / "run").trials()
    assert sum("[key]" in str(t.raw) for t in trials.rows()) == TRIALS - 2
    assert sum("bad header Bearer [key]" in str(t.reason) for t in trials.rows()) == 2
    said = [done.stdout, done.stderr, refused.stdout, refused.stderr, json.dumps(trials.arrow.to_pylist(), default=str)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    for text in (*(text.encode() for text in said), *files):
        assert KEY.encode() not in text
    assert "Of 12 answers 2 (16.7%) could not be parsed." in (tmp_path / "run" / "report.html").read_text()


def wrong_and_eloquent(call: Call) -> None:
    described = call.text.startswith("Describe the video")
    call.say("A robot <b>waves</b>." if described else "ANSWER: 5")


def described(server: ChatServer) -> list[str]:
    return [text for body in server.bodies if "Describe the video" in (text := json.dumps(body))]


def test_descriptions_of_misjudged_clips_are_asked_for_only_on_demand_kept_and_shown(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(wrong_and_eloquent) as server:
        arguments = command(server, tiny_data, tmp_path / "run")
        assert run_here(arguments, capsys).returncode == 0
        assert described(server) == [] and not (tmp_path / "run" / "descriptions.json").exists()
        asked = server.asked.total()
        assert run_here([*arguments, "--describe-failures", "2"], capsys).returncode == 0
        assert server.asked.total() == asked + 2 == asked + len(described(server)), "no score is paid for again"
        assert not any(str(row["task"]) in text for text in described(server) for row in ROWS), "nothing is suggested"
        assert run_here([*arguments, "--describe-failures", "2"], capsys).returncode == 0
        assert server.asked.total() == asked + 2, "what is described is not asked again"
        texts = json.loads((tmp_path / "run" / "descriptions.json").read_text())["texts"]
    wrong = {trial.id for trial in Run(tmp_path / "run").trials().rows() if trial.truth_success is False}
    assert len(texts) == 2 and set(texts) <= wrong and set(texts.values()) == {"A robot <b>waves</b>."}
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("A robot &lt;b&gt;waves&lt;/b&gt;.") == 2 and "false success" in page


def test_descriptions_stop_at_the_budget_and_go_on(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(wrong_and_eloquent) as server:
        arguments = command(server, tiny_data, tmp_path / "run")
        assert run_here(arguments, capsys).returncode == 0
        asked = server.asked.total()
        short = run_here([*arguments, "--describe-failures", "2", "--max-requests", str(asked + 1)], capsys)
        assert short.returncode != 0 and "not every description is there" in short.stderr
        assert server.asked.total() == asked + 1
        assert run_here([*arguments, "--describe-failures", "2"], capsys).returncode == 0
        assert server.asked.total() == asked + 2, "the one that is paid for is kept"


@pytest.mark.parametrize(
    ("spent", "cost"),
    [
        (Spent(), "0"),
        (Spent(requests=2), "unknown"),
        (Spent(requests=2, replies=2), "unknown"),
        (Spent(requests=2, replies=1, priced=1, cost=0.5), "0.5 or more"),
        (Spent(requests=2, replies=2, priced=2, cost=0.5), "0.5"),
    ],
)
def test_a_request_without_a_reply_is_not_free(spent: Spent, cost: str) -> None:
    assert spent_text(spent).endswith(f"cost {cost}")
