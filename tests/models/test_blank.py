"""`blank:MODEL`: a model that is shown grey frames instead of the clip."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, in_memory
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models import name_model
from rewardlab.models.blank import Blank
from tests.conftest import moving_square
from tests.narrowing import as_scores


class Remembers:
    """Level 3; keeps what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Episode] = []

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        self.seen += episodes
        return [Score(3, progress=(0.5,) * len(episode.frames)) for episode in episodes]


def clip(name: str) -> Episode:
    episode = episode_from_frames(moving_square(name, count=9), "push it")
    return replace(episode, views={"side": in_memory(moving_square("side", count=9))})


@pytest.mark.parametrize(("text_only", "frames"), [(False, 9), (True, 1)])
def test_nothing_of_the_clip_is_shown_but_its_times(text_only: bool, frames: int) -> None:
    model, episodes = Remembers(), [clip("a"), clip("b")]
    scores = as_scores(Blank(model, text_only).score(episodes))
    for seen, episode, score in zip(model.seen, episodes, scores, strict=True):
        for pixels in (seen.frames, seen.views["side"].read(seen.clip.order)):
            assert pixels.shape == (frames, *episode.frames.shape[1:]) and np.unique(pixels).size == 1
        assert seen.instruction == "push it" and seen.times.tolist() == episode.times[:frames].tolist()
        assert score.progress == (None if text_only else (0.5,) * 9)
    assert np.array_equal(model.seen[0].frames, model.seen[1].frames)


def test_a_blank_clip_says_nothing_of_motion_and_may_be_refused() -> None:
    still, moving = (name_model(name).build().score([clip("a")])[0] for name in ("blank:motion", "motion"))
    assert isinstance(still, Score) and isinstance(moving, Score) and still.level < moving.level
    (refused,) = name_model("blank:pocket").build().score([clip("a")])
    assert isinstance(refused, Failure)


def test_options_that_are_not_its_own_are_those_of_the_model() -> None:
    names = ("blank:constant:4", "blank:constant:4?text_only=yes")
    assert [name_model(name).name for name in names] == list(names)
    assert name_model(names[0]).fingerprint != name_model(names[1]).fingerprint != name_model("constant:4").fingerprint
    with pytest.raises(PlanError, match="blank needs the model"):
        name_model("blank")
