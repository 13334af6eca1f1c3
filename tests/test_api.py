"""The Python API: the verbs of the command line with all their settings, and what they return."""

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.cli import COMMANDS
from rewardlab.core.errors import PlanError, RewardlabError, RunError
from rewardlab.core.settings import Setting, settings_of
from rewardlab.core.summary import SCHEMA
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
    assert set(run.trials().arrow["severity"].to_pylist()) == {0, 1}


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
    frame = run.trials().to_pandas()
    assert len(frame) == run.trials().arrow.num_rows == len(run.trials())
    assert set(frame["perturbation"]) == {"clean", "polite_filler"}
    assert run.summary.evaluated == ("length",) and run.summary.clean("length", "macro_mae").value is not None


def test_a_run_without_a_sound_summary_says_so(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress("length", tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "run")
    (run.folder / "summary.json").write_text('{"schema": 1, "evaluated": 3}')
    with pytest.raises(RunError, match="has no checksum"):
        _ = run.summary
    run.save("summary.json", {"schema": SCHEMA, "evaluated": 3})
    with pytest.raises(RunError, match="is not a summary of this version"):
        _ = run.summary
    (run.folder / "summary.json").unlink()
    with pytest.raises(RunError, match="finish the run"):
        _ = run.summary


PUBLIC = {name: getattr(rewardlab, name) for name in rewardlab.__all__}
VERBS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
GROUPS_OF_SETTINGS = (rewardlab.Execution, rewardlab.Scoring, rewardlab.Budget, rewardlab.Sharding)


def wrong_values(setting: Setting) -> Iterator[object]:
    """Values of other types than this setting has."""
    yield from (b"sample", (name for name in ("pocket", "length")), object(), {"pocket": 1})
    yield from ((True, "3", [2.5]) if setting.kind in (int, float) else (3, [3]))
    if setting.many:
        yield from ([None], [b"sample"], [["pocket"]])
    else:
        yield ["sample"]
    if setting.default is not None and "None" not in str(setting.help):
        yield None


def refused(function: Any, wrong: dict[str, object]) -> str:
    """What a function says of these arguments; it gets something sound for whatever else it must have."""
    parameters = inspect.signature(function).parameters.values()
    words: dict[str, object] = {"runs": ["nowhere"], "frames": np.zeros((1, 8, 8, 3), np.uint8)}
    given = {each.name: words.get(each.name, "nowhere") for each in parameters if each.default is each.empty}
    with pytest.raises(PlanError) as caught:
        function(**given | wrong)
    return str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_argument(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in settings_of(VERBS[verb]):
        for value in wrong_values(setting) if not setting.group else ():
            assert refused(VERBS[verb], {setting.name: value}).startswith(f"{setting.name} of {verb} must be ")
        if setting.group:
            assert f"{setting.group} of {verb} must be" in refused(VERBS[verb], {setting.group: {"workers": 2}})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("group", GROUPS_OF_SETTINGS)
def test_a_group_of_settings_refuses_a_value_of_another_type(group: Any) -> None:
    for name, parameter in inspect.signature(group).parameters.items():
        for value in (b"4", [4], object(), iter("4")):
            assert refused(group, {name: value}).startswith(f"{name} of {group.__name__} must be ")
        assert group(**{name: parameter.default}) == group()


@pytest.mark.parametrize("verb", ["score", "open_dataset", "load_model", "episode_from_frames"])
def test_arguments_that_are_no_settings_are_checked_too(verb: str) -> None:
    for name in inspect.signature(VERBS[verb]).parameters:
        for value in (b"sample", iter("sample"), object()):
            assert refused(VERBS[verb], {name: value}).startswith(f"{name} of {verb} must be ")


def test_a_choice_that_is_not_there_is_refused_with_the_choices() -> None:
    with pytest.raises(RewardlabError, match=r"strategy of attack must be 'search' or .*, got 'serch'"):
        rewardlab.attack("length", "sample", strategy="serch")  # type: ignore[arg-type]


def test_what_is_refused_is_shown_in_short() -> None:
    with pytest.raises(PlanError) as caught:
        rewardlab.stress("length", b"x" * 1_000_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 200


def test_values_that_stand_for_the_same_are_taken(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress(
        "length",
        tiny_data,
        perturbations=["polite_filler"],
        severities=range(1, 3),
        accuracy_threshold=1,  # which no number of episodes can certify
        execution=IN_PROCESS,
        out=tmp_path / "run",
    )
    assert set(run.trials().arrow["severity"].to_pylist()) == {0, 1, 2}


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_travels_to_another_process(verb: str) -> None:
    assert pickle.loads(pickle.dumps(VERBS[verb])) is getattr(rewardlab, verb) is VERBS[verb]
