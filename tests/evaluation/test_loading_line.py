"""Loading is shown: before there are trials to count, a terminal says what is waited for, and nothing else does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.test_stress import write_model
from tests.terminal import in_terminal

STEPS = ("looking up judge.model:Judge", "opening", "reading the videos", "loading the models", "scoring", "measuring")
STEERING = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")


def words(data: Path, out: Path, *more: str) -> list[str]:
    few = ["--perturbations", "none", "--no-controls", "--workers", "1", "--out", str(out)]
    return [sys.executable, "-m", "rewardlab", "stress", "judge.model:Judge", str(data), *few, *more]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | write_model(tmp_path, "return [Score(3.0) for _ in episodes]") | {"TERM": "xterm"}


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "30"])
def test_a_terminal_shows_each_step_in_turn_and_only_the_end_stays(
    tiny_data: Path, tmp_path: Path, environment: dict[str, str], columns: str
) -> None:
    code, shown = in_terminal(words(tiny_data, tmp_path / "run"), environment | {"COLUMNS": columns})
    text = shown.decode()
    places = [text.find(step[:8]) for step in (*STEPS, "writing the report")]
    assert code == 0 and -1 not in places and places == sorted(places)
    waited = [line for line in re.split("[\r\n]", STEERING.sub("", text)) if "opening" in line]
    assert waited and all(len(line) <= int(columns) for line in waited)  # one line, however long the path
    assert "\x1b[2K" in text.partition("report: ")[0]  # what was waited for is wiped away


@pytest.mark.slow
def test_a_quiet_run_in_a_terminal_shows_no_loading(
    tiny_data: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    code, shown = in_terminal(words(tiny_data, tmp_path / "run", "-q", "--engine", "local"), environment)
    assert code == 0 and not any(step in shown.decode() for step in STEPS)


@pytest.mark.slow
def test_a_log_file_gets_no_line_that_renews_itself(
    tiny_data: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        words(tiny_data, tmp_path / "run", "--engine", "local"), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and "\x1b" not in done.stderr + done.stdout
    assert not any(step in done.stderr for step in STEPS if step != "scoring")


def test_asking_once_shows_what_is_loaded_and_asked(tiny_data: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "rewardlab", "score", "length", str(tiny_data / "arm/a.mp4"), "open the drawer"]
    code, shown = in_terminal(command, environment | {"COLUMNS": "80"})
    assert code == 0 and b"loading length" in shown and b"asking length" in shown
