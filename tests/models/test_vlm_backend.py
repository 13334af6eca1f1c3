"""A vision-language model of one's own, one file in a package of one's own, under every protocol."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Failure, Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import MODELS, name_model
from rewardlab.models.protocols import VLM_BACKENDS, backend_entry
from rewardlab.models.vlm import Prompt
from rewardlab.reporting.report import write_report
from rewardlab.testing import check_model
from tests.narrowing import as_scores, known
from tests.plans import stress_plan

PROTOCOLS = ("rubric", "gvl", "topreward")
BACKEND = '''
"""A vision-language model that judges by the brightness of what it sees, and wants to be asked the published way."""
import json

import numpy as np

from rewardlab.models.contract import read_arguments
from rewardlab.models.vlm import Completion, Image, NamedVlm, Video, VlmBackend


def brightness(frames):
    return float(np.mean(frames)) / 255


class Bright:
    def __init__(self, gain=1.0):
        self.gain = gain

    def _share(self, prompt):
        """Return the brightness, from 0 to 1, of the last image or video of a prompt."""
        shown = [part for part in prompt.parts if not isinstance(part, str)]
        return min(1.0, self.gain * brightness(shown[-1].frames if isinstance(shown[-1], Video) else shown[-1].frame))

    def complete(self, prompts, max_tokens, answer=None):
        return [self._complete(prompt, answer) for prompt in prompts]

    def _complete(self, prompt, answer):
        if answer is None:
            images = [part for part in prompt.parts if isinstance(part, Image)][1:]
            rows = [(number, round(100 * brightness(image.frame))) for number, image in enumerate(images, 1)]
            keys = ("frame_number", "task_completion_percentage")
            return Completion(json.dumps([dict(zip(keys, row)) for row in rows]))
        choice = answer.choices[int(4 * self._share(prompt))]
        return Completion(f"I see. {answer.opening}{choice}", choice_logprobs={choice: -0.1, "other": -3.0})

    def answer_probs(self, prompts, answer):
        shares = [np.exp(-np.abs(np.arange(len(answer.choices)) - 4 * self._share(prompt))) for prompt in prompts]
        return [tuple((share / share.sum()).tolist()) for share in shares]

    def continuation_logprob(self, prompts, continuation):
        return [float(np.log(self._share(prompt) + 0.01)) for prompt in prompts]


def make():
    return Bright()


ready = Bright()
nothing = 5
def name_bright(argument, pairs, also):
    options = read_arguments("bright", Bright, pairs, also)
    return NamedVlm("bright 1", lambda budget: Bright(**options))
BRIGHT = VlmBackend("judges by brightness; bright:NAME", name_bright, (Bright,), scores_answers=True)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mylab"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "bright.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mylab", "mylab.bright"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder / "bright.py"


def samples(count: int) -> list[Episode]:
    return [sample_frames(episode, frame_policy("uniform:6")) for episode in open_dataset("sample").episodes[:count]]


def level_by_brightness(episode: Episode) -> float:
    return float(1 + int(4 * episode.frames.mean() / 255))


@pytest.mark.parametrize("name", ["Bright", "make", "ready"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.usefixtures("package")
def test_a_class_a_function_and_an_object_work_under_every_protocol(protocol: str, name: str) -> None:
    named = name_model(f"{protocol}:mylab.bright:{name}")
    assert not named.sees_truth and named.exclusive
    check_model(named.build(), samples(4))


@pytest.mark.usefixtures("package")
def test_each_protocol_reads_its_own_answer_out_of_the_same_model() -> None:
    episodes = samples(5)
    rubric, gvl, topreward, expected = (
        as_scores(name_model(name).build().score(episodes))
        for name in (*(f"{name}:mylab.bright:Bright" for name in PROTOCOLS), "rubric:mylab.bright:Bright?answer=logits")
    )
    for episode, written, told, likely, logits in zip(episodes, rubric, gvl, topreward, expected, strict=True):
        assert written.level == level_by_brightness(episode) and "ANSWER: " in known(written.raw)
        assert known(written.probabilities)[int(written.level) - 1] == 1
        by_frame = [frame.mean() / 255 for frame in episode.frames]
        np.testing.assert_allclose(np.array(told.progress), by_frame, atol=0.006)
        assert likely.level == pytest.approx(1 + 4 * (episode.frames.mean() / 255 + 0.01))
        assert logits.level == pytest.approx(np.array(logits.probabilities) @ [1, 2, 3, 4, 5]) and logits.raw is None


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_goes_through_a_stress_test(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(package.parents[1]), prepend=":")
    name = f"{protocol}:mylab.bright:Bright"
    plan = stress_plan(
        models=(name,),
        data="sample",
        perturbations=("low_light", "polite_filler"),
        severities=(3,),
        controls=False,
        frames="uniform:4",
        limit=3,
        execution=Execution(workers=1, engine="local"),
        out=tmp_path / "run",
    )
    run = evaluate(plan)
    trials = run.trials().rows()
    assert {trial.status for trial in trials} == {"scored"} and len(trials) == 9
    levels = {(trial.episode, trial.perturbation): known(trial.level) for trial in trials}
    assert all(levels[e, "low_light"] <= levels[e, "clean"] == levels[e, "polite_filler"] for e, _ in levels)
    assert name in write_report([run], tmp_path / "report.html").read_text()


@pytest.mark.usefixtures("package")
def test_one_line_in_the_catalog_of_backends_gives_it_a_name_under_every_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = __import__("mylab.bright", fromlist=["BRIGHT"])
    assert isinstance(module, ModuleType)
    monkeypatch.setitem(VLM_BACKENDS, "bright", module.BRIGHT)
    monkeypatch.setitem(MODELS, "bright", backend_entry("bright", VLM_BACKENDS["bright"]))  # as the catalog is made
    episodes = samples(2)
    for name in ("bright:x?gain=0.5", "bright:x?gain=0.5&answer=generate", "gvl:bright:x", "topreward:bright:x?gain=2"):
        assert all(isinstance(answer, Score) for answer in name_model(name).build().score(episodes))
    plain, dimmed = (
        as_scores(name_model(f"bright:x{options}").build().score(episodes)) for options in ("", "?gain=0.5")
    )
    assert all(low.level < high.level for low, high in zip(dimmed, plain, strict=True))
    assert name_model("bright:x").fingerprint != name_model("gvl:bright:x").fingerprint
    with pytest.raises(
        PlanError, match=r"did you mean gain\? it takes answer, parser, order, tokens, views, demonstration, gain;"
    ):
        name_model("bright:x?gian=2")


@pytest.mark.parametrize("backend", VLM_BACKENDS)
def test_every_backend_is_a_model_by_its_name_alone(backend: str) -> None:
    assert MODELS[backend].summary == VLM_BACKENDS[backend].summary


def test_changed_code_is_another_model(package: Path) -> None:
    before = name_model("gvl:mylab.bright:ready").fingerprint
    package.write_text(BACKEND + "# changed\n", encoding="utf-8")
    assert name_model("gvl:mylab.bright:ready").fingerprint != before


@pytest.mark.usefixtures("package")
def test_what_is_no_vision_language_model_is_refused() -> None:
    with pytest.raises(ModelError, match="with the methods of VisionLanguageModel, got int"):
        name_model("gvl:mylab.bright:nothing").build()
    with pytest.raises(PlanError, match="has no 'absent'"):
        name_model("topreward:mylab.bright:absent")
    with pytest.raises(PlanError, match="is an object, made already, and takes no options, got 'gain'"):
        name_model("gvl:mylab.bright:ready?gain=2")
    with pytest.raises(PlanError, match="no VLM backend is called 'pocket'"):
        name_model("rubric:pocket")


@pytest.mark.usefixtures("package")
def test_a_failure_of_the_model_is_the_failure_of_that_episode() -> None:
    bright: Any = type(import_module("mylab.bright").Bright())

    class Busy(bright):  # type: ignore[misc]
        def _complete(self, prompt: Prompt, answer: object) -> object:
            return Failure("busy") if "drawer" in str(prompt.parts[1]) else super()._complete(prompt, answer)

    from rewardlab.models.protocols import Rubric

    episodes = samples(40)
    answers = Rubric(Busy()).score(episodes)
    assert any("drawer" in episode.instruction for episode in episodes)
    for episode, answer in zip(episodes, answers, strict=True):
        assert (answer == Failure("busy")) == ("drawer" in episode.instruction)


@pytest.mark.usefixtures("package")
def test_options_that_are_not_the_protocols_are_arguments_of_a_backend_outside() -> None:
    episodes = samples(2)
    plain, dimmed = (
        as_scores(name_model(f"rubric:mylab.bright:Bright{options}").build().score(episodes))
        for options in ("?answer=logits", "?answer=logits&gain=0.5")
    )
    assert all(low.level < high.level for low, high in zip(dimmed, plain, strict=True))
    with pytest.raises(PlanError, match=r"takes no option 'gian'; did you mean gain\?"):
        name_model("rubric:mylab.bright:Bright?gian=0.5")
    with pytest.raises(PlanError, match="option gain must be a number, got 'much'"):
        name_model("rubric:mylab.bright:Bright?gain=much")
