"""The cheapest counterexamples of an attack as files: each clip before and after, and one contact sheet of all."""

import re
from pathlib import Path

from rewardlab.analysis.breaking_points import BreakingPoint
from rewardlab.core.episode import Frames
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import atomic_write, writable
from rewardlab.core.trial import CLEAN, Trial
from rewardlab.h264_encoding import encode_bytes
from rewardlab.perturbations.contract import PerturbedEpisode
from rewardlab.reporting.contact_sheet import INK, SOFT, caption, frame_row, write_strips
from rewardlab.reporting.failure_clips import CLIP_FPS
from rewardlab.runner.attack import AttackRun
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, replay

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
    shown = replay(found.run, trust=True)  # made by this very process
    trials = {trial.id: trial for trial in found.run.trials_called([p.trial for p in cheapest if p.trial])}
    strips: list[Frames] = []
    for number, point in enumerate(cheapest, start=1):
        strips += _written(shown, point, trials[point.trial or ""], folder / f"{number:02d}-{_file_name(point)}")
    write_strips(strips, folder / SHEET)
    return folder


def _written(shown: CellReplay, point: BreakingPoint, trial: Trial, stem: Path) -> list[Frames]:
    """Write one clip before and after, and return its strips for the sheet."""
    try:
        before = shown.change(point.episode, CLEAN, 0)
        after = shown.change(point.episode, trial.perturbation, trial.severity)
    except RewardlabError as error:
        return [caption(f"{point.episode}: {error}", _WIDTH, SOFT)]
    _write_clip(before, stem.with_name(f"{stem.name}-before.mp4"))
    _write_clip(after, stem.with_name(f"{stem.name}-after.mp4"))
    title = f"{point.episode}: {point.perturbation}, holds at {point.holds_at:g}, breaks at {point.breaks_at:g}"
    told = f"{after.episode.instruction}   [true level {trial.truth_level}, judged {trial.level:.2f}]"
    rows = frame_row(before.episode.frames), frame_row(after.episode.frames)
    return [caption(title, _WIDTH, INK), rows[0], caption(told, _WIDTH, SOFT), rows[1]]


def _write_clip(shown: PerturbedEpisode, path: Path) -> None:
    with atomic_write(path) as partial:
        partial.write_bytes(encode_bytes(shown.episode.frames, CLIP_FPS, crf=23))


def _file_name(point: BreakingPoint) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", point.perturbation or "")[:80]
