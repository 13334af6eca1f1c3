"""Relabelling a dataset: a model's progress for every frame, as the Parquet file that LeRobot reads."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.command_settings import setting
from rewardlab.core.episode import Episode, strip_labels
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.run import write_parquet
from rewardlab.core.trial import Answer, Failure
from rewardlab.data import open_dataset
from rewardlab.data.lerobot.truth_columns import progress_table
from rewardlab.data.video_decoding import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import Budget

_NUMBERED = re.compile(r"episode_(\d{6,})(?:\D|$)")  # how episodes of LeRobot datasets are called

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RelabelPlan:
    """Write a model's progress for every frame of a dataset, as the Parquet file that LeRobot reads."""

    data: str = setting("dataset folder or a shipped name; DATA@CAMERA of several cameras", positional=True)
    model: str = setting("the model whose progress is written", "pocket")
    frames: str = setting(
        "frames shown to the model: uniform:N, fps:X or all; the others are interpolated", "uniform:16"
    )
    limit: int | None = setting("use only the first N episodes", None)
    batch: int = setting("episodes given to the model at once", 8)
    out: Path = setting("file to write", Path("rewardlab_progress.parquet"))

    def __post_init__(self) -> None:
        frame_policy(self.frames)
        if self.batch < 1 or (self.limit or 1) < 1:
            raise PlanError("batch and limit must be at least 1")


@dataclass(frozen=True)
class Relabelled:
    """What was written: how many episodes and frames, and how many episodes got no progress, and why the first."""

    path: Path
    episodes: int
    frames: int
    failed: int
    reason: str


def relabel(plan: RelabelPlan) -> Relabelled:
    """Ask the model about every episode and write the file; episodes without an answer have no numbers in it."""
    named, episodes = name_model(plan.model), _episodes(plan)
    model, policy = build_model(named, Budget()), frame_policy(plan.frames)
    curves, reasons = list[Numbers](), list[str]()
    for some in _batches(episodes, plan.batch):
        shown = [sample_frames(episode, policy) for episode in some]
        asked = shown if named.sees_truth else [strip_labels(episode) for episode in shown]
        for episode, clip, answer in zip(some, shown, validated_answers(model, asked)):
            curve, reason = every_frame(episode, clip, answer)
            curves.append(curve)
            reasons += [reason] if reason else []
    if len(reasons) == len(episodes):
        raise ModelError(f"{named.name} gave no progress for any episode; the first time because: {reasons[0]}")
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(progress_table([(len(curve), curve.tolist()) for curve in curves], named.name), plan.out)
    frames = sum(len(curve) for curve in curves)
    return Relabelled(plan.out, len(episodes), frames, len(reasons), reasons[0] if reasons else "")


def every_frame(episode: Episode, shown: Episode, answer: Answer) -> tuple[Numbers, str]:
    """Return the progress at every frame of an episode, on lines between the shown ones; nan with a reason if none."""
    if isinstance(answer, Failure) or answer.progress is None:
        reason = answer.reason if isinstance(answer, Failure) else "the model gives no progress"
        return np.full(len(episode.clip), np.nan), reason
    return np.interp(episode.clip.positions, shown.clip.positions, answer.progress), ""


def _episodes(plan: RelabelPlan) -> tuple[Episode, ...]:
    contents = open_dataset(plan.data)
    if contents.problems:
        raise DataError(
            f"{plan.data} has {len(contents.problems)} problems, the first: {contents.problems[0]}; frames are counted "
            "through the whole dataset, so mend it first"
        )
    numbers = [episode_number(episode, place) for place, episode in enumerate(contents.episodes)]
    if numbers != list(range(len(numbers))):
        raise PlanError(f"the episodes of {plan.data} must be 0, 1, 2, ..., each once; name one camera as DATA@CAMERA")
    return contents.episodes[: plan.limit]


def episode_number(episode: Episode, place: int) -> int:
    """Return the index of an episode: the one in its name where it is numbered as in LeRobot, else its place."""
    numbered = _NUMBERED.match(episode.id)
    return int(numbered[1]) if numbered else place


def _batches(episodes: Sequence[Episode], size: int) -> Iterator[Sequence[Episode]]:
    return (episodes[start : start + size] for start in range(0, len(episodes), size))
