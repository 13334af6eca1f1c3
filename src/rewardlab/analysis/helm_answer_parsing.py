"""Answers as HELM scores them (branch `rob`): the number it reads, unclipped; an unreadable one is off by 4 levels."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.models.protocols.answer_parsers import helm_number

UNREADABLE_ERROR = 4.0  # the absolute error HELM gives an answer in which it finds no number


@dataclass(frozen=True, eq=False)
class HelmReadings:
    """Trials as HELM reads them; where it finds a text, whether it finds a number in it."""

    trials: TrialTable
    text: NDArray[np.bool_]
    readable: NDArray[np.bool_]


def helm_readings(trials: TrialTable, without_text: Collection[str]) -> HelmReadings:
    """Return the trials with HELM's level in place of ours; a missing completion is dropped, as HELM does.

    A model that says nothing in words (`without_text`, or an answer with no raw text) keeps its own level.
    """
    models, raws = trials.text("model"), trials.text("raw")
    text = np.array([raw is not None and model not in without_text for model, raw in zip(models, raws)], dtype=bool)
    numbers = [helm_number(raw) if there else None for raw, there in zip(raws, text)]
    readable = np.array([number is not None for number in numbers], dtype=bool)
    read = np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)
    level = np.where(text, np.where(readable, read, trials.number("truth_level") + UNREADABLE_ERROR), np.nan)
    level = np.where(text, level, trials.number("level"))
    status = np.where(text & (trials.text("status") != "dropped"), "scored", trials.text("status"))
    status[status == "failed"] = "dropped"
    return HelmReadings(_with(trials, level, status), text, readable)


def _with(trials: TrialTable, level: NDArray[np.float64], status: NDArray[np.object_]) -> TrialTable:
    import pyarrow as pa

    table = trials.arrow
    for name, column in (("level", pa.array(level, from_pandas=True)), ("status", pa.array(status, pa.string()))):
        table = table.set_column(table.column_names.index(name), name, column)
    return TrialTable(table)
