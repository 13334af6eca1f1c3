"""The protocol `abstain`: what is asked, how the sixth answer is read, and what is stored."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.trial import Failure, Score, ScoreInfo, validate_answer
from rewardlab.models import load_model, name_model
from rewardlab.models.protocols.abstain import ABSTAINED, SIXFOLD, AbstainingRubric, abstention_prompt
from rewardlab.models.vlm import UNREADABLE, AnswerFormat, Completion, Prompt
from tests.conftest import moving_square
from tests.models import tiny
from tests.models.loopback import Call, chat_server


@dataclass
class Scripted:
    """A vision-language model that writes one text, or has these probabilities of 0 to 5."""

    text: str = ""
    probs: tuple[float, ...] = ()
    asked: list[Prompt] = field(default_factory=list)

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        assert answer == SIXFOLD and max_tokens == 128
        self.asked += prompts
        return [Completion(self.text, info=ScoreInfo(input_tokens=7)) for _ in prompts]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...]]:
        assert answer == SIXFOLD
        return [self.probs for _ in prompts]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float]:
        raise NotImplementedError


@pytest.fixture
def episode() -> Episode:
    return episode_from_frames(moving_square("a", count=6), "lift the cup")


def test_to_abstain_is_no_level_and_no_unreadable_answer(episode: Episode) -> None:
    vlm = Scripted("I see nothing but black.\nANSWER: 0")
    (answer,) = AbstainingRubric(vlm).score([episode])
    assert answer == Failure(ABSTAINED, vlm.text, ScoreInfo(input_tokens=7, abstained=True))
    assert not answer.reason.startswith(UNREADABLE)
    assert validate_answer(answer, 6) == answer
    assert str(vlm.asked[0].parts[-1]) == abstention_prompt("lift the cup")
    assert "0 - Cannot be told" in abstention_prompt("") and abstention_prompt("x").endswith("Task: x")


def test_a_level_is_a_score_that_did_not_abstain(episode: Episode) -> None:
    (answer,) = AbstainingRubric(Scripted("ANSWER: 4")).score([episode])
    assert isinstance(answer, Score) and answer.level == 4 and answer.info.abstained is False
    assert validate_answer(answer, 6) == answer


@pytest.mark.parametrize("text", ["ANSWER: 6", "ANSWER: 0 or ANSWER: 1", "I cannot tell.", "ANSWER: 0.5", ""])
def test_what_cannot_be_read_neither_abstains_nor_scores(episode: Episode, text: str) -> None:
    (answer,) = AbstainingRubric(Scripted(text)).score([episode])
    assert isinstance(answer, Failure) and answer.reason.startswith(UNREADABLE) and answer.info.abstained is None


def test_probabilities_abstain_where_that_is_most_probable_and_are_of_the_levels_else(episode: Episode) -> None:
    (silent,) = AbstainingRubric(Scripted(probs=(0.4, 0.3, 0.1, 0.1, 0.1, 0.0)), answer="logits").score([episode])
    assert isinstance(silent, Failure) and silent.info.abstained and silent.info.abstention_probability == 0.4
    (sure,) = AbstainingRubric(Scripted(probs=(0.2, 0.0, 0.0, 0.0, 0.4, 0.4)), answer="logits").score([episode])
    assert isinstance(sure, Score) and sure.level == pytest.approx(4.5)
    assert sure.probabilities == pytest.approx((0, 0, 0, 0.5, 0.5))
    assert sure.info.abstained is False and sure.info.abstention_probability == 0.2
    assert validate_answer(sure, 6) == sure
    (blank,) = AbstainingRubric(Scripted(probs=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)), answer="logits").score([episode])
    assert isinstance(blank, Failure) and blank.reason == ABSTAINED


def test_a_server_is_asked_once_and_the_model_is_another_than_the_rubric(episode: Episode) -> None:
    with chat_server(lambda call: Call.say(call, "ANSWER: 0")) as server:
        model = "abstain:" + server.model()
        (answer,) = load_model(model).score([episode])
        assert isinstance(answer, Failure) and answer.info.abstained and answer.info.input_tokens == 1000
        assert len(server.bodies) == 1
        named = name_model(model)
        assert named.abstains and not name_model(server.model()).abstains
        assert named.fingerprint != name_model(server.model()).fingerprint


@pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)
def test_a_model_that_runs_here_gives_probabilities_of_all_six_answers(episode: Episode, tmp_path: Path) -> None:
    folder = tiny.save_qwen3(tmp_path / "qwen")
    (answer,) = load_model(f"abstain:hf:{folder}?pixels={6 * 32**2}").score([episode])
    probability = answer.info.abstention_probability
    assert probability is not None and 0 < probability < 1
    assert answer.info.abstained is isinstance(answer, Failure)
    assert validate_answer(answer, 6) == answer
