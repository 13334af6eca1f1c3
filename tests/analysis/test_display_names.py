"""Short names of models: derived, unique, and only where people read."""

import json
from pathlib import Path

import pytest

import rewardlab
from rewardlab.analysis.display_names import FITS, display_names
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError

SERVED = "openai:Qwen/Qwen3-VL-8B-Instruct@http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (f"{SERVED}?x=1", "Qwen3-VL-8B-Instruct"),
        (f"gvl:{SERVED}", "gvl:Qwen3-VL-8B-Instruct"),
        ("package.module.of.mine:Class?path=/weights/a.pt", "Class"),
        ("ensemble:pocket,clock,constant:3?by=mean", "ensemble of 3"),
        ("remote:http://10.0.0.1:8000/judge?timeout=3", "10.0.0.1:8000"),
        ("hf:/weights/roboreward-8b?device=cuda", "roboreward-8b"),
        ("pocket+runs/2026/long/way/fitted", "pocket+fitted"),
        ("noisy-oracle:0.5", "noisy-oracle:0.5"),
    ],
)
def test_a_name_is_the_part_that_tells_people_which_model_it_is(model: str, name: str) -> None:
    assert display_names([model], {}) == {model: name}


def test_models_of_the_same_name_show_what_tells_them_apart() -> None:
    models = [SERVED, f"{SERVED}?fps=2", f"{SERVED}?fps=4", "mine:Qwen3-VL-8B-Instruct/Qwen3-VL-8B-Instruct"]
    names = display_names(models, {})
    assert len(set(names.values())) == len(models)
    assert names[models[1]] == "Qwen3-VL-8B-Instruct (fps=2)"


def test_no_name_is_longer_than_a_table_holds_and_none_is_taken_twice() -> None:
    models = [f"hf:/{'deep/' * 50}{'w' * 300}{number}" for number in range(3)]
    names = display_names([*models, "constant"], dict.fromkeys(models, "one name for all"))
    assert len(set(names.values())) == 4
    assert all(len(name) <= FITS for name in display_names(models[:1], {}).values())


def test_a_chosen_name_is_kept_beside_the_plan_and_trials_keep_the_whole_string(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["stress", "constant:4", str(tiny_data), "--perturbations", "none", "--workers", "1"]
    assert main([*arguments, "--name", "the fourth", "--out", str(tmp_path / "run")]) == 0
    run = rewardlab.Run(tmp_path / "run")
    said, page = capsys.readouterr().out, run.page.read_text()
    assert "the fourth" in said and "constant:4" not in said
    assert "<h3>the fourth</h3>" in page and "<dd>constant:4</dd>" in page
    assert "constant:4" in set(run.trials().text("model")) and "constant:4" in run.summary.judged
    assert main([*arguments, "--name", "another", "--out", str(tmp_path / "run")]) == 0  # a name is no setting of it
    assert "another" in capsys.readouterr().out and run.record.names == {"constant:4": "another"}


@pytest.mark.parametrize("names", [("a", "b", "c"), ("oracle",), ("same", "same"), ("",), ("x" * 60,), ("a\x1bb",)])
def test_names_that_cannot_be_told_apart_or_shown_are_refused(tiny_data: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match="name"):
        rewardlab.stress(["clock", "random"], tiny_data, perturbations="none", name=names)


def test_a_record_that_calls_a_model_what_another_one_is_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress("clock", tiny_data, perturbations="none", workers=1, out=tmp_path / "run")
    content = json.loads((run.folder / "run.json").read_text())
    content.pop("sha256")
    run.save("run.json", content | {"names": {"clock": "constant"}})
    with pytest.raises(RunError, match="names must not call a model what another one is: 'constant'"):
        _ = run.record
