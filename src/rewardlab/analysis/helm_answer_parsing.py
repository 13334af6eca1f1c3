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
    """Trials as HELM reads them; which have a text, a number in it, the mode for a level, or no whole level at all."""

    trials: TrialTable
    text: NDArray[np.bool_]
    readable: NDArray[np.bool_]
    mode: NDArray[np.bool_]
    fractional: NDArray[np.bool_]


def helm_readings(trials: TrialTable, without_text: Collection[str]) -> HelmReadings:
    """Return the trials with HELM's level in place of ours; a missing completion has none, and stays asked.

    Predictions of the benchmark are whole levels. A model that says nothing in words (`without_text`, or an answer with
    no raw text) keeps its levels where all are whole; else its most probable level counts, where it has probabilities.
    """
    models, raws = trials.text("model"), trials.text("raw")
    text = np.array([raw is not None and model not in without_text for model, raw in zip(models, raws)], dtype=bool)
    numbers = [helm_number(raw) if there else None for raw, there in zip(raws, text)]
    readable = np.array([number is not None for number in numbers], dtype=bool)
    read = np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)
    whole, mode, fractional = _whole_levels(trials, ~text)
    level = np.where(text, np.where(readable, read, trials.number("truth_level") + UNREADABLE_ERROR), whole)
    status = np.where(text & (trials.text("status") != "dropped"), "scored", trials.text("status"))
    return HelmReadings(_with(trials, level, status), text, readable, mode, fractional)


def _whole_levels(
    trials: TrialTable, silent: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return levels of answers without text, where the mode was taken, and where there is no whole level to take.

    A model of which one such level is an expectation gives expectations throughout, so that all of them are replaced.
    """
    level, probs = trials.number("level"), trials.vectors("probabilities", 5)
    model, names = trials.codes("model")
    broken = silent & ~np.isnan(level) & (level != np.floor(level))
    expects = np.isin(model, np.unique(model[broken])) & silent & ~np.isnan(level) if len(names) else broken
    known = ~np.isnan(probs).any(axis=1)
    mode = expects & known
    most_probable = np.where(known, np.nan_to_num(probs).argmax(axis=1) + 1.0, np.nan)
    return np.where(mode, most_probable, level), mode, broken & ~known


def _with(trials: TrialTable, level: NDArray[np.float64], status: NDArray[np.object_]) -> TrialTable:
    import pyarrow as pa

    table = trials.arrow
    for name, column in (("level", pa.array(level, from_pandas=True)), ("status", pa.array(status, pa.string()))):
        table = table.set_column(table.column_names.index(name), name, column)
    return TrialTable(table)
