import numpy as np
import pytest

from rewardlab.core.episode import Episode, Label, episode_from_frames, rearrange
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Failure, Score
from rewardlab.data import open_dataset
from rewardlab.models import name_model
from rewardlab.models.controls import CONTROLS
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.narrowing import as_scores


def labelled(level: int, name: str = "x") -> Episode:
    return episode_from_frames(moving_square(name), name, label=Label(level, level == 5))


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control_keeps_the_contract(name: str) -> None:
    check_model(name_model(name).build(), open_dataset("sample").episodes[:4])


def test_the_length_baseline_cannot_tell_a_static_video_from_the_real_one() -> None:
    length = name_model("length").build()
    for episode in open_dataset("sample").episodes:
        static = rearrange(episode, np.zeros(len(episode.clip), dtype=np.int64))
        assert length.score([static]) == length.score([episode])


def test_the_length_baseline_rises_with_the_number_of_frames() -> None:
    long = episode_from_frames(moving_square("x", count=60), "t")
    clips = [rearrange(long, np.arange(n)) for n in (1, 20, 60)]
    levels = [score.level for score in as_scores(name_model("length").build().score(clips))]
    assert levels == sorted(levels)
    assert levels[0] < levels[2]


def test_the_oracle_says_the_truth_and_does_not_guess() -> None:
    oracle = name_model("oracle").build()
    answers = oracle.score([labelled(4), episode_from_frames(moving_square("y"), "t", label=Label(None, False))])
    assert isinstance(answers[0], Score) and answers[0].level == 4
    assert isinstance(answers[1], Failure)


@pytest.mark.parametrize("error", [0.3, 1.0, 1.6])
def test_the_noisy_oracle_is_off_by_the_stated_error(error: float) -> None:
    model = name_model(f"noisy-oracle:{error}").build()
    truths = [1 + i % 5 for i in range(2000)]
    frames = moving_square("x", count=2, size=8)
    episodes = [episode_from_frames(frames, f"task {i}", label=Label(level)) for i, level in enumerate(truths)]
    errors = np.abs([s.level - t for s, t in zip(as_scores(model.score(episodes)), truths, strict=True)])
    assert abs(errors.mean() - error) < 4 * errors.std() / np.sqrt(2000) + 1e-9


@pytest.mark.parametrize("name", ["constant:7", "constant:x", "noisy-oracle:-1", "length:0"])
def test_a_wrong_argument_is_said_at_once(name: str) -> None:
    with pytest.raises(PlanError, match=r"option [a-z]+ must be a (whole )?number"):
        name_model(name)


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(PlanError, match="did you mean oracle"):
        name_model("oracel")
