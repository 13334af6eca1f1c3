"""The examples of the documentation run."""

import runpy
import sys
from pathlib import Path

import pytest

from rewardlab.core.errors import PlanError
from rewardlab.worlds.offscreen import backend

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_a_lerobot_loop_is_paid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("lerobot_loop.py", ["--model", "pocket", "--steps", "20", "--episodes", "2"], monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["episode 0", "episode 1"] and "over 20 steps" in lines[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_agent_of_stable_baselines_learns_from_a_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("metaworld", "stable_baselines3"):
        pytest.importorskip(package)
    try:
        monkeypatch.setenv("MUJOCO_GL", backend())
    except PlanError as error:
        pytest.skip(str(error))
    run("sb3_reward.py", ["--model", "constant", "--steps", "4"], monkeypatch)
    assert "the model scored" in capsys.readouterr().out
