"""Short names of models: derived, unique, and only where people read."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError
from rewardlab.evaluation.display import FITS, display_names
from tests.conftest import IN_PROCESS
from tests.models.loopback import Call, chat_server

SERVED = "openai:Qwen/Qwen3-VL-8B-Instruct@http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (f"{SERVED}?x=1", "Qwen3-VL-8B-Instruct"),
        (f"gvl:{SERVED}", "gvl:Qwen3-VL-8B-Instruct"),
        ("package.module.of.mine:Class?path=/weights/a.pt", "Class"),
        ("ensemble:pocket,length,constant:3?by=mean", "ensemble of 3"),
        ("normalise:ensemble:pocket,length,constant:3?by=mean?rewriter=rules", "normalise:ensemble of 3"),
        ("blank:hf:teetone/RoboReward-4B", "blank:RoboReward-4B"),
        (f"prefixes:abstain:{SERVED}?x=1", "prefixes:absta…-Instruct"),
        (f"abstain:{SERVED}", "abstain:Qwen3-…-Instruct"),
        ("causes:hf:teetone/RoboReward-4B", "causes:RoboReward-4B"),
        ("remote:http://10.0.0.1:8000/judge?timeout=3", "10.0.0.1:8000"),
        ("robometer:http://10.0.0.1:8000?frame_steps=yes&level=success", "10.0.0.1:8000"),
        ("pooling:mylab/reward-vlm@http://10.0.0.1:8000?rows=frames", "reward-vlm"),
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
    arguments = ["stress", "constant:4", str(tiny_data), "--perturbations", "none", "--engine", "local"]
    assert main([*arguments, "--name", "the fourth", "--out", str(tmp_path / "run")]) == 0
    run = rewardlab.Run(tmp_path / "run")
    said, page = capsys.readouterr().out, run.page.read_text()
    assert "the fourth" in said and "constant:4" not in said
    assert "<h3>the fourth</h3>" in page and "<dd>constant:4</dd>" in page
    assert "constant:4" in set(run.trials().text("model")) and "constant:4" in run.summary.evaluated
    assert main([*arguments, "--name", "another", "--out", str(tmp_path / "run")]) == 0  # a name is no setting of it
    assert "another" in capsys.readouterr().out and run.record.names == {"constant:4": "another"}


@pytest.mark.parametrize("names", [("a", "b", "c"), ("oracle",), ("same", "same"), ("",), ("x" * 60,), ("a\x1bb",)])
def test_names_that_cannot_be_told_apart_or_shown_are_refused(tiny_data: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match="name"):
        rewardlab.stress(["length", "random"], tiny_data, execution=IN_PROCESS, perturbations="none", name=names)


def test_a_model_given_twice_takes_no_name_from_another(tiny_data: Path) -> None:
    models = ["constant", "constant:3", "length"]
    with pytest.raises(PlanError, match="constant:3 is the same model as constant: name it once"):
        rewardlab.stress(models, tiny_data, execution=IN_PROCESS, perturbations="none", name=("a", "b", "c"))


def test_a_record_that_calls_a_model_what_another_one_is_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    run = rewardlab.stress("length", tiny_data, perturbations="none", execution=IN_PROCESS, out=tmp_path / "run")
    content = json.loads((run.folder / "run.json").read_text())
    content.pop("sha256")
    run.save("run.json", content | {"names": {"length": "constant"}})
    with pytest.raises(RunError, match="a short name must not be the name of another model: 'constant'"):
        _ = run.record


def test_gates_failures_junit_and_json_go_by_short_names(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(call: Call) -> None:
        call.say("ANSWER: 3" if call.number % 2 else "no idea")

    few = [str(tiny_data), "--perturbations", "none", "--no-controls", "--out", str(tmp_path / "run")]
    with chat_server(answer) as server:
        given = server.model("concurrency=1")
        gates = [f"{name}/coverage>=0.9" for name in ("the judge", given, server.model())]
        asked = [word for gate in gates for word in ("--require", gate)]
        command = ["stress", given, *few, *asked, "--name", "the judge", "--junit", str(tmp_path / "j.xml")]
        assert main(command) == 1
        said = capsys.readouterr().out
        lines = said.splitlines()
        assert [line.rpartition(": ")[2].startswith("the judge has 3 answers") for line in lines[-5:-2]] == [True] * 3
        assert "failed: 3 x the judge: unreadable answer" in said
        case = ElementTree.parse(tmp_path / "j.xml").getroot().findall("testsuite/testcase")
        assert [each.get("classname") for each in case] == ["rewardlab.models"] + ["rewardlab.gates.the judge"] * 3
        assert case[0].get("name") == "the judge"
        assert main([*command, "--json"]) == 1
        content = json.loads(capsys.readouterr().out)
        assert content["models"][server.model()]["name"] == "the judge"
        assert {(gate["model"], gate["name"]) for gate in content["gates"]} == {(server.model(), "the judge")}
        assert main(["stress", given, *few, "--require", "nobody/coverage>=0.9"]) == 2
        assert "nobody/coverage>=0.9': the run evaluates " in capsys.readouterr().err


@pytest.mark.slow
def test_compare_takes_any_name_of_a_model_and_tells_by_the_short_one(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(lambda call: call.say("ANSWER: 3")) as server:
        few = [str(tiny_data), "--perturbations", "none", "--out", str(tmp_path / "run"), "-q"]
        assert main(["stress", server.model("concurrency=2"), *few, "--name", "the judge"]) == 0
        capsys.readouterr()
        for name in ("the judge", server.model(), server.model("concurrency=7&input_price=1")):
            assert main(["compare", f"{tmp_path}/run::{name}", f"{tmp_path}/run::oracle", "--n-resamples", "50"]) == 0
            said = capsys.readouterr().out
            verdict, a, b = said.splitlines()[:3]
            assert " the judge" in verdict and server.model() not in verdict
            assert (a, b) == (f"A: the judge, which is {server.model()}", "B: oracle")
        assert main(["compare", f"{tmp_path}/run", f"{tmp_path}/run::oracle", "--out", f"{tmp_path}/c.json"]) == 0
        content = json.loads((tmp_path / "c.json").read_text())
        assert (content["a"], content["string_a"]) == ("the judge", server.model())


def test_help_shows_no_default_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["stress", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: )" not in said and "(default: None)" not in said and "(default: uniform:16)" in said
