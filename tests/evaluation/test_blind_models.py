"""Blind models: what data give away without looking is found, and what only known tasks give away is not."""

import numpy as np
import pytest

from rewardlab.evaluation.vision_free import BaselineScore, LabelledRows, vision_free_scores

RNG = np.random.default_rng(3)
TASKS, PER_TASK = 60, 5
LEVELS = np.tile([1, 2, 3, 4, 5], TASKS)
GROUPS = np.repeat(np.arange(TASKS), PER_TASK)
SAME_LENGTH = np.full(TASKS * PER_TASK, 30.0)
NAMES = [f"move object{task}" for task in GROUPS]


def scores(levels: np.ndarray, texts: list[str], lengths: np.ndarray) -> dict[str, BaselineScore]:
    return {score.name: score for score in vision_free_scores(LabelledRows(levels, GROUPS, texts), lengths, 0)}


def test_truncated_clips_whose_length_is_their_level_are_solved_by_a_clock() -> None:
    found = scores(LEVELS, NAMES, 20.0 * LEVELS + RNG.integers(-3, 4, len(LEVELS)))
    assert found["length"].finding == "solved" and found["length"].saved == pytest.approx(1, abs=0.1)
    assert found["text"].finding == "blind" and found["constant"].error == pytest.approx(1.2, abs=0.02)


def test_a_word_that_gives_the_level_away_is_found_in_the_text() -> None:
    words = {1: "never", 2: "slightly", 3: "halfway", 4: "nearly", 5: "fully"}
    texts = [f"{words[level]} {name}" for level, name in zip(LEVELS, NAMES, strict=True)]
    found = scores(LEVELS, texts, SAME_LENGTH)
    assert found["text"].finding == "solved" and found["length"].finding == "blind"
    some = [text if place % 3 == 0 else name for place, (text, name) in enumerate(zip(texts, NAMES, strict=True))]
    assert scores(LEVELS, some, SAME_LENGTH)["text"].finding == "leaks"


def test_what_only_the_name_of_a_task_gives_away_does_not_count_for_tasks_are_never_known() -> None:
    levels = np.repeat(RNG.integers(1, 6, TASKS), PER_TASK)  # the same for all rows of a task
    lengths = np.repeat(RNG.permutation(TASKS) + 10.0, PER_TASK)
    found = scores(levels, NAMES, lengths)
    assert found["text"].finding == "blind" and found["length"].finding == "blind"


def test_what_cannot_be_told_is_none() -> None:
    nothing = vision_free_scores(LabelledRows(np.array([3, 4]), np.array([0, 0]), ["a", "b"]), np.array([1.0, 2.0]), 0)
    assert {(score.finding, score.error) for score in nothing} == {("unknown", None)}
    alike = scores(np.full(len(LEVELS), 5), NAMES, np.full(len(LEVELS), np.nan))
    assert alike["text"].error == 0 and alike["text"].saved is None and alike["length"].rows == 0


def test_the_interval_holds_the_share_and_the_same_seed_gives_the_same_numbers() -> None:
    lengths = 20.0 * LEVELS + RNG.normal(0, 40, len(LEVELS))
    length = scores(LEVELS, NAMES, lengths)["length"]
    assert length.saved is not None and length.low is not None and length.high is not None
    assert length.low < length.saved < length.high and length == scores(LEVELS, NAMES, lengths)["length"]
