"""Asking a model once: what it says of a few video files, with everything that explains the answer."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.terminal import loading
from rewardlab.core.trial import Answer
from rewardlab.data.video import VideoFile, frame_policy, sample_frames
from rewardlab.evaluation.plan import FRAMES_HELP
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import Budget
from rewardlab.models.ledger import Spent, spent_by_model


@dataclass(frozen=True)
class ScorePlan:
    """Ask a model once how far the robot got in a video, and show its answer, prompt, time and cost."""

    model: str = setting("model to ask, e.g. pocket or openai:MODEL@URL", positional=True)
    clips: tuple[Path, ...] = setting("video files", positional=True)
    instruction: str = setting("what the robot was asked to do, in quotes", positional=True)
    frames: str = setting(FRAMES_HELP, "uniform:16")
    json: bool = setting("print JSON, one object with a list of clips", False)

    def __post_init__(self) -> None:
        if not self.instruction.strip():
            raise PlanError('say what the robot was asked to do: rewardlab score MODEL CLIP "open the drawer"')


@dataclass(frozen=True)
class ScoredClip:
    """One video and what the model said of it; `shown` frames of `count`."""

    clip: Path
    shown: int
    count: int
    duration: float  # seconds
    answer: Answer


@dataclass(frozen=True)
class ScoreReport:
    """Everything that came of asking once; `seconds` are those of scoring, without loading the model."""

    model: str
    instruction: str
    prompt: str  # empty where the model reads no text but the instruction
    clips: tuple[ScoredClip, ...]
    seconds: float
    spent: Spent | None  # None where nothing is paid for


def score_clips(plan: ScorePlan) -> ScoreReport:
    """Show the clips to the model in one batch and return its answers."""
    named = name_model(plan.model)
    episodes = [episode_of_video(clip, plan.instruction) for clip in plan.clips]
    shown = [sample_frames(episode, frame_policy(plan.frames)) for episode in episodes]
    with tempfile.TemporaryDirectory() as folder:
        with loading(f"loading {named.name}"):
            model = named.build(Budget(folder=Path(folder)))
        started = time.perf_counter()
        with loading(f"asking {named.name}"):
            answers = validated_answers(model, shown if named.sees_truth else [strip_labels(each) for each in shown])
        seconds = time.perf_counter() - started
        spent = next(iter(spent_by_model(Path(folder)).values()), None)
    clips = tuple(
        ScoredClip(path, len(sample.clip), len(whole.clip), float(whole.times[-1]), answer)
        for path, whole, sample, answer in zip(plan.clips, episodes, shown, answers)
    )
    return ScoreReport(named.name, plan.instruction, named.prompt(plan.instruction), clips, seconds, spent)


def episode_of_video(path: Path, instruction: str) -> Episode:
    """Return a video file as an episode of which nothing is known but what the robot was asked to do."""
    return Episode(str(path), instruction, VideoFile(path).clip())
