"""Ctrl-C twice in quick succession, at the start, in the middle and at the end of commands."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rewardlab.core.errors import CTRL_C
from tests.command_here import HEARS_CTRL_C

AUGMENT = ("data", "augment", "sample-sim", "--per-source", "6", "--splits", "train=1", "--workers", "2")
COLLECT = ("collect", "metaworld", "--tasks", "reach", "--episodes", "20", "--workers", "1")
STRESS = (
    "stress",
    "slow:Slow",
    "sample",
    "--perturbations",
    "quick",
    "--limit",
    "4",
    "--no-controls",
    "--batch-size=1",
)
SLOW = """
import time
from rewardlab import Score
class Slow:
    def score(self, episodes):
        time.sleep(0.05)
        return [Score(3) for _ in episodes]
"""
SECONDS = 120  # that a busy machine may take


def start(folder: Path, *words: str, code: str = HEARS_CTRL_C) -> "subprocess.Popen[str]":
    """Start a command in a group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{folder}", "MARK": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def press_twice(command: "subprocess.Popen[str]", moment: Callable[[], bool], pause: float) -> str:
    """Press Ctrl-C twice when the moment has come, and return what the command said."""
    end = time.monotonic() + SECONDS
    while not moment() and command.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert command.poll() is None, "it ended before the first"
    with suppress(ProcessLookupError):  # the first may end it before the second
        for _ in range(2):
            os.killpg(command.pid, signal.SIGINT)
            time.sleep(pause)
    return command.communicate(timeout=SECONDS)[1]


def processes_of(folder: Path) -> list[int]:
    """Return the processes that a command of this folder has left."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MARK={folder}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("pause", [0.0, 0.1])
@pytest.mark.parametrize(
    ("words", "made"),
    [
        (AUGMENT, "out/.calls"),
        (AUGMENT, "out/.calls/calls.jsonl"),
        (AUGMENT, "out/validate"),
        (COLLECT, "out/collect.json"),
        (COLLECT, "out/metadata.jsonl"),
        ((*STRESS, "--engine", "local"), "out/run.json"),
        ((*STRESS, "--engine", "processes"), "out/run.json"),
    ],
)
def test_two_interrupts_end_in_one_sentence_and_leave_no_process(
    tmp_path: Path, words: tuple[str, ...], made: str, pause: float
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    path = tmp_path / made
    command = start(tmp_path, *words, "--out", "out", "--quiet")
    said = press_twice(command, lambda: path.is_dir() or has_content(path), pause)
    assert command.returncode == CTRL_C, said
    assert len(said.splitlines()) == 1 and said.startswith("rewardlab: stopped"), said
    assert made != "out/metadata.jsonl" or "of 20 episodes in out; run the same command again" in said
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_answers_of_teachers_outlast_two_interrupts(tmp_path: Path) -> None:
    calls = tmp_path / "out/.calls/calls.jsonl"
    press_twice(start(tmp_path, *AUGMENT, "--out", "out"), lambda: has_content(calls), 0.0)
    kept = calls.read_text().splitlines()
    again = start(tmp_path, *AUGMENT, "--out", "out")
    said = again.communicate(timeout=SECONDS)[1]
    assert again.returncode == 0, said
    assert kept and calls.read_text().splitlines()[: len(kept)] == kept
    assert len(set(calls.read_text().splitlines())) == len(calls.read_text().splitlines())


def test_a_command_that_hangs_at_its_end_is_stopped_by_interrupts(tmp_path: Path) -> None:
    hangs = f"import threading; threading.Thread(target=threading.Event().wait).start(); {HEARS_CTRL_C}"
    command = start(tmp_path, "show", "nothing-of-this-name", code=hangs)
    assert command.stderr is not None and command.stderr.readline()
    said = press_twice(command, lambda: True, 0.1)
    assert (command.returncode, said) == (CTRL_C, "")
