"""Models side by side: the same cell of every model in the same place, so that differences are paired."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics.contract import Numbers
from rewardlab.metrics.metric_estimates import clusters_of


@dataclass(frozen=True, eq=False)
class AlignedCells:
    """One number per model and cell (episode x perturbation x severity), nan where the model has none."""

    values: dict[str, Numbers]
    cluster: NDArray[np.int64]
    clean: NDArray[np.bool_]


def align_models(trials: TrialTable, values: Numbers) -> AlignedCells:
    """Put one number per trial in the place of its cell, for each model."""
    model_of, models = trials.codes("model")
    place, first = _cell_places(trials)
    table = np.full((len(models), len(first)), np.nan)
    table[model_of, place] = values
    names = {str(name): table[number] for number, name in enumerate(models)}
    return AlignedCells(names, clusters_of(trials)[first], trials.matches("perturbation", CLEAN)[first])


def _cell_places(trials: TrialTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each trial's cell, whatever the model, and one trial of each cell."""
    episode, _ = trials.codes("episode")
    perturbation, names = trials.codes("perturbation")
    severity = trials.number("severity").astype(np.int64)
    code = (episode * max(len(names), 1) + perturbation) * 8 + severity
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return place, first
