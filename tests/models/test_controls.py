from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rewardlab.core.episode import Episode, Label, episode_from_frames, rearrange
from rewardlab.core.errors import PlanError
from rewardlab.core.summary import PIXEL_CONTROLS
from rewardlab.core.trial import Failure, Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.controls import CONTROLS, THRESHOLDS, PixelChange
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


def moving(steps: Sequence[int], instruction: str = "open the drawer") -> Episode:
    """A bright block that stands at these places, one after the other."""
    frames = np.zeros((len(steps), 64, 64, 3), np.uint8)
    for frame, place in zip(frames, steps, strict=True):
        frame[24:40, place : place + 8] = 255
    return episode_from_frames(frames, instruction)


def level_of(name: str, episode: Episode) -> float:
    return as_scores(name_model(name).build().score([episode]))[0].level


STILL = moving([0] * 8)
STARTS, ENDS = moving([0, 16, 32, 48, 48, 48, 48, 48]), moving([0, 0, 0, 0, 0, 16, 32, 48])
THERE_AND_BACK = moving([0, 16, 32, 48, 48, 32, 16, 0])


def test_motion_counts_every_step_and_end_motion_the_last_two() -> None:
    assert level_of("motion", STILL) == level_of("end-motion", STILL) == level_of("change", STILL) == 1
    assert level_of("motion", STARTS) == level_of("motion", ENDS) > 2
    assert level_of("end-motion", STARTS) == 1 and level_of("end-motion", ENDS) > 2


def test_change_is_from_the_first_to_the_last_frame() -> None:
    assert level_of("change", THERE_AND_BACK) == 1 < level_of("motion", THERE_AND_BACK)
    assert level_of("change", STARTS) == level_of("change", ENDS) > 2


@pytest.mark.parametrize("name", PIXEL_CONTROLS)
def test_a_control_of_pixels_reads_no_words(name: str) -> None:
    assert level_of(name, ENDS) == level_of(name, replace(ENDS, instruction="fold the towel"))


@pytest.mark.parametrize("name", PIXEL_CONTROLS)
def test_more_change_is_always_a_higher_level(name: str) -> None:
    lowest, highest = THRESHOLDS[name][0], THRESHOLDS[name][-1]
    control = PixelChange(name)
    scores = as_scores([control.of_change(each) for each in np.geomspace(lowest / 4, 4 * highest, 60)])
    levels = [score.level for score in scores]
    assert all(a < b for a, b in pairwise(levels)) and 1 <= levels[0] < 1.01 and 4.99 < levels[-1] <= 5
    for score in scores:
        assert score.probabilities is not None
        assert score.level == pytest.approx(np.dot(score.probabilities, (1, 2, 3, 4, 5)))


def test_one_frame_shows_no_change() -> None:
    assert (
        level_of("motion", moving([16]))
        == level_of("end-motion", moving([16]))
        == level_of("change", moving([16]))
        == 1
    )


def within_source(name: str, episodes: Sequence[Episode]) -> float:
    """The fraction of pairs of a success and a failure of the same source in which the success scores higher."""
    scores = as_scores(name_model(name).build().score(episodes))
    levels = {
        outcome: [
            (e.provenance.subset, s.level) for e, s in zip(episodes, scores, strict=True) if e.label.success is outcome
        ]
        for outcome in (True, False)
    }
    right = [(a > b) + (a == b) / 2 for own, a in levels[True] for other, b in levels[False] if own == other]
    return float(np.mean(right))


@pytest.mark.slow
def test_counting_moving_pixels_tells_many_real_successes_from_failures() -> None:
    episodes = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset("sample").episodes]
    found = {name: within_source(name, episodes) for name in PIXEL_CONTROLS}
    assert found == pytest.approx({"motion": 0.71, "end-motion": 0.73, "change": 0.66}, abs=0.04)
    assert within_source("length", episodes) < 0.6
