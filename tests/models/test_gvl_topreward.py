"""GVL and TOPReward over a tiny Qwen3-VL, a server, and a model that answers from what it is shown."""

import json
import math
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, rearrange
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Failure, Score
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.protocols.gvl import Gvl, completion_percentages
from rewardlab.models.protocols.topreward import TopReward, prefix_lengths
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt, Video
from rewardlab.testing import check_model
from tests.models import tiny
from tests.models.loopback import Call, chat_server
from tests.narrowing import as_scores, known, of_type
from tests.plans import stress_plan

has_hf = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)


def brightening(count: int, instruction: str = "fill the cup", highest: int = 100) -> Episode:
    """Return an episode whose frame i is as bright as its share of the way, in percent."""
    light = np.linspace(0, highest, count).round().astype(np.uint8)
    return episode_from_frames(np.tile(light[:, None, None, None], (1, 32, 32, 3)), instruction)


class Brightness:
    """A vision-language model that takes the brightness of a frame for the percentage done."""

    def __init__(self, edit: Any = lambda rows: json.dumps(rows)) -> None:
        self.edit = edit
        self.prompts: list[Prompt] = []

    def complete(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,  # noqa: ARG002
        answer: AnswerFormat | None = None,  # noqa: ARG002
    ) -> list[Completion | Failure]:
        self.prompts += prompts
        return [Completion(self.edit(self._rows(prompt))) for prompt in prompts]

    def _rows(self, prompt: Prompt) -> list[dict[str, object]]:
        """Return a row per image that follows the words Frame i:"""
        rows: list[dict[str, object]] = []
        for before, part in pairwise(prompt.parts):
            if isinstance(part, Image) and str(before).startswith("Frame "):
                number, done = int(str(before)[6:-1]), int(part.frame.max())
                rows.append({"frame_number": number, "frame_description": "[lit]", "task_completion_percentage": done})
        return rows

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        self.prompts += prompts
        assert continuation == " True"
        videos = [of_type(Video, prompt.parts[0]) for prompt in prompts]
        return [float(np.log((video.frames[-1].max() + 1) / 101)) for video in videos]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        raise NotImplementedError


def brightnesses(prompt: Prompt) -> list[int]:
    return [int(part.frame.max()) for part in prompt.parts if isinstance(part, Image)]


def test_gvl_shows_the_first_frame_then_all_in_random_order_and_puts_them_back() -> None:
    vlm = Brightness()
    (score,) = as_scores(Gvl(vlm).score([brightening(9)]))
    np.testing.assert_allclose(np.array(score.progress), np.linspace(0, 1, 9).round(2), atol=0.006)
    assert score.level == 5 and json.loads(known(score.raw))[0]["frame_number"] == 1
    parts, shown = vlm.prompts[0].parts, brightnesses(vlm.prompts[0])
    assert (
        shown[0] == 0 and shown[1:] != sorted(shown[1:]) and sorted(shown[1:]) == sorted(np.linspace(0, 100, 9).round())
    )
    first, third = of_type(str, parts[0]), of_type(str, parts[2])
    assert "for the task of fill the cup." in first and "for the task of *fill the cup*" in third
    assert first.endswith("This frame:") and parts[3] == "Frame 1:" and len(parts) == 3 + 2 * 9


def test_gvl_shuffles_by_seed_and_content_alone() -> None:
    def order(seed: int, episodes: list[Episode]) -> list[list[int]]:
        vlm = Brightness()
        Gvl(vlm, seed=seed).score(episodes)
        return [brightnesses(prompt) for prompt in vlm.prompts]

    both = order(0, [brightening(9), brightening(7)])
    assert both == order(0, [brightening(9, "another task")]) + order(0, [brightening(7)])
    assert both != order(1, [brightening(9), brightening(7)])


