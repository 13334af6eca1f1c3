"""`prefixes:MODEL`: progress from the levels of growing prefixes."""

from collections.abc import Sequence

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models import name_model
from rewardlab.models.prefixes import PrefixScores
from tests.conftest import moving_square
from tests.narrowing import of_type


class CountsFrames:
    """Level 1 of one frame, level 5 of seventeen; fails where it is told to."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        counts = [len(episode.frames) for episode in episodes]
        return [Failure("no idea") if n == self.fails_at else Score(1 + (n - 1) / 4) for n in counts]


def clip(count: int) -> Episode:
    return episode_from_frames(moving_square("x", count=count), "push it")


def test_progress_is_the_level_of_what_was_shown_so_far() -> None:
    long, short = PrefixScores(CountsFrames()).score([clip(17), clip(1)])
    score = of_type(Score, long)
    assert score.level == 5 and score.progress == pytest.approx(np.arange(17) / 16)
    assert of_type(Score, short).progress == (0.0,)


def test_a_prefix_without_an_answer_is_no_answer() -> None:
    (answer,) = PrefixScores(CountsFrames(fails_at=1)).score([clip(17)])
    assert of_type(Failure, answer).reason == "no idea"


def test_the_options_are_those_of_the_model() -> None:
    assert name_model("prefixes:constant:4").name == "prefixes:constant:4"
    assert name_model("prefixes:random:7").fingerprint != name_model("prefixes:random:8").fingerprint
    (answer,) = name_model("prefixes:constant:4").build().score([clip(9)])
    assert of_type(Score, answer).progress == (0.75,) * 9
    with pytest.raises(PlanError, match="needs a model"):
        name_model("prefixes")
