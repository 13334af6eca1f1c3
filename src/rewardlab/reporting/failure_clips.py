"""The clips on the page: where a model broke its expectations most, before and after, with every score."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.summary import WorstPerturbation
from rewardlab.core.trial import CLEAN, Trial, TrialTable
from rewardlab.h264_encoding import encode_bytes
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, replay

CLIP_HEIGHT = 144
CLIP_FPS = 6.0


@dataclass(frozen=True)
class EmbeddedClip:
    """A small video and its last frame as data addresses, so that the page needs no other file."""

    video: str
    poster: str


@dataclass(frozen=True)
class ScoreShift:
    """How one model's score moved."""

    model: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class ClipCard:
    """One cell to look at: two clips, two instructions, and what the models said."""

    trial: Trial
    summary: str
    kept: float  # share of expectations kept under this perturbation at this severity
    instruction_before: str
    before: EmbeddedClip
    after: EmbeddedClip
    shifts: tuple[ScoreShift, ...]


def clip_cards(
    run: Run, trials: TrialTable, worst: Sequence[WorstPerturbation], *, trust: bool
) -> tuple[list[ClipCard], list[str]]:
    """Return a card for each of the worst perturbations of each judged model, and sentences why some have none.

    Without `trust` the run is a stranger's: nothing outside the run folder and the catalogues is opened or imported.
    """
    broken = [entry for entry in worst if entry.expectation_kept < 1]
    try:
        shown = replay(run, trust=trust)
        known = [entry for entry in broken if entry.perturbation in shown.context.perturbations]
        cards = [_card(shown, trials, entry) for entry in known]
    except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
        return [], [f"The clips cannot be shown: {error}"]
    others = dict.fromkeys(entry.perturbation for entry in broken if entry not in known)
    return [card for card in cards if card is not None], [_unknown(others)] if others else []


def _unknown(names: Iterable[str]) -> str:
    return (
        f"No clip shows {', '.join(names)}: such code from outside the catalogue is imported only where the run is "
        "yours: give --trust (trust=True)."
    )


def _card(shown: CellReplay, trials: TrialTable, entry: WorstPerturbation) -> ClipCard | None:
    model, name, severity = entry.model, entry.perturbation, entry.severity
    under = (trials.text("perturbation") == name) & (trials.number("severity") == severity)
    clean = trials.where((trials.text("perturbation") == CLEAN) & (trials.text("model") == model)).rows()
    levels = {trial.episode: trial.level for trial in clean}
    mine = trials.where(under & (trials.text("model") == model) & (trials.text("status") == "scored")).rows()
    if not mine:
        return None
    trial = max(mine, key=lambda t: (_violation(t, levels.get(t.episode)), t.id))
    before = shown.change(trial.episode, CLEAN, 0).episode
    after = shown.change(trial.episode, name, severity).episode
    return ClipCard(
        trial=trial,
        summary=shown.context.perturbations[name].summary,
        kept=entry.expectation_kept,
        instruction_before=before.instruction,
        before=_clip(before),
        after=_clip(after),
        shifts=tuple(_shifts(trials, trial)),
    )


def _violation(trial: Trial, clean: float | None) -> float:
    """Return by how many levels a score departs from what was expected."""
    if trial.level is None or clean is None:
        return 0.0
    if trial.expectation == "lower":
        return max(0.0, trial.level - clean)
    if trial.expectation == "relabel" and trial.truth_level is not None:
        return abs(trial.level - trial.truth_level)
    return abs(trial.level - clean) if trial.expectation == "same" else 0.0


def _shifts(trials: TrialTable, trial: Trial) -> Iterator[ScoreShift]:
    same = trials.where(trials.text("episode") == trial.episode)
    clean = {t.model: t.level for t in same.where(same.text("perturbation") == CLEAN).rows()}
    changed = (same.text("perturbation") == trial.perturbation) & (same.number("severity") == trial.severity)
    after = {t.model: t.level for t in same.where(changed).rows()}
    for model in sorted(after, key=lambda name: (name != trial.model, name)):
        yield ScoreShift(model, clean.get(model), after[model])


def _clip(episode: Episode) -> EmbeddedClip:
    frames = shrink(episode.frames, CLIP_HEIGHT)
    _, poster = cv2.imencode(".jpg", frames[-1][..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])
    video = encode_bytes(frames, CLIP_FPS, crf=30)
    return EmbeddedClip(_address("video/mp4", video), _address("image/jpeg", poster.tobytes()))


def _address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def shrink(frames: Frames, height: int) -> Frames:
    """Return frames scaled to a height, never enlarged."""
    if frames.shape[1] <= height:
        return frames
    width = max(2, round(frames.shape[2] * height / frames.shape[1]))
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])
