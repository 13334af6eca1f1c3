import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab import Failure, Score, Scoring
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.trial import validate_answer
from rewardlab.models import name_model
from tests.conftest import IN_PROCESS, moving_square
from tests.narrowing import as_score

CODE = """
import threading
from pathlib import Path
from rewardlab import Score
class Always:
    def score(self, episodes):
        return [Score(2.0) for _ in episodes]
def make():
    return Always()
ready = Always()
nothing = 5
class Locked(Always):
    def __init__(self, level: float = 2):
        self.lock = threading.Lock()
        self.level = level
    def score(self, episodes):
        with self.lock:
            return [Score(self.level) for _ in episodes]
locked = Locked(4)
class Weights(Always):
    def __init__(self, path: Path, size: int = 8, *, rate: "float | None" = None, quick=False, words: str = ""):
        self.given = (path, size, rate, quick, words)
def reward(episode) -> float:
    return 1 + episode.frames[-1].mean() / 255
def rewards(episodes, scale: float = 1):
    return [scale * len(episodes) for _ in episodes]
def broken(episode):
    raise ValueError("no weights")
def anything(first, **more: int):
    made = Always()
    made.given = (first, more)
    return made
"""

EPISODE = rewardlab.episode_from_frames(moving_square("x", count=2), "open it")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "mylab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    path = package / "reward.py"
    path.write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mylab", "mylab.reward"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return path


@pytest.mark.parametrize("name", ["Always", "make", "ready"])
@pytest.mark.usefixtures("mine")
def test_a_class_a_function_and_an_object_all_work(name: str) -> None:
    model = name_model(f"mylab.reward:{name}")
    assert not model.sees_truth
    assert as_score(model.build().score([EPISODE])[0]).level == 2


def test_a_file_in_the_folder_of_the_command_is_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_reward.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as in the installed command
    assert as_score(name_model("lone_reward:Always").build().score([EPISODE])[0]).level == 2


def test_changed_code_is_another_model(mine: Path) -> None:
    before = name_model("mylab.reward:ready").fingerprint
    mine.write_text(CODE + "# changed\n", encoding="utf-8")
    assert name_model("mylab.reward:ready").fingerprint != before


@pytest.mark.usefixtures("mine")
def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"score\(episodes\) method, got int"):
        name_model("mylab.reward:nothing").build()
    with pytest.raises(PlanError, match="has no 'absent'; it defines Always, make, ready, nothing, Locked"):
        name_model("mylab.reward:absent")
    with pytest.raises(PlanError, match="'__main__'"):
        name_model("__main__:thing")
    with pytest.raises(PlanError, match=r"cannot import 'no\.such'"):
        name_model("no.such:thing")


def given(text: str) -> object:
    return vars(name_model(f"mylab.reward:{text}").build())["given"]


