"""One evaluation for all: rewards of every judged frame, one isotonic calibration each, measures clip by clip."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.analysis.objective_measures import Measured, PerturbedLevels, measure_values, robustness
from rewardlab.core.run import atomic_write
from rewardlab.models.backends.level_map import UNCALIBRATED, LevelMap, fit_levels
from rewardlab.training.objective_training.clips import TEST, VALIDATION, ClipTable, levels_of, only
from rewardlab.training.objective_training.perturbed_cells import PerturbedCells
from rewardlab.training.objective_training.training_loop import Workbench, clip_values

Numbers = NDArray[np.float64]
VALUES = "values.npz"
_CELLS_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class JudgedValues:
    """The rewards that one training gives: to every frame of validation and test clips, and to perturbed frames."""

    validation: Numbers
    test: Numbers
    cells: Numbers

    @property
    def test_reversed(self) -> Numbers:
        """Return the rewards of the test clips shown backwards: each frame is judged alone, but by the clock."""
        return self.test[:, ::-1]


@dataclass(frozen=True, eq=False)
class ClockValues:
    """The rewards of a blind clock, which rise as time goes by, whatever is shown."""

    validation: Numbers
    test: Numbers
    cells: Numbers

    @property
    def test_reversed(self) -> Numbers:
        """Return the rewards of the test clips shown backwards."""
        return self.test


def judge(bench: Workbench, cells: PerturbedCells) -> JudgedValues:
    """Return the rewards of the pair as it is now."""
    validation, test = (clip_values(bench, bench.judged.rows(part)) for part in (VALIDATION, TEST))
    return JudgedValues(validation, test, _cell_values(bench, cells))


@torch.no_grad()
def _cell_values(bench: Workbench, cells: PerturbedCells) -> Numbers:
    parts = [np.zeros(0)]
    for start in range(0, len(cells), _CELLS_AT_ONCE):
        some = slice(start, start + _CELLS_AT_ONCE)
        images = bench.pair.images(bench.store.cells[some].to(bench.device))
        texts = bench.pair.texts(bench.store.text_rows(cells.texts[some]).to(bench.device))
        parts.append((images * texts).sum(-1).double().cpu().numpy())
    return np.concatenate(parts)


def clock_values(judged: ClipTable, cells: PerturbedCells) -> ClockValues:
    """Return the rewards of a blind clock: how late a frame is."""
    time = np.linspace(0, 1, judged.pixels.shape[1])
    validation, test = (np.tile(time, (len(judged.rows(part)), 1)) for part in (VALIDATION, TEST))
    return ClockValues(validation, test, np.ones(len(cells)))


def write_values(path: Path, values: JudgedValues) -> None:
    """Write rewards as numbers alone."""
    with atomic_write(path) as partial, partial.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **vars(values))


def read_values(path: Path) -> JudgedValues:
    """Read the rewards of a training."""
    with np.load(path) as table:
        return JudgedValues(table["validation"], table["test"], table["cells"])


def calibration(judged: ClipTable, values: JudgedValues | ClockValues) -> LevelMap:
    """Return the isotonic map from reward to level over all frames of the validation clips whose level is known."""
    levels = levels_of(only(judged, VALIDATION)).ravel()
    known = levels > 0
    if not known.any():
        return UNCALIBRATED
    return fit_levels(values.validation.ravel()[known].tolist(), levels[known].astype(float).tolist())


def measures(judged: ClipTable, cells: PerturbedCells, values: JudgedValues | ClockValues) -> Mapping[str, Measured]:
    """Return every measure of the test clips."""
    test, level_map = only(judged, TEST), calibration(judged, values)
    levels = np.interp(values.test[:, -1], level_map.similarities, level_map.levels)
    found = measure_values(values.test, levels, test.facts, values.test_reversed)
    if len(cells):
        said = np.interp(values.cells, level_map.similarities, level_map.levels)
        found["robustness_auc"] = robustness(levels, said, test.facts, _cell_facts(test, cells))
    return found


def _cell_facts(test: ClipTable, cells: PerturbedCells) -> PerturbedLevels:
    row = {clip.id: place for place, clip in enumerate(test.clips)}
    name = {perturbation: place for place, perturbation in enumerate(dict.fromkeys(cells.perturbations))}
    columns = (
        [row[clip] for clip in cells.clips],
        [name[perturbation] for perturbation in cells.perturbations],
        cells.severities,
        cells.levels,
    )
    return PerturbedLevels(*(np.array(column, np.int64) for column in columns))
