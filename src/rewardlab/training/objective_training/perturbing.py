"""Perturbing test clips: every perturbation of the plan at every severity, in processes."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Origin, Truth, in_memory, whole_clip
from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write
from rewardlab.perturbations import choose_perturbations
from rewardlab.runner.dispatch import map_items
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, cell_replay
from rewardlab.training.live_view import LiveView
from rewardlab.training.objective_training.clips import TEST, ClipTable, only
from rewardlab.training.objective_training.plan import ObjectivePlan

_SEVERITIES = (1, 2, 3, 4)
_FPS = 10.0  # that a clip claims to have


def perturb_clips(plan: ObjectivePlan, table: ClipTable) -> list[Path]:
    """Perturb what is not there yet, one file to a perturbation, and return the files of all."""
    folder = plan.out / "perturbed"
    folder.mkdir(parents=True, exist_ok=True)
    names = [p.name for p in choose_perturbations(plan.perturbations, worlds=False)]
    missing = [name for name in names if not (folder / f"{name}.npz").exists()]
    episodes = stressed_episodes(plan, table) if missing else ()
    view = LiveView("perturbations", len(names), len(names) - len(missing))
    try:
        for done, _ in enumerate(map_items(partial(_perturb, plan, episodes), missing, plan.workers), start=1):
            view.step(len(names) - len(missing) + done)
    finally:
        view.close()
    return [folder / f"{name}.npz" for name in names]


def stressed_episodes(plan: ObjectivePlan, table: ClipTable) -> tuple[Episode, ...]:
    """Return the first test clips of each task whose level is known, as episodes."""
    test, taken, episodes = only(table, TEST), dict.fromkeys(table.tasks, 0), []
    for row, clip in enumerate(test.clips):
        if clip.level and taken[clip.task] < plan.stressed:
            taken[clip.task] += 1
            known = tuple(test.progress[row].tolist()) if np.isfinite(test.progress[row]).all() else None
            truth = Truth(clip.level, None if clip.success < 0 else bool(clip.success), known)
            source = whole_clip(in_memory(test.pixels[row]), _FPS)
            episodes.append(Episode(clip.id, clip.asked, source, truth, Origin("objectives", clip.task)))
    return tuple(episodes)


def _perturb(plan: ObjectivePlan, episodes: Sequence[Episode], name: str) -> None:
    replay = cell_replay(tuple(episodes), (name,), f"uniform:{plan.frames}", plan.seed)
    found = [cell for episode in episodes for cell in _cells(replay, episode, name)]
    pixels = np.stack([frame for *_, frame in found]) if found else np.zeros((0, plan.size, plan.size, 3), np.uint8)
    said = json.dumps([cell[:-1] for cell in found]).encode()
    with atomic_write(plan.out / "perturbed" / f"{name}.npz") as path, path.open("wb") as handle:
        np.savez(handle, cells=np.frombuffer(said, np.uint8), pixels=pixels)


def _cells(replay: CellReplay, episode: Episode, name: str) -> list[tuple[str, str, int, str, int, NDArray[np.uint8]]]:
    """Return the severities of a perturbation at which it applies and keeps a known label."""
    found = []
    for severity in _SEVERITIES:
        try:
            change = replay.change(episode.id, name, severity)
            frame = change.episode.frames[-1]
        except DataError:
            continue
        level = change.episode.truth.level
        if level is not None and change.expect == "same":  # only what keeps its label can lose accuracy
            found.append((episode.id, name, severity, change.episode.instruction, level, frame))
    return found
