"""`rewardlab score`: a model asked once about real videos, and everything that explains its answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_here import run_here
from tests.models.loopback import chat_server

LONG = "The gripper closes on the handle and pulls. " * 6


def score(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rewardlab", "score", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_the_answer_is_explained_in_eighty_columns(tiny_data: Path) -> None:
    done = score("pocket", str(tiny_data / "arm/a.mp4"), str(tiny_data / "arm/b.mp4"), "open the drawer")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(" s") and "frames shown" in line] == [
        f"{tiny_data / 'arm/a.mp4'}: 14 of 14 frames shown, 1.3 s",
        f"{tiny_data / 'arm/b.mp4'}: 15 of 15 frames shown, 1.4 s",
    ]
    assert done.stdout.count(" of 5, ") == 2 and done.stdout.count("  levels      1: 0.") == 2
    assert any(bar in done.stdout for bar in "▁▂▃▄▅▆▇█") and lines[-1].startswith("pocket took ")
    assert max(len(line) for line in lines if str(tiny_data) not in line) <= 80


def test_a_terminal_without_utf8_gets_ascii_bars_and_a_long_clip_one_line(tiny_data: Path) -> None:
    done = score("pocket", str(tiny_data / "arm/a.mp4"), "open it", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "  progress  " in done.stdout


def test_json_holds_the_same(tiny_data: Path) -> None:
    done = run_here("score", "constant:5", str(tiny_data / "arm/a.mp4"), "open it", "--frames", "uniform:4", "--json")
    found = json.loads(done.stdout)
    assert (found["model"], found["instruction"], found["spent"]) == ("constant:5", "open it", None)
    (clip,) = found["clips"]
    assert (clip["shown"], clip["frames"], clip["level"], clip["success"]) == (4, 14, 5.0, True)


def test_what_a_model_prints_is_no_part_of_the_json(tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text("def reward(episode):\n    print('debug')\n    return 3.0\n", encoding="utf-8")
    done = score("chatty:reward", str(tiny_data / "arm/a.mp4"), "open it", "--json", PYTHONPATH=str(tmp_path))
    assert json.loads(done.stdout)["clips"][0]["level"] == 3.0 and "debug" in done.stderr


def test_a_paid_model_shows_prompt_raw_answer_and_cost(tiny_data: Path) -> None:
    with chat_server(lambda call: call.say(f"{LONG}\nANSWER: 4")) as server:
        model = f"openai:judge@{server.url}?input_price=1&output_price=10"
        done = run_here("score", model, str(tiny_data / "arm/a.mp4"), "open the drawer")
        record = json.loads(run_here("score", model, str(tiny_data / "arm/a.mp4"), "open the drawer", "--json").stdout)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "level 4.00 of 5, not a success" in words and "Task: open the drawer" in words
    assert f"answer {LONG}ANSWER: 4" in words
    assert words.endswith("1 request, 1,000 tokens read, 10 written, cost 0.0011")
    lines = [line for line in done.stdout.splitlines() if not line.startswith((str(tiny_data), "openai:"))]
    assert max(map(len, lines)) <= 80
    assert record["clips"][0]["raw"].endswith("ANSWER: 4") and "open the drawer" in record["prompt"]
    assert record["spent"]["requests"] == 1


def test_a_model_that_gives_no_answer_ends_with_3_and_says_what_it_wrote(tiny_data: Path) -> None:
    with chat_server(lambda call: call.say(f"{LONG}I cannot tell.")) as server:
        done = run_here("score", f"openai:judge@{server.url}?retries=0", str(tiny_data / "arm/a.mp4"), "open it")
    assert done.returncode == 3
    assert "no answer" in done.stdout and "I cannot tell." in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["length", "gone.mp4", "open it"], "gone.mp4"),
        (["length", "gone.mp4", " "], "say what the robot was asked to do"),
        (["lenght", "gone.mp4", "open it"], "did you mean length"),
        (["length", "open it"], "INSTRUCTION must be given: rewardlab score MODEL CLIPS... INSTRUCTION"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str) -> None:
    done = run_here("score", *words)
    assert done.returncode in (2, 4) and not done.stdout  # a video that is not there may count as bad data
    assert said in done.stderr and done.stderr.count("\n") == 1