@pytest.mark.usefixtures("mine")
def test_arguments_are_read_as_the_signature_says() -> None:
    assert given("Weights?path=w.pt") == (Path("w.pt"), 8, None, False, "")
    assert given("Weights?path=w.pt&size=16&rate=0.5&quick=yes&words=a%26b") == (Path("w.pt"), 16, 0.5, True, "a&b")
    assert given("anything?first=7&depth=3") == ("7", {"depth": 3})  # without an annotation it is text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Weights?path=w.pt&sise=3", "takes no option 'sise'; did you mean size? it takes path, size, rate, quick"),
        ("Weights?path=w.pt&size=big", "mylab.reward:Weights: option size must be a whole number, got 'big'"),
        ("Weights?path=w.pt&quick=3", "option quick must be yes or no, got '3'"),
        ("Weights?size=3", "mylab.reward:Weights needs path; write mylab.reward:Weights?path=..."),
        ("Weights", "mylab.reward:Weights needs path"),
        ("Weights?path=a&path=b", "option path of mylab.reward:Weights is given twice"),
        ("make?size=3", "takes no option 'size'; it takes none"),
        ("ready?size=3", "is an object, made already, and takes no options, got 'size'"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_wrong_arguments_are_one_sentence_before_anything_is_built(text: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        name_model(f"mylab.reward:{text}")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.usefixtures("mine")
def test_other_arguments_and_other_weights_are_another_model(tmp_path: Path) -> None:
    weights = tmp_path / "w.pt"
    weights.write_bytes(b"first")
    texts = [f"mylab.reward:Weights?path={weights}{more}" for more in ("", "&size=9", "&size=8", "&rate=1&size=9")]
    models = [name_model(text) for text in texts]
    assert len({model.fingerprint for model in models}) == 3 and models[0].fingerprint == models[2].fingerprint
    assert [model.name for model in models] == [*texts[:2], texts[0], f"{texts[1]}&rate=1"]
    weights.write_bytes(b"other weights")
    assert name_model(texts[0]).fingerprint != models[0].fingerprint


@pytest.mark.usefixtures("mine")
def test_a_model_with_arguments_is_stressed_and_calibrated_like_any_other(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    name = "mylab.reward:Locked?level=4"
    run = rewardlab.stress(
        name, tiny_data, perturbations="none", controls=False, execution=IN_PROCESS, out=tmp_path / "run"
    )
    assert {trial.level for trial in run.trials().rows() if trial.model == name} == {4.0}
    member = rewardlab.score(f"ensemble:constant:2,{name}?by=mean", next(tiny_data.glob("arm/a.mp4")), "lift it")
    assert isinstance(member, rewardlab.Score) and member.level == 3


@pytest.mark.usefixtures("mine")
def test_an_object_that_no_process_can_be_sent_works_by_its_name_and_else_is_told_with_the_remedy(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    settings: dict[str, Any] = {"perturbations": "none", "controls": False}
    run = rewardlab.stress("mylab.reward:locked", tiny_data, execution=IN_PROCESS, out=tmp_path / "run", **settings)
    assert {trial.level for trial in run.trials().rows()} == {4.0}
    module = __import__("mylab.reward", fromlist=["locked"])
    with pytest.raises(
        ModelError, match=r"Locked cannot be sent .*its lock \(lock\): .*'package\.module:Locked'"
    ) as error:
        rewardlab.stress(module.locked, tiny_data, execution=IN_PROCESS, out=tmp_path / "none", **settings)
    assert "\n" not in str(error.value) and not (tmp_path / "none").exists()


def test_what_the_code_of_an_object_holds_is_told_too(tiny_data: Path, tmp_path: Path) -> None:
    file = (tmp_path / "open.txt").open("w")

    class Captures:
        def score(self, episodes: Sequence[rewardlab.Episode]) -> list[rewardlab.Score]:
            file.write("asked")
            return [rewardlab.Score(2.0) for _ in episodes]

    with pytest.raises(ModelError, match="Captures cannot be sent to the process that asks it: Cannot pickle files"):
        rewardlab.stress(
            Captures(), tiny_data, perturbations="none", controls=False, execution=IN_PROCESS, out=tmp_path / "run"
        )
    file.close()


@pytest.mark.usefixtures("mine")
def test_a_function_of_one_episode_or_of_many_is_a_model(tiny_data: Path, tmp_path: Path) -> None:
    clip = tiny_data / "arm" / "a.mp4"
    one = as_score(rewardlab.score("mylab.reward:reward", clip, "lift it"))
    assert 1 < one.level < 2 and one == rewardlab.score(lambda _: one.level, clip, "lift it")
    assert as_score(rewardlab.score("mylab.reward:rewards?scale=3", clip, "lift it")).level == 3
    with pytest.raises(PlanError, match=r"mylab\.reward:rewards takes no option 'size'; it takes scale"):
        name_model("mylab.reward:rewards?size=2")
    run = rewardlab.stress(
        ["mylab.reward:rewards", "mylab.reward:reward"], tiny_data, perturbations="none", controls=False,
        scoring=Scoring(batch_size=2), out=tmp_path / "run",
    )  # fmt: skip
    levels = {trial.model: trial.level for trial in run.trials().rows()}
    assert levels["mylab.reward:rewards"] in (1, 2) and not run.trials().matches("status", "failed").any()


@pytest.mark.parametrize("number", [3, 2.5, np.float32(1.5), np.int64(4)])
def test_a_number_is_a_level(number: Any) -> None:
    assert validate_answer(number, 2) == Score(float(number))


@pytest.mark.parametrize("answer", [True, "3", None, 7, float("nan")])
def test_what_is_no_level_is_a_failure(answer: Any) -> None:
    assert isinstance(validate_answer(answer, 2), Failure)


def test_a_model_is_one_line_at_a_prompt() -> None:
    assert repr(name_model("length")).startswith("NamedModel('length', fingerprint ")
    assert len(repr(rewardlab.load_model("ensemble:pocket,length"))) < 250
