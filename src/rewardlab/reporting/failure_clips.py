"""The clips on the page: where a model broke its expectations most, before and after, with every score."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import cv2
import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import RewardlabError
from rewardlab.core.summary import WorstPerturbation, in_control_order
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.h264_encoding import encode_bytes
from rewardlab.runner.perturbed_episode_rebuild import CellReplay

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
class ShownCell:
    """What a card says of the trial that it shows."""

    id: str
    model: str
    episode: str
    perturbation: str
    category: str
    severity: int
    expectation: str
    truth_level: int | None
    instruction: str
    level: float | None


@dataclass(frozen=True)
class ClipCard:
    """One cell to look at: two clips, two instructions, and what the models said."""

    cell: ShownCell
    summary: str
    kept: float  # share of expectations kept under this perturbation at this severity
    instruction_before: str
    before: EmbeddedClip
    after: EmbeddedClip
    shifts: tuple[ScoreShift, ...]


def clip_cards(
    shown: CellReplay, trials: TrialTable, worst: Sequence[WorstPerturbation]
) -> tuple[list[ClipCard], list[str]]:
    """Return a card for each of the worst perturbations of each judged model, and sentences why some have none."""
    broken = [entry for entry in worst if entry.expectation_kept < 1]
    known = [entry for entry in broken if entry.perturbation in shown.context.perturbations]
    try:
        cards = [_card(shown, trials, entry) for entry in known]
    except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
        return [], [cannot_show(error)]
    others = dict.fromkeys(entry.perturbation for entry in broken if entry not in known)
    return [card for card in cards if card is not None], [_unknown(others)] if others else []


def cannot_show(error: Exception) -> str:
    """Return the sentence that stands where the clips would be."""
    return f"The clips cannot be shown: {error}"


def _unknown(names: Iterable[str]) -> str:
    return (
        f"No clip shows {', '.join(names)}: such code from outside the catalogue is imported only where the run is "
        "yours: give --trust (trust=True)."
    )


def _card(shown: CellReplay, trials: TrialTable, entry: WorstPerturbation) -> ClipCard | None:
    model, name, severity = entry.model, entry.perturbation, entry.severity
    own = trials.where(trials.matches("model", model))
    levels = {cell.episode: cell.level for cell in _cells(own, CLEAN, 0)}
    mine = _cells(own.where(own.matches("status", "scored")), name, severity)
    if not mine:
        return None
    cell = max(mine, key=lambda c: (_violation(c, levels.get(c.episode)), c.id))
    before = shown.change(cell.episode, CLEAN, 0).episode
    after = shown.change(cell.episode, name, severity).episode
    return ClipCard(
        cell=cell,
        summary=shown.context.perturbations[name].summary,
        kept=entry.expectation_kept,
        instruction_before=before.instruction,
        before=_clip(before),
        after=_clip(after),
        shifts=tuple(_shifts(trials, cell)),
    )


def _cells(trials: TrialTable, perturbation: str, severity: int) -> list[ShownCell]:
    """Return the cells of one condition."""
    under = trials.where(trials.matches("perturbation", perturbation) & (trials.number("severity") == severity))
    return [ShownCell(**record) for record in under.records([field.name for field in fields(ShownCell)])]


def _violation(cell: ShownCell, clean: float | None) -> float:
    """Return by how many levels a score departs from what was expected."""
    if cell.level is None or clean is None:
        return 0.0
    if cell.expectation == "lower":
        return max(0.0, cell.level - clean)
    if cell.expectation == "relabel" and cell.truth_level is not None:
        return abs(cell.level - cell.truth_level)
    return abs(cell.level - clean) if cell.expectation == "same" else 0.0


def _shifts(trials: TrialTable, cell: ShownCell) -> Iterator[ScoreShift]:
    same = trials.where(trials.matches("episode", cell.episode))
    clean = {other.model: other.level for other in _cells(same, CLEAN, 0)}
    after = {other.model: other.level for other in _cells(same, cell.perturbation, cell.severity)}
    for model in (cell.model, *in_control_order(sorted(after.keys() - {cell.model}))):
        yield ScoreShift(model, clean.get(model), after[model])


def _clip(episode: Episode) -> EmbeddedClip:
    frames = shrink(episode.frames, CLIP_HEIGHT)
    _, poster = cv2.imencode(".jpg", frames[-1][..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])
    video = encode_bytes(frames, CLIP_FPS, crf=30)
    return EmbeddedClip(data_address("video/mp4", video), data_address("image/jpeg", poster.tobytes()))


def data_address(kind: str, data: bytes) -> str:
    """Return data as an address that needs no file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def shrink(frames: Frames, height: int) -> Frames:
    """Return frames scaled to a height, never enlarged."""
    if frames.shape[1] <= height:
        return frames
    width = max(2, round(frames.shape[2] * height / frames.shape[1]))
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])
