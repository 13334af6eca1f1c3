"""The tables on disk: clips with what is true of them, and perturbed last frames."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS, Frames
from rewardlab.core.errors import DataError
from rewardlab.core.storage import atomic_write, write_file
from rewardlab.evaluation.frame_rewards import ClipFacts

_LIST = "files.json"
TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class ClipFact:
    """What is known of one clip: its instructions for training and for evaluation, its part, and the labels."""

    id: str
    task: str
    texts: tuple[str, ...]
    asked: str
    part: str
    seen: bool  # its task is trained on
    multi_step: bool
    level: int  # 0 where unknown
    success: int  # 1, 0, or -1 where unknown
    repeats_success: bool = False  # the video of a success of its task, under an instruction that it does not follow
    world: str = ""  # the simulator that it comes from
    captions: tuple[str, ...] = ()  # of every frame, where the simulator tells what has moved until then


@dataclass(frozen=True, eq=False)
class ClipTable:
    """Clips with equally many frames; pixels are (clips, frames, side, side, 3)."""

    clips: tuple[ClipFact, ...]
    progress: NDArray[np.float64]  # (clips, frames), nan where unknown
    env_reward: NDArray[np.float64]  # (clips, frames): the simulator's own dense reward from 0 to 1, nan where unknown
    pixels: Frames

    def rows(self, part: str) -> NDArray[np.int64]:
        return np.flatnonzero([clip.part == part for clip in self.clips])

    def take(self, rows: NDArray[np.int64]) -> "ClipTable":
        clips = tuple(self.clips[row] for row in rows)
        return ClipTable(clips, self.progress[rows], self.env_reward[rows], self.pixels[rows])

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(sorted({clip.task for clip in self.clips}))

    @cached_property
    def facts(self) -> ClipFacts:
        number = {name: place for place, name in enumerate(self.tasks)}
        columns = [(number[c.task], c.level, c.success) for c in self.clips]
        task, level, success = np.array(columns, np.int64).reshape(-1, 3).T
        return ClipFacts(task, self.progress, level, success, self.env_reward)

    @cached_property
    def groups(self) -> dict[str, NDArray[np.bool_]]:
        """Return which clips are of seen and unseen tasks, and of those with one and with several steps.

        Where clips come from several worlds, those of each are groups of their own.
        """
        seen, many = (np.array([vars(clip)[name] for clip in self.clips], bool) for name in ("seen", "multi_step"))
        kinds = {"": np.ones(len(seen), bool), ", one step": ~many, ", several steps": many}
        world = np.array([clip.world or "datasets" for clip in self.clips])
        worlds = list(dict.fromkeys(world.tolist()))
        found = {
            f"{name}: {which}{kind}" if len(worlds) > 1 else f"{which}{kind}": (world == name) & of_which & of_kind
            for name in worlds
            for which, of_which in (("seen tasks", seen), ("unseen tasks", ~seen))
            for kind, of_kind in kinds.items()
        }
        return {name: rows for name, rows in found.items() if rows.any()}


def write_shard(path: Path, table: ClipTable) -> None:
    """Write some clips as one file of arrays and JSON."""
    said = json.dumps([vars(clip) for clip in table.clips]).encode()
    with atomic_write(path) as partial, partial.open("wb") as handle:
        np.savez(
            handle,
            clips=np.frombuffer(said, np.uint8),
            progress=table.progress,
            env_reward=table.env_reward,
            pixels=table.pixels,
        )


def read_shards(paths: Sequence[Path]) -> ClipTable:
    """Return the clips of all shards, in this order."""
    clips: list[ClipFact] = []
    progress, env_reward, pixels = [], [], []
    for path in paths:
        with np.load(path) as table:
            rows: list[dict[str, Any]] = json.loads(bytes(table["clips"]).decode())
            clips += [ClipFact(**row | {name: tuple(row[name]) for name in ("texts", "captions")}) for row in rows]
            progress.append(table["progress"])
            env_reward.append(table["env_reward"])
            pixels.append(table["pixels"])
    if not clips:
        raise DataError("there is no clip to train on; is the dataset empty?")
    return ClipTable(tuple(clips), *(np.concatenate(parts) for parts in (progress, env_reward, pixels)))


def list_files(folder: Path, paths: Sequence[Path]) -> None:
    """Write down that a folder is complete, and in which order its files are read."""
    write_file(folder / _LIST, json.dumps([path.name for path in paths]) + "\n")


def listed_files(folder: Path) -> list[Path] | None:
    """Return the files of a complete folder; None where it is not complete yet."""
    if not (folder / _LIST).exists():
        return None
    return [folder / name for name in json.loads((folder / _LIST).read_text(encoding="utf-8"))]


def levels_of(table: ClipTable) -> NDArray[np.int64]:
    """Return the level of every frame, were it the last: by its progress, or the clip's own at the end; else 0."""
    by_progress = 1 + sum((table.progress >= start).astype(np.int64) for start in LEVEL_STARTS)
    levels = np.where(np.isnan(table.progress), 0, by_progress)
    levels[:, -1] = np.where(table.facts.level > 0, table.facts.level, levels[:, -1])
    return levels


def known_truths(table: ClipTable, needs: str) -> NDArray[np.float64]:
    """Return the different values, over all clips, of what an objective needs to know of them."""
    columns = {
        "success": np.where(table.facts.success >= 0, table.facts.success, np.nan),
        "progress": table.progress,
        "level": np.where(levels_of(table) > 0, levels_of(table), np.nan),
    }
    return np.unique(columns[needs][np.isfinite(columns[needs])])


def only(table: ClipTable, part: str) -> ClipTable:
    """Return the clips of one part."""
    return table.take(table.rows(part))


# Perturbed clips for the robustness AUC: the last frame of each that keeps its label, for it decides the level.


@dataclass(frozen=True, eq=False)
class PerturbedFrames:
    """Cells whose label is known and kept; `clips` are ids, `pixels` the last frames (cells, side, side, 3)."""

    clips: tuple[str, ...]
    perturbations: tuple[str, ...]
    severities: tuple[int, ...]
    texts: tuple[str, ...]
    levels: tuple[int, ...]
    pixels: Frames

    def __len__(self) -> int:
        return len(self.clips)


def read_cells(paths: Sequence[Path], side: int) -> PerturbedFrames:
    """Return the cells of all files, in this order."""
    rows: list[tuple[str, str, int, str, int]] = []
    pixels = [np.zeros((0, side, side, 3), np.uint8)]
    for path in paths:
        with np.load(path) as table:
            rows += [tuple(row) for row in json.loads(bytes(table["cells"]).decode())]
            pixels.append(table["pixels"])
    clips, names, severities, texts, levels = (tuple(row[place] for row in rows) for place in range(5))
    return PerturbedFrames(clips, names, severities, texts, levels, np.concatenate(pixels))  # type: ignore[arg-type]
