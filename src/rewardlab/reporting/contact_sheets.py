"""Perturbations at a glance; the cheapest counterexamples of an attack."""

import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.storage import writable, write_file
from rewardlab.core.trial import CLEAN, SEVERITIES, Trial
from rewardlab.core.video_encoding import encode_bytes
from rewardlab.evaluation.attack import AttackRun
from rewardlab.evaluation.breaking_points import BreakingPoint
from rewardlab.evaluation.replay import TrialReplay, replay
from rewardlab.perturbations.contract import Perturbation
from rewardlab.reporting.trial_cards import CLIP_FPS, shrink

COLUMNS = 6
FRAME_HEIGHT = 120
CAPTION_HEIGHT = 22
_QUALITY = {".webp": [cv2.IMWRITE_WEBP_QUALITY, 45]}
INK, PAPER, SOFT = (30, 30, 30), 255, (110, 110, 110)


def write_sheet(shown: TrialReplay, episode: str, perturbation: Perturbation, path: Path) -> None:
    """Write the contact sheet of one perturbation of one episode as a picture (.png, .webp, .jpg)."""
    strips = [_strip(shown, episode, perturbation, severity) for severity in SEVERITIES]
    width = max(strip.shape[1] for strip in strips)
    title = f"{perturbation.name} ({perturbation.category}, {perturbation.label}): {perturbation.summary}"
    write_strips([caption(title, width, INK), *strips], path)


def write_strips(strips: Sequence[Frames], path: Path) -> None:
    """Write strips one below the other as a picture (.png, .webp, .jpg)."""
    width = max(strip.shape[1] for strip in strips)
    widths = [((0, 0), (0, width - strip.shape[1]), (0, 0)) for strip in strips]
    whole = np.concatenate([np.pad(s, w, constant_values=PAPER) for s, w in zip(strips, widths, strict=True)])
    _, data = cv2.imencode(path.suffix, whole[..., ::-1], _QUALITY.get(path.suffix, []))
    write_file(path, data.tobytes())


def frame_row(frames: Frames) -> Frames:
    """Return frames spread evenly from the first to the last, side by side."""
    picks = np.round(np.linspace(0, len(frames) - 1, COLUMNS)).astype(np.int64)
    return np.concatenate(list(shrink(frames[picks], FRAME_HEIGHT)), axis=1)


def _strip(shown: TrialReplay, episode: str, perturbation: Perturbation, severity: int) -> Frames:
    """Return one row: a caption, and frames spread evenly from the first to the last."""
    name = perturbation.name if severity else CLEAN
    try:
        change = shown.change(episode, name, severity)
    except DataError as error:
        return caption(f"severity {severity}: {error}", 900, SOFT)
    row = frame_row(change.episode.frames)
    parameter = f" ({perturbation.parameter}: {perturbation.table[severity - 1]})" if severity else ""
    text = f"severity {severity}{parameter}, expect {change.expect}, {len(change.episode.clip)} frames shown"
    words = caption(f"{change.episode.instruction}   [{text}]", row.shape[1], SOFT)
    return np.concatenate([words, row])


def caption(text: str, width: int, colour: Sequence[int]) -> Frames:
    """Return a line of text as a strip of a picture."""
    strip = np.full((CAPTION_HEIGHT, width, 3), PAPER, dtype=np.uint8)
    cv2.putText(strip, text, (4, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.42, tuple(colour), 1, cv2.LINE_AA)
    return strip


# The cheapest counterexamples of an attack as files: each clip before and after, and one contact sheet of all.

FOLDER, SHEET = "counterexamples", "sheet.png"
MOST = 6  # clips
_WIDTH = 900


def write_counterexamples(found: AttackRun) -> Path | None:
    """Write the clips of the smallest changes that broke an episode; None where nothing did.

    A dataset that is no longer there costs the clips, not the result.
    """
    strategy = next(iter(found.result.queries), "")
    cheapest = found.result.cheapest(strategy)[:MOST]
    if not cheapest:
        return None
    folder = found.run.folder / FOLDER
    with writable(folder):
        folder.mkdir(exist_ok=True)
    shown = replay(found.run, allow_code=True)  # made by this very process
    trials = {trial.id: trial for trial in found.run.trials_called([p.trial for p in cheapest if p.trial])}
    strips: list[Frames] = []
    for number, point in enumerate(cheapest, start=1):
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", point.perturbation or "")[:80]
        strips += _written(shown, point, trials[point.trial or ""], folder / f"{number:02d}-{name}")
    write_strips(strips, folder / SHEET)
    return folder


def _written(shown: TrialReplay, point: BreakingPoint, trial: Trial, stem: Path) -> list[Frames]:
    """Write one clip before and after, and return its strips for the sheet."""
    try:
        before = shown.change(point.episode, CLEAN, 0)
        after = shown.change(point.episode, trial.perturbation, trial.severity)
    except RewardlabError as error:
        return [caption(f"{point.episode}: {error}", _WIDTH, SOFT)]
    for name, clip in (("before", before), ("after", after)):
        write_file(stem.with_name(f"{stem.name}-{name}.mp4"), encode_bytes(clip.episode.frames, CLIP_FPS, crf=23))
    title = f"{point.episode}: {point.perturbation}, holds at {point.holds_at:g}, breaks at {point.breaks_at:g}"
    instruction = f"{after.episode.instruction}   [true level {trial.truth_level}, scored {trial.level:.2f}]"
    rows = frame_row(before.episode.frames), frame_row(after.episode.frames)
    return [caption(title, _WIDTH, INK), rows[0], caption(instruction, _WIDTH, SOFT), rows[1]]
