"""`normalise:MODEL`: what the model sees, what the answer tells, and what a language model may rewrite."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models import load_model, name_model
from rewardlab.models.contract import Budget
from rewardlab.models.normalise import PROMPT, Normalised, RuleRewriter
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models.loopback import Call, chat_server
from tests.narrowing import as_failure, as_scores, known

FRAMES = moving_square("x", count=4)


def clip(instruction: str) -> Episode:
    return episode_from_frames(FRAMES, instruction)


class Reads:
    """Answers with the instruction that it was shown; one that holds `broken` fails."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [
            Failure("cannot")
            if "broken" in each.instruction
            else Score(3.0, raw=each.instruction, info=ScoreInfo(cost=1))
            for each in episodes
        ]


def test_the_model_sees_the_rewritten_instruction_and_the_answer_tells_it() -> None:
    said = ["Please SHUT the drawer.", "do not open the drawer", "take the broken cup"]
    shut, negated, failed = Normalised(Reads(), RuleRewriter()).score([clip(text) for text in said])
    assert shut.raw == shut.info.normalised_instruction == "close the drawer"
    assert negated.raw == "do not open the drawer"
    assert as_failure(failed).info.normalised_instruction == "take the broken cup"
    assert shut.info.cost == 1  # rules cost nothing


def test_two_wordings_get_one_answer_and_two_goals_do_not() -> None:
    model = load_model("normalise:pocket")
    check_model(model, [clip("open the drawer")])
    shouted, plain, other = as_scores(
        model.score([clip("PLEASE OPNE THE DRAWER!"), clip("open the drawer"), clip("close the drawer")])
    )
    assert shouted == plain and shouted.probabilities != other.probabilities
    (bare,) = as_scores(load_model("pocket").score([clip("open the drawer")]))
    assert plain.level == bare.level and bare.info.normalised_instruction is None


def test_options_go_to_whom_they_belong() -> None:
    assert (
        name_model("normalise:ensemble:length,random?by=mean").name
        == "normalise:ensemble:length,random?by=mean?rewriter=rules"
    )
    inner = name_model("normalise:noisy-oracle:0.5?rewriter=rules")
    assert inner.name == "normalise:noisy-oracle:0.5" and inner.sees_truth
    assert inner.fingerprint != name_model("noisy-oracle:0.5").fingerprint
    with pytest.raises(PlanError, match="normalise needs the model"):
        name_model("normalise")
    with pytest.raises(PlanError, match="no VLM backend is called 'magic'"):
        name_model("normalise:length?rewriter=magic:x")


def test_a_language_model_is_asked_once_for_an_instruction_and_its_cost_is_told(tmp_path: Path) -> None:
    def react(call: Call) -> None:
        instruction = call.text.removeprefix(PROMPT)
        rewritten = {"ouvre le tiroir rouge": '"Open the red drawer."', "push the red puck": "push the puck", "hm": ""}
        call.say(rewritten[instruction])

    with chat_server(react) as server:
        by = server.model("input_price=1&output_price=1").replace("?", "%3F").replace("&", "%26")
        named = name_model(f"normalise:length?rewriter={by}")
        model = named.build(Budget(folder=tmp_path))
        said = ["ouvre le tiroir rouge", "push the red puck", "hm", "ouvre le tiroir rouge"]
        first, coloured, nothing, again = model.score([clip(text) for text in said])
        assert server.asked.total() == 3
        model.score([clip("ouvre le tiroir rouge")])
        assert server.asked.total() == 3
    assert named.server and named.exclusive
    assert first.info.normalised_instruction == again.info.normalised_instruction == "Open the red drawer"
    assert known(first.info.cost) == pytest.approx(0.00101) and again.info.cost is None
    assert coloured.info.normalised_instruction == "push the red puck"  # the colour was lost, so the rewriting was
    assert (
        "expected the rewritten instruction" in as_failure(nothing).reason
        or "not rewritten" in as_failure(nothing).reason
    )
