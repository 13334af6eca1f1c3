"""The clips on the page: where a model broke the expectation most, before and after, with every score."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from rewardlab.bench.replay import Replay, replay
from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.core.trial import CLEAN, Trial, TrialTable
from rewardlab.data.video import encode_bytes
from rewardlab.perturb import PERTURBATIONS

PER_CATEGORY = 3
CLIP_HEIGHT = 144
CLIP_FPS = 6.0


@dataclass(frozen=True)
class EmbeddedClip:
    """A small video and its last frame as data addresses, so that the page needs no other file."""

    video: str
    poster: str


@dataclass(frozen=True)
class Shift:
    """How one model's score moved."""

    model: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Card:
    """One cell to look at: two clips, two instructions, and what the models said."""

    trial: Trial
    summary: str
    instruction_before: str
    clip_before: EmbeddedClip
    clip_after: EmbeddedClip
    shifts: tuple[Shift, ...]


def gallery(run: Run, trials: TrialTable, judged: str) -> tuple[list[Card], str]:
    """Return the cards of a run and, where the dataset is gone, the reason why there are none."""
    chosen = _choose(trials, judged)
    try:
        shown = replay(run)
        return [_card(shown, trials, trial) for trial in chosen], ""
    except DataError as error:
        return [], f"The clips cannot be shown: {error}"


def _choose(trials: TrialTable, judged: str) -> list[Trial]:
    """Return the cells at the highest severity that break their expectation most, a few per category."""
    clean = _clean_levels(trials)
    mine = trials.where((trials.text("model") == judged) & (trials.text("status") == "scored"))
    severity = mine.number("severity")
    worst = mine.where(severity == severity.max()).rows() if len(mine) else []
    ranked = sorted(worst, key=lambda t: (-_violation(t, clean.get((t.model, t.episode))), t.id))
    cards: list[Trial] = []
    for trial in ranked:
        category = [card for card in cards if card.category == trial.category]
        fresh = trial.perturbation not in {card.perturbation for card in category}
        if trial.perturbation != CLEAN and fresh and len(category) < PER_CATEGORY:
            cards.append(trial)
    return sorted(
        cards, key=lambda t: list(PERTURBATIONS).index(t.perturbation) if t.perturbation in PERTURBATIONS else 0
    )


def _violation(trial: Trial, clean: float | None) -> float:
    if trial.level is None or clean is None:
        return 0.0
    if trial.expectation == "lower":
        return max(0.0, trial.level - clean)
    if trial.expectation == "relabel" and trial.truth_level is not None:
        return abs(trial.level - trial.truth_level)
    return abs(trial.level - clean) if trial.expectation == "same" else 0.0


def _clean_levels(trials: TrialTable) -> dict[tuple[str, str], float | None]:
    clean = trials.where(trials.text("perturbation") == CLEAN)
    return {(trial.model, trial.episode): trial.level for trial in clean.rows()}


def _card(shown: Replay, trials: TrialTable, trial: Trial) -> Card:
    before = shown.change(trial.episode, CLEAN, 0).episode
    after = shown.change(trial.episode, trial.perturbation, trial.severity).episode
    return Card(
        trial=trial,
        summary=PERTURBATIONS[trial.perturbation].summary if trial.perturbation in PERTURBATIONS else "",
        instruction_before=before.instruction,
        clip_before=_clip(before),
        clip_after=_clip(after),
        shifts=tuple(_shifts(trials, trial)),
    )


def _shifts(trials: TrialTable, trial: Trial) -> Iterator[Shift]:
    same = trials.where(trials.text("episode") == trial.episode)
    clean = {t.model: t.level for t in same.where(same.text("perturbation") == CLEAN).rows()}
    changed = (same.text("perturbation") == trial.perturbation) & (same.number("severity") == trial.severity)
    after = {t.model: t.level for t in same.where(changed).rows()}
    for model in sorted(after, key=lambda name: (name != trial.model, name)):
        yield Shift(model, clean.get(model), after[model])


def _clip(episode: Episode) -> EmbeddedClip:
    frames = small(episode.frames, CLIP_HEIGHT)
    _, poster = cv2.imencode(".jpg", frames[-1][..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])
    video = encode_bytes(frames, CLIP_FPS, crf=30)
    return EmbeddedClip(_address("video/mp4", video), _address("image/jpeg", poster.tobytes()))


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def small(frames: Frames, height: int) -> Frames:
    """Return frames scaled to a height, never enlarged."""
    if frames.shape[1] <= height:
        return frames
    width = max(2, round(frames.shape[2] * height / frames.shape[1]))
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])
