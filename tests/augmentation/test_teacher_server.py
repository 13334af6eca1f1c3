"""Teachers behind a server that answers well and badly: nothing invalid is kept, and nothing is asked twice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.augmentation.augment import Augmented
from rewardlab.augmentation.text_checks import form_rejection
from rewardlab.cli import main
from rewardlab.core.errors import StoppedByModel
from rewardlab.core.settings import Budget, Execution
from rewardlab.core.video_encoding import encode
from tests.augmentation.local_teacher import ANALYSIS, COMMANDS, PLAN
from tests.conftest import moving_square, write_rows
from tests.models.loopback import Call, ChatServer, chat_server

pytest.importorskip("httpx2", reason="needs rewardlab[api]")

IN_PROCESS = Execution(engine="local", quiet=True)
ATTEMPTS = 3
BAD_COMMANDS = {  # what is said first to the questions for each score
    1: ["I'm sorry, but I can't help with that.", "Pick up the spöön."],
    2: ["Put the red cup " + "slowly " * 22 + "beside the spoon.", COMMANDS[1]],
    3: ["Sure! Here is the command:\nPut the red cup under the plate."],
    4: ["Put the cup on the plate.", "Score 4: put the cup down", "Put the red cup into the oven."],  # never a good one
}


def attempt_of(text: str) -> int:
    return text.count("Your answer to this was refused")


def command(text: str) -> str:
    score = int(text.partition("command for score ")[2][0])
    bad = BAD_COMMANDS[score]
    last = text.partition("It was: ")[2]
    tried = next((place for place, answer in enumerate(bad) if last and last.startswith(answer.splitlines()[0])), -1)
    return [*bad, COMMANDS[score]][tried + 1]


def reply(text: str) -> str:
    """Say something wrong first, in every way that teachers do, and then what is right."""
    again = attempt_of(text) > 0
    if "strict annotation validator" in text:
        if "next to the spoon" in text and not again:
            return "I believe it is true."  # no verdict in the form that is asked for
        wrong = "PROVIDED SCORE: 3" in text and "DESCRIPTION: Put the red cup on the plate." in text
        return f"The state fits.\nANSWER: {'FALSE' if wrong else 'TRUE'}"
    if "Rewrite the following" in text:
        return "Put the cup into the sink." if not again else "Put the red cup on the plate."
    if "analyzing a video" in text:
        return ANALYSIS if again else "I see a video."
    if "Plan carefully" in text:
        return PLAN if again else "2: Put it down.\n1: Pick it up.\n3: a\n4: b"
    return command(text)


def react(call: Call) -> None:
    call.say(reply(call.text))


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two demonstrations without progress, the task of the first misspelt, and a failure."""
    folder = tmp_path_factory.mktemp("demos")
    (folder / "lab").mkdir()
    for name in "abc":
        encode(moving_square(name), folder / f"lab/{name}.mp4", fps=10)
    tasks = ("put teh red cup on the plate", "Put the red cup on the plate.", "Put the red cup on the plate.")
    rows = [
        {"file_name": f"lab/{n}.mp4", "task": t, "reward": r} for n, t, r in zip("abc", tasks, (5, 5, 2), strict=True)
    ]
    return write_rows(folder, rows)