@pytest.mark.parametrize(("highest", "level"), [(100, 5), (99, 4), (70, 4), (40, 3), (10, 2), (9, 1)])
def test_gvl_takes_the_level_of_the_last_frame(highest: int, level: int) -> None:
    (score,) = as_scores(Gvl(Brightness()).score([brightening(4, highest=highest)]))
    assert score.level == level


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda _rows: "no idea", 0),
        (lambda rows: json.dumps(rows[:-1]), 3),
        (lambda rows: json.dumps([*rows, rows[0]]), 3),
        (lambda rows: json.dumps([{**rows[0], "task_completion_percentage": 140}, *rows[1:]]), 3),
        (lambda rows: json.dumps([{**rows[0], "frame_number": 9}, *rows[1:]]), 4),
        (lambda rows: json.dumps([{**rows[0], "frame_number": math.inf}, *rows[1:]]), 3),
        (lambda rows: json.dumps([{**rows[0], "task_completion_percentage": 10**400}, *rows[1:]]), 3),
    ],
)
def test_gvl_fails_where_a_frame_is_missing_doubled_or_out_of_range(edit: Any, told: int) -> None:
    (answer,) = Gvl(Brightness(edit)).score([brightening(4)])
    assert isinstance(answer, Failure) and answer.raw
    assert answer.reason.startswith("unreadable answer") and f"of 4 frames, got {told}" in answer.reason


@pytest.mark.parametrize(
    "wrap",
    [
        "Sure, here it is: {} Good luck.",
        "```json\n{}\n```",
        "Frames [1, 2] first.\n{} and [that is it].",  # brackets elsewhere: read row by row
    ],
)
def test_gvl_reads_the_list_wherever_it_stands(wrap: str) -> None:
    model = Gvl(Brightness(lambda rows: wrap.format(json.dumps(rows))))
    assert isinstance(model.score([brightening(4)])[0], Score)


def test_gvl_reads_rows_of_a_list_that_was_cut_off() -> None:
    assert completion_percentages('[{"frame_number": 1, "task_completion_percentage": 12.5}, {"frame_number": 2,') == {
        1: 12.5
    }


def test_the_static_control_shows_the_first_frame_only() -> None:
    (told,) = as_scores(Gvl(Brightness(), control="static").score([brightening(5)]))
    assert told.progress == (0, 0, 0, 0, 0) and told.level == 1
    (score,) = as_scores(TopReward(Brightness(), control="static").score([brightening(5)]))
    assert score.progress == (1, 1, 1, 1, 1) and score.level == pytest.approx(1 + 4 / 101)


def test_topreward_scales_the_log_probability_of_true_over_prefixes() -> None:
    vlm = Brightness()
    (score,) = as_scores(TopReward(vlm).score([brightening(5)]))
    logs = np.log((np.linspace(0, 100, 5).round() + 1) / 101)
    np.testing.assert_allclose(np.array(score.progress), (logs - logs[0]) / (logs[-1] - logs[0]))
    assert score.level == pytest.approx(5) and score.raw is None
    assert score.info.log_probability == 0
    videos, texts = zip(*(prompt.parts for prompt in vlm.prompts), strict=True)
    assert [len(video.frames) for video in videos] == [2, 2, 3, 4, 5]  # one frame alone is shown twice
    assert texts[0].endswith("fill the cup Decide whether the above statement is True or not. The answer is:")
    assert [video.fps for video in videos] == pytest.approx([10] * 5)
    np.testing.assert_allclose(videos[-1].times, np.arange(5) / 10)


def test_topreward_asks_about_fifteen_prefixes_and_interpolates() -> None:
    vlm = Brightness()
    (score,) = as_scores(TopReward(vlm).score([brightening(40)]))
    progress = np.array(known(score.progress))
    assert len(vlm.prompts) == 15 and len(progress) == 40
    assert progress[0] == 0 and progress[-1] == 1 and all(np.diff(progress) >= 0)


@pytest.mark.parametrize(
    ("frames", "most", "lengths"),
    [(1, 15, [1]), (2, 15, [2]), (3, 15, [1, 2, 3]), (9, 5, [1, 3, 5, 7, 9]), (9, 1, [9])],
)
def test_prefixes_are_spread_from_one_frame_to_all(frames: int, most: int, lengths: list[int]) -> None:
    assert prefix_lengths(frames, most).tolist() == lengths


def test_a_model_that_fails_on_one_prefix_fails_the_episode_and_no_other() -> None:
    class Patchy(Brightness):
        def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:  # noqa: ARG002
            videos = [of_type(Video, prompt.parts[0]) for prompt in prompts]
            return [Failure("busy") if len(video.frames) == 4 else -1.0 for video in videos]

    failed, scored = TopReward(Patchy()).score([brightening(5), brightening(3)])
    assert failed == Failure("busy") and isinstance(scored, Score)


