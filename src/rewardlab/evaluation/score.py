"""Command `score`: what a model answers about a few clips, with everything that explains the answers."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rewardlab.core.episode import Episode, Frames, episode_from_frames, strip_labels
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import FramePolicyText, Help
from rewardlab.core.terminal import loading
from rewardlab.core.trial import Answer
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import AnyModel, Budget
from rewardlab.models.ledger import Spent, spent_by_model

Clip = Episode | Frames | Path | str  # an episode, frames (T, H, W, 3) or a video file


@dataclass(frozen=True)
class ScoredClip:
    """One clip and the model's answer; `shown` frames of `count`."""

    clip: str
    shown: int
    count: int
    duration: float  # seconds
    answer: Answer


@dataclass(frozen=True)
class ScoreReport:
    """The answers of a model and what explains them; `seconds` are those of scoring, without loading the model."""

    model: str
    instruction: str
    prompt: str  # empty where the model reads no text but the instruction
    clips: tuple[ScoredClip, ...]
    seconds: float
    spent: Spent | None  # None where nothing is paid for


def score(model: AnyModel, clip: Clip, instruction: str = "", *, frames: FramePolicyText = "uniform:16") -> Answer:
    """Return the Score or Failure of a model for one video file, array of frames (T, H, W, 3) or episode."""
    return score_clips(model, [clip], instruction, frames=frames).clips[0].answer


def score_clips(
    model: Annotated[AnyModel, Help("model that scores, such as pocket or openai:MODEL@URL")],
    clips: Annotated[Sequence[Clip], Help("video files")],
    instruction: Annotated[str, Help("what the robot was asked to do, in quotes")],
    *,
    frames: FramePolicyText = "uniform:16",
) -> ScoreReport:
    """Score video clips with one model and show its answers, prompt, time and cost.

    Examples:
        rewardlab score pocket rollout.mp4 "open the drawer"
        rewardlab score openai:gpt-4o first.mp4 second.mp4 "fold the towel" --json
    """
    from rewardlab.data.video import frame_policy, sample_frames

    named, policy = name_model(model), frame_policy(frames)
    episodes = [_episode(clip, instruction) for clip in clips]
    shown = [sample_frames(episode, policy) for episode in episodes]
    with tempfile.TemporaryDirectory() as folder:
        # What a model prints is no part of the answer, which --json writes to stdout.
        with loading(f"loading {named.name}"), contextlib.redirect_stdout(sys.stderr):
            built = build_model(named, Budget(folder=Path(folder)))
        started = time.perf_counter()
        with loading(f"asking {named.name}"), contextlib.redirect_stdout(sys.stderr):
            answers = validated_answers(built, shown if named.sees_truth else [strip_labels(each) for each in shown])
        seconds = time.perf_counter() - started
        spent = next(iter(spent_by_model(Path(folder)).values()), None)
    scored = tuple(
        ScoredClip(whole.id, len(sample.clip), len(whole.clip), float(whole.times[-1]), answer)
        for whole, sample, answer in zip(episodes, shown, answers, strict=True)
    )
    return ScoreReport(named.name, instruction, named.prompt(instruction), scored, seconds, spent)


def _episode(clip: Clip, instruction: str) -> Episode:
    """Return the episode to score; an instruction replaces the one that an episode has."""
    from rewardlab.data.video import VideoFile

    if isinstance(clip, Episode):
        return replace(clip, instruction=instruction) if instruction else clip
    if not instruction.strip():
        raise PlanError('say what the robot was asked to do: rewardlab score MODEL CLIP "open the drawer"')
    if isinstance(clip, str | Path):
        return Episode(str(clip), instruction, VideoFile(Path(clip)).clip())
    return episode_from_frames(clip, instruction)
