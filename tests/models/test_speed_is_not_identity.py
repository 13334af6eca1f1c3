"""Options about speed, price and place are no part of what a model is; a run goes on with others and asks nothing."""

from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import Run
from rewardlab.models import name_model
from tests.conftest import IN_PROCESS
from tests.models import tiny
from tests.models.loopback import Call, chat_server

URL = "openai:judge@http://127.0.0.1:9/v1"
FAST = "concurrency=8&retries=1&timeout=5&deadline=9&input_price=1&output_price=2&key_env=MY_KEY"


@pytest.mark.parametrize(
    ("plain", "fast"),
    [
        (URL, f"{URL}?{FAST}"),
        (f"{URL}?parser=helm", f"{URL}?concurrency=2&parser=helm"),
        (f"gvl:{URL}?tokens=9", f"gvl:{URL}?tokens=9&timeout=3"),
        (f"ensemble:length,{URL}?by=mean", f"ensemble:length,{URL}?concurrency=3?by=mean"),
        (f"ensemble:{URL},length?by=median", f"ensemble:{URL}?concurrency=3,length?by=median"),
        (f"ensemble:{URL},length", f"ensemble:{URL}?concurrency=3,length"),
        (f"ensemble:{URL}?parser=helm,length", f"ensemble:{URL}?parser=helm&concurrency=3,length"),
    ],
)
def test_a_model_at_another_speed_is_the_same_model(plain: str, fast: str) -> None:
    one, other = name_model(plain), name_model(fast)
    assert (one.name, one.fingerprint) == (other.name, other.fingerprint)
    assert one.name == plain and other.spec == fast and one.server and other.server


def test_a_checkpoint_on_another_device_is_the_same_model_and_in_another_dtype_is_not() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for name in ("hf:Qwen/Qwen3-VL-4B-Instruct", "contrastive:openai/clip-vit-base-patch32"):
        name += f"?revision={'0' * 40}"
        plain, there, other = (name_model(name + more) for more in ("", "&device=cuda:1", "&dtype=float16"))
        assert (there.name, there.fingerprint) == (plain.name, plain.fingerprint)
        assert other.fingerprint != plain.fingerprint


def test_what_changes_the_answers_is_another_model() -> None:
    names = (URL, f"{URL}?parser=helm", f"{URL}?tokens=99", f"{URL}?send=video", URL.replace("judge", "other"))
    assert len({name_model(name).fingerprint for name in names}) == len(names)
    with pytest.raises(PlanError, match="different models"):
        name_model(f"ensemble:{URL},{URL}?concurrency=2?by=vote")


@pytest.mark.parametrize("changed", ["concurrency=8", "input_price=1&output_price=2", FAST])
def test_a_run_goes_on_at_another_speed_or_price_and_asks_nothing_again(
    tiny_data: Path, tmp_path: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def good(call: Call) -> None:
        call.say("ANSWER: 3")

    few = ["--perturbations", "none", "--no-controls", "--engine", "local"]
    monkeypatch.chdir(tmp_path)
    with chat_server(good) as server:
        for options, more in (("", []), (changed, ["--batch-size", "2", "--workers", "1", "--timeout", "60"])):
            assert main(["stress", server.model(options), str(tiny_data), *few, *more]) == 0
        assert server.asked.total() == 6
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 1
    assert {t.model for t in Run(folders[0]).trials().rows()} == {server.model()}


def test_a_run_goes_on_on_another_device_and_asks_nothing_again(tiny_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    tiny.save_qwen3(tmp_path / "weights")
    settings: dict[str, Any] = {
        "perturbations": "none",
        "controls": False,
        "limit": 2,
        "frames": "uniform:2",
        "out": tmp_path / "run",
    }
    first = rewardlab.stress(
        f"hf:{tmp_path}/weights?pixels=3136&device=cpu", tiny_data, execution=IN_PROCESS, **settings
    )
    answered = first.trials().arrow
    assert answered["status"].to_pylist() == ["scored"] * 2
    # no machine has so many: a single trial asked again would have to load the model there, and stop the run
    again = rewardlab.stress(
        f"hf:{tmp_path}/weights?pixels=3136&device=cuda:99", tiny_data, execution=IN_PROCESS, **settings
    )
    assert again.trials().arrow.equals(answered)


def test_a_run_with_other_settings_is_refused_and_each_difference_named(tiny_data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"perturbations": "jpeg", "severities": 1, "controls": False, "out": tmp_path / "run"}
    rewardlab.stress("length", tiny_data, execution=IN_PROCESS, **settings)
    with pytest.raises(RunError, match="seed was 0 and is 7;") as caught:
        rewardlab.stress("length", tiny_data, execution=IN_PROCESS, **settings | {"seed": 7, "severities": (1, 2)})
    assert "severities was 1 and is 1,2" in str(caught.value) and "frames" not in str(caught.value)
    with pytest.raises(RunError, match="the model constant was added"):
        rewardlab.stress(["length", "constant"], tiny_data, execution=IN_PROCESS, **settings)
    with pytest.raises(RunError, match="limit was None and is 2"):
        rewardlab.stress("length", tiny_data, execution=IN_PROCESS, **settings | {"limit": 2})
