"""Perturbed clips for the robustness AUC: the last frame of each that keeps its label, for it decides the level."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Frames


@dataclass(frozen=True, eq=False)
class PerturbedCells:
    """Cells whose label is known and kept; `clips` are ids, `pixels` the last frames (cells, side, side, 3)."""

    clips: tuple[str, ...]
    perturbations: tuple[str, ...]
    severities: tuple[int, ...]
    texts: tuple[str, ...]
    levels: tuple[int, ...]
    pixels: Frames

    def __len__(self) -> int:
        return len(self.clips)


def read_cells(paths: Sequence[Path], side: int) -> PerturbedCells:
    """Return the cells of all files, in this order."""
    rows: list[tuple[str, str, int, str, int]] = []
    pixels = [np.zeros((0, side, side, 3), np.uint8)]
    for path in paths:
        with np.load(path) as table:
            rows += [tuple(row) for row in json.loads(bytes(table["cells"]).decode())]
            pixels.append(table["pixels"])
    clips, names, severities, texts, levels = (tuple(row[place] for row in rows) for place in range(5))
    return PerturbedCells(clips, names, severities, texts, levels, np.concatenate(pixels))  # type: ignore[arg-type]
