"""Public contract checks: run them in your own tests on a perturbation, a model or a dataset of yours."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import NotApplicable
from rewardlab.core.trial import Failure, Score, validate_answer
from rewardlab.data import open_dataset
from rewardlab.models import name_model
from rewardlab.models.contract import AnyModel, RewardModel
from rewardlab.perturbations.contract import Perturbation, PerturbedEpisode

__all__ = ["check_dataset", "check_model", "check_perturbation"]


def check_perturbation(perturbation: Perturbation, episodes: Sequence[Episode], seed: int = 7) -> None:
    """Assert the contract of a perturbation over some episodes: identity at 0, determinism, one channel."""
    for episode in episodes:
        assert perturbation(episode, 0, seed, episodes).episode is episode, "severity 0 must return the episode itself"
        before = episode.frames.copy()
        for severity in (1, 2, 3, 4):
            first = _try(perturbation, episode, severity, seed, episodes)
            again = _try(perturbation, episode, severity, seed, episodes)
            if first is None or again is None:
                assert first is again, "whether a trial is defined must not depend on chance"
                continue
            _check_same(first, again)
            _check_channel(perturbation, episode, first)
        assert np.array_equal(episode.frames, before), "the input frames were written to"


def _try(
    perturbation: Perturbation, episode: Episode, severity: int, seed: int, dataset: Sequence[Episode]
) -> PerturbedEpisode | None:
    try:
        return perturbation(episode, severity, seed, dataset)
    except NotApplicable:
        return None


def _check_same(first: PerturbedEpisode, again: PerturbedEpisode) -> None:
    assert first.episode.instruction == again.episode.instruction, "the same seed gave another text"
    assert first.expect == again.expect, "the same seed gave another expectation"
    assert np.array_equal(first.episode.clip.order, again.episode.clip.order), "the same seed gave another order"
    assert np.array_equal(first.episode.frames, again.episode.frames), "the same seed gave other pixels"


def _check_channel(perturbation: Perturbation, before: Episode, change: PerturbedEpisode) -> None:
    after = change.episode
    frames = after.frames
    assert frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[-1] == 3, (
        f"frames became {frames.dtype} {frames.shape}"
    )
    assert len(frames) == len(after.clip) > 0, "the clip lost all frames"
    assert after.instruction.strip(), "the instruction became empty"
    assert "\x00" not in after.instruction and after.instruction.isprintable(), (
        "the instruction holds control characters"
    )
    same_order = np.array_equal(after.clip.positions, before.clip.positions) and len(after.clip) == len(before.clip)
    for channel, same, what in (
        ("instruction", after.instruction == before.instruction, "the instruction"),
        ("frames", after.clip.source is before.clip.source, "the pixels"),
        ("order", same_order, "the timing"),
    ):
        assert channel in perturbation.channel or same, f"only the named channel may change: {what} did too"
    assert before.clip.fps == after.clip.fps, "a perturbation does not change the frame rate of the camera"


def check_model(model: AnyModel, episodes: Sequence[Episode]) -> None:
    """Assert the contract of a model: one sound answer per episode, in order, the same alone as in a batch.

    As in a run, frames are read-only: a model that writes to them raises the error of NumPy.
    """
    model = model if isinstance(model, RewardModel) else name_model(model).build()
    assert list(model.score([])) == [], "no episodes must give no answers"
    episodes = [replace(episode, clip=strip_labels(episode).clip) for episode in episodes]
    together = list(model.score(episodes))
    assert len(together) == len(episodes), f"expected {len(episodes)} answers, got {len(together)}"
    for episode, answer in zip(episodes, together, strict=True):
        sound = validate_answer(answer, len(episode.clip))
        assert isinstance(answer, Failure) or isinstance(sound, Score), f"unsound answer: {sound}"
        alone = validate_answer(model.score([episode])[0], len(episode.clip))
        assert type(alone) is type(sound), "an episode got another kind of answer alone than in a batch"
        if isinstance(alone, Score) and isinstance(sound, Score):
            assert abs(alone.level - sound.level) < 1e-3, f"level {alone.level} alone, {sound.level} in a batch"


def check_dataset(data: str) -> None:
    """Assert that a dataset has no problem and that every frame of it decodes."""
    contents = open_dataset(data)
    assert not contents.problems, "\n".join(map(str, contents.problems))
    for episode in contents.episodes:
        assert len(episode.frames) == len(episode.clip), f"{episode.id}: some frames do not decode"