def rows_of(folder: Path, name: str = "metadata.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def run_stages(data: Path, out: Path, server: ChatServer, **more: Any) -> Augmented:
    model = server.model("retries=0")
    stages = ("rewrite", "counterfactual", "clip", "validate")
    settings = {"execution": IN_PROCESS} | more
    return rewardlab.data_augment(data, out=out, stage=stages, vision=model, text=model, **settings)


@pytest.fixture(scope="module")
def asked(demos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ChatServer]:
    out = tmp_path_factory.mktemp("server") / "out"
    with chat_server(react) as server:
        run_stages(demos, out, server)
    return out, server


def test_nothing_invalid_is_kept_and_each_level_has_its_command(asked: tuple[Path, ChatServer]) -> None:
    made = [row for row in rows_of(asked[0] / "validate") if row["provenance"]["stage"] == "counterfactual"]
    assert sorted((row["file_name"], row["reward"], row["task"]) for row in made) == sorted(
        (f"lab/{name}.mp4", score, COMMANDS[score]) for name in "ab" for score in (1, 2, 3)
    )
    assert all(form_rejection(row["task"]) == "" and "progress" not in row for row in made)
    assert {row["task"] for row in rows_of(asked[0] / "rewrite")} == {"Put the red cup on the plate."}


def test_what_was_refused_is_kept_with_the_reason(asked: tuple[Path, ChatServer]) -> None:
    refused = rows_of(asked[0] / "validate", "rejected.jsonl")
    commands = [row for row in refused if row["provenance"]["stage"] == "counterfactual"]
    assert [row["reward"] for row in commands] == [4, 4]
    for row in commands:
        assert (
            "after 3 attempts; the last: it is not grounded: nothing that was seen is called 'oven'"
            in (row["provenance"]["rejected"])
        )
    clips = [row for row in refused if row["provenance"]["stage"] == "clip"]
    assert all(row["provenance"]["rejected_at"] == "clip" for row in clips)


def test_the_history_of_a_row_is_complete_and_regeneration_bounded(asked: tuple[Path, ChatServer]) -> None:
    every = [*rows_of(asked[0] / "validate"), *rows_of(asked[0] / "validate", "rejected.jsonl")]
    made = [row for row in every if row["provenance"]["stage"] == "counterfactual"]
    for row in made:
        history = row["provenance"]["history"]
        tried = [entry for entry in history if entry["kind"] == "command"]
        assert [entry["attempt"] for entry in tried] == list(range(1, len(tried) + 1)) and len(tried) <= ATTEMPTS
        assert [bool(entry["rejected"]) for entry in history if entry["kind"] == "analysis"] == [True, False]
        assert [bool(entry["rejected"]) for entry in history if entry["kind"] == "plan"] == [True, False]
        assert all(entry["prompt_hash"] and entry["teacher"].startswith("openai:judge@") for entry in history)
        assert [entry["answer"].splitlines()[0] for entry in tried][: len(BAD_COMMANDS[row["reward"]])] == [
            answer.splitlines()[0] for answer in BAD_COMMANDS[row["reward"]]
        ]
    reasons = " ".join(entry["rejected"] for row in made for entry in row["provenance"]["history"])
    for words in ("not plain ASCII", "begin with a verb", "at most 24", "one line", "this order", "paraphrase of"):
        assert words in reasons
    second = next(row for row in made if row["reward"] == 2)["provenance"]["history"]
    assert [bool(entry["rejected"]) for entry in second if entry["kind"] == "validate"] == [True, False]


def test_clips_without_known_progress_are_proposed_and_confirmed(asked: tuple[Path, ChatServer]) -> None:
    clips = [row for row in rows_of(asked[0] / "validate") if row["provenance"]["stage"] == "clip"]
    assert sorted(row["reward"] for row in clips) == [1, 1, 2, 2, 4, 4, 4, 4]  # a 3 is never confirmed
    third = [row for row in clips if row["provenance"]["attempt"] == 2]
    assert [row["reward"] for row in third] == [4, 4]


def test_no_question_is_asked_twice_and_a_second_run_asks_nothing(asked: tuple[Path, ChatServer], demos: Path) -> None:
    out, first = asked
    assert max(first.asked.values()) == 1
    before = {path: path.read_bytes() for path in sorted(out.rglob("*.jsonl")) if ".calls" not in path.parts}
    again = rewardlab.data_augment(
        demos,
        out=out,
        stage=("rewrite", "counterfactual", "clip", "validate"),
        vision=first.model(),  # the server is gone, and nobody needs it
        text=first.model(),
        execution=IN_PROCESS,
    )
    assert again.queried == {} and {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("last", [9])
def test_a_killed_run_goes_on_without_asking_twice(demos: Path, tmp_path: Path, last: int) -> None:
    process: list[subprocess.Popen[bytes]] = []

    def kill_at(call: Call) -> None:
        if call.number == last and process:
            os.kill(process.pop().pid, signal.SIGKILL)
            return call.drop()
        return call.say(reply(call.text))

    with chat_server(kill_at) as server:
        model = server.model("retries=0&concurrency=1")
        words = ["data", "augment", str(demos), "--out", str(tmp_path / "out"), "--vision", model, "--text", model]
        words += ["--stage", "counterfactual", "-q", "--engine", "local"]
        process.append(subprocess.Popen([sys.executable, "-m", "rewardlab", *words], stderr=subprocess.DEVNULL))
        running = process[0]
        assert running.wait(120) == -signal.SIGKILL and not (tmp_path / "out" / "metadata.jsonl").exists()
        answered = dict(server.answered)
        assert main(words) == 0
        assert len(answered) == last and all(server.asked[key] == 1 for key in answered)
        assert max(server.answered.values()) == 1
    made = [row for row in rows_of(tmp_path / "out") if row["provenance"]["stage"] == "counterfactual"]
    assert len(made) == 6


def test_the_budget_stops_the_run_and_more_of_it_goes_on(demos: Path, tmp_path: Path) -> None:
    with chat_server(react) as server:
        with pytest.raises(StoppedByModel, match=r"the budget of 6 requests is spent.*the same command continues"):
            run_stages(demos, tmp_path / "out", server, budget=Budget(max_requests=6))
        assert server.asked.total() == 6
        run_stages(
            demos, tmp_path / "out", server, budget=Budget(max_requests=500), execution=Execution(workers=2, quiet=True)
        )
        assert max(server.asked.values()) == 1


def test_what_it_would_cost_is_said_before_anything_is_asked(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(react) as server:
        teachers = ["--vision", server.model(), "--text", server.model()]
        words = ["data", "augment", str(demos), "--out", str(tmp_path / "out"), *teachers, "--dry-run"]
        assert main(words) == 0 and server.asked.total() == 0
    said = capsys.readouterr().out
    assert "2 successes" in said and "questions to a server" in said and "tokens and cost: known after" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [lambda call: call.refuse(400), lambda call: call.say("x" * 200)])
def test_a_teacher_of_no_use_makes_no_row(demos: Path, tmp_path: Path, wrong: Callable[[Call], None]) -> None:
    with chat_server(wrong) as server:
        model = server.model("retries=0")
        rewardlab.data_augment(
            demos, out=tmp_path / "out", stage="counterfactual", vision=model, text=model, execution=IN_PROCESS
        )
    assert len(rows_of(tmp_path / "out")) == 3
    refused = rows_of(tmp_path / "out", "rejected.jsonl")
    assert len(refused) == 8 and all("no analysis could be used" in row["provenance"]["rejected"] for row in refused)


def test_a_torn_line_of_the_cache_is_asked_again_and_the_others_are_not(demos: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    with chat_server(react) as server:
        first = run_stages(demos, tmp_path / "first", server, cache_dir=calls)
        (calls / "ledger.jsonl").unlink()
        kept = (calls / "calls.jsonl").read_bytes()
        (calls / "calls.jsonl").write_bytes(kept[:-20])
        second = run_stages(demos, tmp_path / "second", server, cache_dir=calls)
    assert sum(first.queried.values()) > 20 and sum(second.queried.values()) == 1
    assert rows_of(tmp_path / "second" / "validate") == rows_of(tmp_path / "first" / "validate")
