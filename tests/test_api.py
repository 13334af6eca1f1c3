"""The Python API: the verbs of the command line with all their settings, and what they return."""

import inspect
import subprocess
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.cli import COMMANDS
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.settings import settings_of
from rewardlab.core.trial import Failure, Score
from tests.conftest import IN_PROCESS
from tests.narrowing import as_score

TERMINAL_ONLY = {"list", "show", "completion"}
BY_SIGNATURE = [name for name, command in COMMANDS.items() if not isinstance(command.load(), type)]


def in_python(command: str) -> Any:
    return getattr(rewardlab, command.replace(" ", "_").replace("-", "_"))


@pytest.mark.parametrize("command", sorted({*COMMANDS} - TERMINAL_ONLY))
def test_every_command_is_a_function_in_python(command: str) -> None:
    assert callable(in_python(command))


@pytest.mark.parametrize("command", sorted({*BY_SIGNATURE} - TERMINAL_ONLY))
def test_a_function_has_every_setting_of_its_command_with_its_default(command: str) -> None:
    function = COMMANDS[command].load()
    arguments = inspect.signature(in_python(command)).parameters
    for setting in settings_of(function):
        if not setting.positional:
            default = arguments[setting.group or setting.name].default
            expected = inspect.Parameter.empty if setting.default is MISSING else setting.default
            assert (getattr(default, setting.name) if setting.group else default) == expected


def test_the_module_shows_its_verbs_before_anything_is_loaded() -> None:
    code = "import rewardlab; print(*dir(rewardlab))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"stress", "score", "report", "Run", "open_dataset"} <= set(shown)


def test_no_verb_is_hidden_by_a_package_whatever_was_imported_first() -> None:
    code = (
        "import pkgutil, importlib, inspect, rewardlab\n"
        "for module in pkgutil.iter_modules(rewardlab.__path__, 'rewardlab.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*[name for name in rewardlab.__all__ if inspect.ismodule(getattr(rewardlab, name))])"
    )
    hidden = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert hidden == []


def test_several_models_named_and_given_are_judged_in_one_run(tiny_data: Path, tmp_path: Path) -> None:
    class Brightness:
        def score(self, episodes):  # type: ignore[no-untyped-def]
            return [Score(1 + 4 * e.frames[-1].mean() / 255) for e in episodes]

    run = rewardlab.stress(
        ["length", Brightness()],
        tiny_data,
        perturbations="polite_filler",
        severities=1,
        execution=IN_PROCESS,
        out=str(tmp_path / "run"),
    )
    assert run.folder == tmp_path / "run" and (run.folder / "report.html").exists()
    assert run.record.evaluated == ("length", "Brightness")
    assert set(run.to_arrow()["severity"].to_pylist()) == {0, 1}


def test_a_setting_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="severitys"):
        rewardlab.stress("length", "sample", execution=IN_PROCESS, severitys=(1,))  # type: ignore[call-arg]


def test_a_model_is_asked_once_about_a_video_frames_or_an_episode(tiny_data: Path) -> None:
    episode = rewardlab.open_dataset(tiny_data).episodes[0]
    video = next(tiny_data.rglob("*.mp4"))
    for clip in (episode, episode.frames, video, str(video)):
        answer = rewardlab.score("length:20", clip, "lift the cup")
        assert isinstance(answer, Score) and 1 <= answer.level <= 5
    assert isinstance(rewardlab.score("oracle", np.zeros((4, 8, 8, 3), np.uint8), "lift the cup"), Failure)
    with pytest.raises(PlanError, match="asked to do"):
        rewardlab.score("length", video)


def test_runs_are_compared_ranked_and_reported_from_python(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(
        ["length", "random"], tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "run"
    )
    comparison = rewardlab.compare(f"{run.folder}::length", f"{run.folder}::random", n_resamples=200)
    assert comparison.model_a == "length" and comparison.tests
    assert rewardlab.leaderboard([run], out=tmp_path / "site").read_text().count("length")
    assert rewardlab.report(run, out=tmp_path / "again.html").exists()
    assert rewardlab.report(run, out=tmp_path / "both") == tmp_path / "both.html"
    assert (tmp_path / "both" / "numbers.csv").exists()


def test_a_model_is_loaded_and_a_dataset_opened(tiny_data: Path) -> None:
    contents = rewardlab.open_dataset(str(tiny_data))
    assert contents.problems == rewardlab.data_check(tiny_data).problems == ()
    (answer, *_) = rewardlab.load_model("constant:2").score(contents.episodes)
    assert as_score(answer).level == 2


def test_a_run_shows_itself_in_a_notebook_and_gives_its_tables(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(
        "length",
        tiny_data,
        perturbations="polite_filler",
        severities=2,
        execution=IN_PROCESS,
        out=tmp_path / "a <b> run",
    )
    shown = run._repr_html_()
    assert "<td>length</td>" in shown and "<td>oracle</td>" in shown and "report.html" in shown
    assert "a &lt;b&gt; run" in shown and "<b>" not in shown
    frame = run.to_pandas()
    assert len(frame) == run.to_arrow().num_rows == len(run.trials())
    assert set(frame["perturbation"]) == {"clean", "polite_filler"}
    assert run.summary.evaluated == ("length",) and run.summary.clean("length", "macro_mae").value is not None


def test_a_run_without_a_sound_summary_says_so(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress("length", tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "run")
    (run.folder / "summary.json").write_text('{"schema": 1, "evaluated": 3}')
    with pytest.raises(RunError, match="has no checksum"):
        _ = run.summary
    run.save("summary.json", {"schema": 4, "evaluated": 3})
    with pytest.raises(RunError, match="is not a summary of this version"):
        _ = run.summary
    (run.folder / "summary.json").unlink()
    with pytest.raises(RunError, match="finish the run"):
        _ = run.summary