@pytest.mark.skipif(find_spec("httpx2") is None, reason="httpx2: extra api")
def test_both_ask_a_server() -> None:
    def react(call: Call) -> None:
        if "Frame 1:" in call.text:
            shown = call.text.count("Frame ")
            rows = [{"frame_number": i, "task_completion_percentage": 50} for i in range(1, shown + 1)]
            return call.say(json.dumps(rows))
        frames = sum(part["type"] == "image_url" for part in call.body["messages"][0]["content"])
        true = {"token": "True", "logprob": -1.0 / frames}
        return call.say("True", logprobs={"content": [{**true, "top_logprobs": [true]}]})

    with chat_server(react) as server:
        names = (f"gvl:{server.model('tokens=99')}", f"topreward:{server.model('prefixes=2&concurrency=3')}")
        told, score = as_scores(name_model(name).build().score([brightening(4)])[0] for name in names)
        assert {body["max_tokens"] for body in server.bodies} == {99, 1}
    assert told.progress == (0.5,) * 4 and told.level == 3
    progress = known(score.progress)
    assert progress[0] == 0 and progress[-1] == 1 and score.level == pytest.approx(1 + 4 * np.exp(-0.25))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_qwen3(tmp_path_factory.mktemp("qwen") / "qwen3_vl")


@has_hf
def test_topreward_over_a_local_model_keeps_the_contract(qwen: Path) -> None:
    model = name_model(f"topreward:hf:{qwen}?pixels=4096&prefixes=4").build()
    episodes = [brightening(5), rearrange(brightening(6), np.arange(6)[::-1]), brightening(1), brightening(5, "x")]
    check_model(model, episodes)
    assert len({score.level for score in as_scores(model.score(episodes))}) == 4
    plain = name_model(f"topreward:hf:{qwen}?prefixes=4&reuse=no&pixels=4096").build()
    for found in zip(as_scores(model.score(episodes)), as_scores(plain.score(episodes)), strict=True):
        mine, other = ([score.level, *known(score.progress)] for score in found)
        np.testing.assert_allclose(mine, other, atol=1e-3)


@has_hf
def test_gvl_over_a_local_model_gets_an_answer_or_says_why_not(qwen: Path) -> None:
    model = name_model(f"gvl:hf:{qwen}?pixels=4096&tokens=5").build()
    (answer,) = model.score([brightening(3)])
    assert isinstance(answer, Failure) and "each of 3 frames, got 0" in answer.reason and answer.raw


@has_hf
def test_topreward_runs_in_a_stress_test(qwen: Path, tiny_data: Path, tmp_path: Path) -> None:
    plan = stress_plan(
        models=(f"topreward:hf:{qwen}?pixels=4096&prefixes=3",),
        data=str(tiny_data),
        perturbations=("polite_filler", "reverse"),
        severities=(1,),
        frames="uniform:6",
        controls=False,
        limit=1,
        execution=Execution(workers=1, engine="local"),
        out=tmp_path / "run",
    )
    trials = evaluate(plan).trials().rows()
    assert [trial.status for trial in trials] == ["scored"] * 3
    assert all(len(known(trial.progress)) == 6 for trial in trials)


@has_hf
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gvl:length", "no VLM backend is called 'length'"),
        ("topreward:", "no VLM backend is called ''"),
        ("gvl:hf:/no/such/place", "there is no folder '/no/such/place'"),
        ("gvl:hf:{qwen}?control=moving", "control must be none or static, got 'moving'"),
        ("topreward:hf:{qwen}?prefixes=0", "prefixes must be at least 1"),
        (
            "topreward:hf:{qwen}?depth=3",
            "hf takes no option 'depth'; it takes control, prefixes, views, demonstration, dtype",
        ),
        ("gvl:hf:{qwen}?parser=helm", "hf takes no option 'parser'"),
        ("topreward:openai:nothing", "expected openai:MODEL@URL"),
    ],
)
def test_a_wrong_name_is_said_at_once(qwen: Path, name: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        name_model(name.format(qwen=qwen))
