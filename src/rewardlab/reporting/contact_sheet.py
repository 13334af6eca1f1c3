"""Contact sheets: a perturbation at a glance, severities as rows, frames as columns, the instruction above each."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write, writable
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.perturbations.contract import Perturbation
from rewardlab.reporting.failure_clips import shrink
from rewardlab.runner.perturbed_episode_rebuild import CellReplay

COLUMNS = 6
FRAME_HEIGHT = 120
CAPTION_HEIGHT = 22
_QUALITY = {".webp": [cv2.IMWRITE_WEBP_QUALITY, 45]}
INK, PAPER, SOFT = (30, 30, 30), 255, (110, 110, 110)


def write_sheet(shown: CellReplay, episode: str, perturbation: Perturbation, path: Path) -> None:
    """Write the contact sheet of one perturbation of one episode as a picture (.png, .webp, .jpg)."""
    strips = [_strip(shown, episode, perturbation, severity) for severity in SEVERITIES]
    width = max(strip.shape[1] for strip in strips)
    title = f"{perturbation.name} ({perturbation.category}, {perturbation.label}): {perturbation.summary}"
    write_strips([caption(title, width, INK), *strips], path)


def write_strips(strips: Sequence[Frames], path: Path) -> None:
    """Write strips one below the other as a picture (.png, .webp, .jpg)."""
    width = max(strip.shape[1] for strip in strips)
    whole = np.concatenate([_widened(strip, width) for strip in strips])
    _, data = cv2.imencode(path.suffix, whole[..., ::-1], _QUALITY.get(path.suffix, []))
    with writable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_bytes(data.tobytes())


def frame_row(frames: Frames) -> Frames:
    """Return frames spread evenly from the first to the last, side by side."""
    picks = np.round(np.linspace(0, len(frames) - 1, COLUMNS)).astype(np.int64)
    return np.concatenate(list(shrink(frames[picks], FRAME_HEIGHT)), axis=1)


def _strip(shown: CellReplay, episode: str, perturbation: Perturbation, severity: int) -> Frames:
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


def _widened(strip: Frames, width: int) -> Frames:
    return np.pad(strip, ((0, 0), (0, width - strip.shape[1]), (0, 0)), constant_values=PAPER)
