"""Clips that are no attempt at any task: each kind can be made again, and each looks unlike the others."""

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.training.pocket.nonsense import TRAINED_KINDS, UNSEEN_KINDS, nonsense_clip, random_letters
from tests.conftest import moving_square

KINDS = (*TRAINED_KINDS, *UNSEEN_KINDS)
SHOWN = moving_square("a", count=9, size=40)


def made(kind: str, seed: int = 0, frames: int = 6, size: int = 48) -> Frames:
    return nonsense_clip(kind, rng_for(seed, kind), frames, size, SHOWN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("frames", "size"), [(1, 32), (16, 112)])
def test_a_kind_has_the_shape_that_is_asked_for(kind: str, frames: int, size: int) -> None:
    for seed in range(8):
        clip = made(kind, seed, frames, size)
        assert clip.shape == (frames, size, size, 3) and clip.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generator_makes_the_same_clip(kind: str) -> None:
    assert np.array_equal(made(kind), made(kind))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "letters"])
def test_clips_of_a_kind_vary(kind: str) -> None:
    clips = [made(kind, seed) for seed in range(8)]
    assert len({clip.tobytes() for clip in clips}) >= 5


def test_no_kind_is_drawn_as_another() -> None:
    assert len(set(KINDS)) == len(KINDS) == 10
    clips = {kind: nonsense_clip(kind, rng_for(0, "same"), 6, 48, SHOWN).astype(float) for kind in KINDS}
    for first, second in combinations(KINDS, 2):
        assert np.abs(clips[first] - clips[second]).mean() > 1, (first, second)


def test_noise_flickers_and_a_still_frame_does_not_change() -> None:
    changes = {kind: float(np.abs(np.diff(made(kind).astype(float), axis=0)).mean()) for kind in KINDS}
    assert changes["still"] == 0 and max(changes, key=lambda kind: changes[kind]) == "noise"
    for kind in ("talking_head", "letters", *UNSEEN_KINDS):
        assert changes[kind] > 0, kind


def test_a_clip_under_letters_shows_the_first_and_the_last_frame_of_the_given_one() -> None:
    clip = nonsense_clip("letters", rng_for(0), 4, 40, SHOWN)
    assert np.array_equal(clip[0], SHOWN[0]) and np.array_equal(clip[-1], SHOWN[-1])


@pytest.mark.parametrize("kind", ["still", "letters"])
def test_a_kind_that_is_made_from_a_clip_needs_one(kind: str) -> None:
    with pytest.raises(DataError, match=f"the kind {kind} is made from a clip, got none"):
        nonsense_clip(kind, rng_for(0), 4, 32)


def test_an_unknown_kind_is_told_with_those_that_are_known() -> None:
    with pytest.raises(DataError, match=r"expected one of the kinds noise, .*landscape, got 'fog'"):
        nonsense_clip("fog", rng_for(0), 4, 32)


def test_letters_are_words_that_nobody_knows() -> None:
    texts = [random_letters(rng_for(seed)) for seed in range(20)]
    assert texts == [random_letters(rng_for(seed)) for seed in range(20)] and len(set(texts)) == 20
    assert all(2 <= len(text.split()) <= 6 and text.replace(" ", "").isalpha() for text in texts)
    assert not any({"the", "open", "drawer"} & set(text.split()) for text in texts)


def test_nonsense_is_made_without_torch_and_without_a_simulator() -> None:
    code = "import sys, rewardlab.training.pocket.nonsense; print({'torch', 'mujoco'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
