"""Answers as models write them, and the numbers each protocol reads out of them."""

from hashlib import sha256

import numpy as np
import pytest

from rewardlab.core.trial import Failure, Score
from rewardlab.models.protocols import PARSERS, helm_number, roboreward_prompt
from rewardlab.models.vlm import UNREADABLE

# text, what strict reads, the number HELM reads, what robometer reads; None where it reads none.
RECORDED = [
    ("ANSWER: 4", 4, 4, 4),
    ("The cup is on the plate.\n\nANSWER: 5\n", 5, 5, 5),
    ("answer : 2", 2, 2, 2),
    ("**ANSWER: 3**", 3, 3, 3),
    ("ANSWER: 3.", 3, 3, 3),
    ("ANSWER: 3. The drawer is half open.", 3, 3, 3),
    ("ANSWER:1", 1, 1, 1),
    ("ANSWER: <4>", None, None, 4),
    ("ANSWER: 4.5", None, 4.5, 4),
    ("ANSWER: 3,5", None, 3, 3),
    ("ANSWER: 4/5", None, 4, 4),
    ("ANSWER: 50%", None, 50, 1),
    ("ANSWER: 7", None, 7, 1),
    ("ANSWER: 0", None, 0, 1),
    ("ANSWER: -1", None, -1, 1),
    ("ANSWER: 10", None, 10, 1),
    ("ANSWER: 7 although some would say 4", None, 7, 4),
    ("ANSWER: four", None, None, 1),
    ("ANSWER: 2\nANSWER: 5", None, 2, 2),
    ("First thought: ANSWER: 2. On reflection, ANSWER: 2", None, 2, 2),
    ("4", None, 4, 4),
    ("  5. The towel is folded.", None, 5, 5),
    ("3rd attempt failed", None, None, 1),
    ("I would rate this 2 or perhaps 3", None, None, 3),
    ("I cannot see the robot.", None, None, 1),
    ("", None, None, 1),
    ("MYANSWER: 4", None, None, 4),
]


@pytest.mark.parametrize(("text", "level", "number", "default"), RECORDED)
def test_every_protocol_reads_its_own_number(text: str, level: int | None, number: float | None, default: int) -> None:
    strict, helm, robometer = (PARSERS[name](text) for name in ("strict", "helm", "robometer"))
    if level is None:
        assert isinstance(strict, Failure) and strict.reason.startswith(UNREADABLE)
    else:
        assert strict == Score(level, raw=text)
    assert helm_number(text) == number
    if number is not None and 1 <= number <= 5:
        assert helm == Score(number, raw=text)
    else:
        assert isinstance(helm, Failure)
        assert ("out of range" in helm.reason) == (number is not None)
    assert robometer == Score(default, raw=text)
    assert {strict.raw, helm.raw, robometer.raw} == {text}


def test_the_numbers_give_helms_error_over_recorded_answers() -> None:
    """HELM clips nothing, counts an unreadable answer as an error of 4, and drops a missing one."""
    recorded = [("ANSWER: 4", 5), ("ANSWER: 7", 5), ("ANSWER: 3.5", 3), ("no idea", 1), (None, 2), ("2. Barely", 2)]
    errors = []
    for text, truth in recorded:
        if text is not None:
            number = helm_number(text)
            errors.append(4 if number is None else abs(number - truth))
    assert errors == [1, 2, 0.5, 4, 0]
    assert np.mean(errors) == pytest.approx(1.5)


def test_an_answer_that_goes_on_for_ever_is_read_or_refused_in_time() -> None:
    for name, parse in PARSERS.items():
        for text in ("9" * 100_000, "ANSWER: " + "9" * 100_000, "ANSWER:" * 20_000, "ANSWER" + " " * 100_000):
            assert isinstance(parse(text), Failure | Score), (name, text[:20])


def test_the_prompt_of_roboreward_is_word_for_word_the_published_one() -> None:
    """The hash is that of the prompt on the model cards of RoboReward-4B and -8B, with <INSTRUCTION> as the task."""
    published = "839ac4084f52b1f3ac0123d6fa6e64a713e1947ecde9614cd3a6b688fc30fc9c"
    assert sha256(roboreward_prompt("<INSTRUCTION>").encode()).hexdigest() == published
