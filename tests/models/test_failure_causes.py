"""The second question of the protocol `causes`: what is asked, how the reply is read, and what is stored."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.trial import FAILURE_ANSWERS, Failure, Score, ScoreInfo, validate_answer
from rewardlab.models import load_model, name_model
from rewardlab.models.protocols.causes import CAUSE, FailureCauses, failure_question, read_failure
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt
from tests.conftest import moving_square
from tests.models import tiny
from tests.models.loopback import Call, chat_server


@dataclass
class Scripted:
    """A vision-language model that writes one text to the rubric and one to the question why."""

    why: str | None
    level: str = "ANSWER: 2"
    probs: tuple[float, ...] = ()
    asked: list[Prompt] = field(default_factory=list)

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        assert max_tokens == 128
        self.asked += prompts
        if answer != CAUSE:
            return [Completion(self.level, info=ScoreInfo(input_tokens=100, output_tokens=5)) for _ in prompts]
        said = Failure("no camera") if self.why is None else Completion(self.why, info=ScoreInfo(input_tokens=40))
        return [said for _ in prompts]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...]]:
        return [self.probs if answer == CAUSE else (0.0, 1.0, 0.0, 0.0, 0.0) for _ in prompts]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float]:
        raise NotImplementedError


@pytest.fixture
def episode() -> Episode:
    return episode_from_frames(moving_square("a", count=6), "lift the cup")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FRAME: 4\nCAUSE: 3", ("dropped", 3)),
        ("It slips.\nFrame: 1\n**CAUSE: 1**", ("missed_grasp", 0)),
        ("FRAME: 0\nCAUSE: 0", ("none", None)),
        ("FRAME: 3\nCAUSE: 0", ("none", None)),
        ("FRAME: 7\nCAUSE: 3", ("dropped", None)),  # there is no such frame
        ("FRAME: 0\nCAUSE: 3", ("dropped", None)),
        ("FRAME: 2\nFRAME: 3\nCAUSE: 3", ("dropped", None)),
        ("FRAME: 2\nCAUSE: 3 or CAUSE: 4", (None, 1)),
        ("FRAME: 2\nCAUSE: 8", (None, 1)),
        ("CAUSE: 3/7", (None, None)),
        ("I cannot tell.", (None, None)),
    ],
)
def test_a_reply_is_read_strictly_and_what_is_not_there_is_missing(text: str, found: tuple[object, object]) -> None:
    assert read_failure(text, 6) == found


def test_the_level_is_that_of_the_rubric_and_the_cause_stands_in_the_info(episode: Episode) -> None:
    vlm = Scripted("FRAME: 4\nCAUSE: 3")
    (answer,) = FailureCauses(vlm).score([episode])
    assert isinstance(answer, Score) and (answer.level, answer.raw) == (2, "ANSWER: 2")
    assert (answer.info.failure_cause, answer.info.failure_frame) == ("dropped", 3)
    assert answer.info.failure_text == "FRAME: 4\nCAUSE: 3" and answer.info.failure_probabilities == {}
    assert (answer.info.input_tokens, answer.info.output_tokens, answer.info.cost) == (140, 5, None)
    assert validate_answer(answer, 6) == answer
    frames, text = vlm.asked[1].parts[:-1], str(vlm.asked[1].parts[-1])
    assert [part for part in frames if isinstance(part, str)] == [f"Frame {n}:" for n in range(1, 7)]
    assert sum(isinstance(part, Image) for part in frames) == 6
    assert text.endswith("Task: lift the cup") and re.findall(r"^(\d) - ", text, re.MULTILINE) == list("01234567")


def test_probabilities_of_the_causes_are_kept_where_the_backend_has_them(episode: Episode) -> None:
    probs = (0.1, 0.05, 0.05, 0.1, 0.5, 0.1, 0.05, 0.05)
    (answer,) = FailureCauses(Scripted("FRAME: 4\nwhatever", probs=probs), answer="logits").score([episode])
    assert answer.info.failure_cause == "target_not_reached" and answer.info.failure_frame == 3
    assert answer.info.failure_probabilities == dict(zip(FAILURE_ANSWERS, probs, strict=True))


def test_what_gets_no_reply_fails_and_what_cannot_be_read_does_not(episode: Episode) -> None:
    (silent,) = FailureCauses(Scripted(None)).score([episode])
    assert silent == Failure("no camera")
    (vague,) = FailureCauses(Scripted("Hm.")).score([episode])
    assert isinstance(vague, Score) and vague.info.failure_cause is None and vague.info.failure_text == "Hm."
    (unread,) = FailureCauses(Scripted("FRAME: 1\nCAUSE: 1", level="Hm.")).score([episode])
    assert isinstance(unread, Failure) and unread.info.failure_cause == "missed_grasp"


def test_a_server_is_asked_both_questions_and_its_log_probabilities_are_those_of_the_cause(episode: Episode) -> None:
    def react(call: Call) -> None:
        if "CAUSE:" not in call.text:
            return call.say("ANSWER: 3")
        tokens = [("FRAME", -0.1), (":", 0), (" 2", -0.5), ("\n", 0), ("CAUSE", 0), (":", 0), (" ", 0), ("6", -0.1)]
        top = [{"token": "6", "logprob": -0.1}, {"token": "3", "logprob": -2.4}]
        logprobs = [{"token": t, "logprob": p, "top_logprobs": top if t == "6" else []} for t, p in tokens]
        return call.say("FRAME: 2\nCAUSE: 6", logprobs={"content": logprobs})

    with chat_server(react) as server:
        model = "causes:" + server.model("logprobs=on")
        (answer,) = load_model(model).score([episode])
        assert isinstance(answer, Score) and answer.level == 3
        assert (answer.info.failure_cause, answer.info.failure_frame) == ("early_end", 1)
        assert answer.info.failure_probabilities["early_end"] == pytest.approx(0.909, abs=0.001)
        assert (answer.info.input_tokens, len(server.bodies)) == (2000, 2)
        assert name_model(model).fingerprint != name_model(server.model("logprobs=on")).fingerprint
        assert name_model(model).prompt("lift it").endswith(failure_question("lift it"))


@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)
def test_a_model_that_runs_here_gives_probabilities_of_every_cause(episode: Episode, tmp_path: Path) -> None:
    folder = tiny.save_qwen3(tmp_path / "qwen")
    (answer,) = load_model(f"causes:hf:{folder}?pixels={6 * 32**2}&tokens=8").score([episode])
    assert isinstance(answer, Score) and validate_answer(answer, 6) == answer
    probs = answer.info.failure_probabilities
    assert list(probs) == list(FAILURE_ANSWERS) and sum(probs.values()) == pytest.approx(1)
    assert answer.info.failure_cause == max(probs, key=lambda name: probs[name])
    (level,) = load_model(f"hf:{folder}?pixels={6 * 32**2}").score([episode])
    assert isinstance(level, Score) and answer.level == pytest.approx(level.level, abs=1e-4)  # that of the rubric alone
