"""How HELM reads an answer, the 23 subsets, the published table."""

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial_table import TrialTable
from rewardlab.data.sources import SOURCES
from rewardlab.models.protocols import helm_number

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
    Who abstains states no level, whatever number stands for that: the answer counts as missing.
    """
    import pyarrow as pa

    models, raws = trials.text("model"), trials.text("raw")
    answers = zip(models, raws, strict=True)
    text = np.array([raw is not None and model not in without_text for model, raw in answers], dtype=bool)
    text &= trials.number("abstained") != 1
    numbers = [helm_number(raw) if there else None for raw, there in zip(raws, text, strict=True)]
    readable = np.array([number is not None for number in numbers], dtype=bool)
    read = np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)
    whole, mode, fractional = _whole_levels(trials, ~text)
    level = np.where(text, np.where(readable, read, trials.number("truth_level") + UNREADABLE_ERROR), whole)
    status = np.where(text & (trials.text("status") != "dropped"), "scored", trials.text("status"))
    table = trials.arrow
    for name, column in (("level", pa.array(level, from_pandas=True)), ("status", pa.array(status, pa.string()))):
        table = table.set_column(table.column_names.index(name), name, column)
    return HelmReadings(TrialTable(table), text, readable, mode, fractional)


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


# The published RoboRewardBench table: what 22 models score per subset, to be shown beside our own numbers.
#
# Source: table 10 of "RoboReward: General-Purpose Vision-Language Reward Models for Robotics" (Lee, Wagenmaker,
# Pertsch et al.): group-wise mean absolute error on levels 1 to 5, lower is better, as printed there.

EPISODES = 2_831  # of the human-verified test split, the benchmark itself
TABLE = "roborewardbench_table10.csv"

# The 23 subsets as the dataset names them, and as the published table does; RoboArena counts as one.
SUBSETS = {source.key: source.published_as for source in SOURCES.values() if source.published_as}


@dataclass(frozen=True)
class PublishedRow:
    """One model of the published table: its overall error as printed, and its error on each subset."""

    model: str
    overall: float
    subsets: dict[str, float]

    def macro_mae(self) -> float:
        """Return the mean over subsets, which the printed overall error is to three decimals."""
        return sum(self.subsets.values()) / len(self.subsets)


@dataclass(frozen=True)
class SubsetRank:
    """The rank and the error of a model on one subset."""

    subset: str
    rank: int
    error: float


@dataclass(frozen=True)
class RankSwing:
    """The rank of a model over all subsets, and its ranks on the subsets where it stands best and worst."""

    model: str
    rank: int
    best: SubsetRank
    worst: SubsetRank


Errors = Mapping[str, Mapping[str, float]]  # by model and subset


def subset_winners(errors: Errors) -> dict[str, tuple[str, ...]]:
    """Return the models with the lowest error on each subset; several where they tie."""
    found: dict[str, tuple[str, ...]] = {}
    for subset in dict.fromkeys(subset for own in errors.values() for subset in own):
        least = min(own[subset] for own in errors.values() if subset in own)
        found[subset] = tuple(model for model, own in errors.items() if own.get(subset) == least)
    return found


def rank_swings(errors: Errors) -> list[RankSwing]:
    """Return how far the rank of each model moves from subset to subset, the best model over all subsets first.

    Models that tie share a rank. On subsets of equal rank, the lower error is the best and the higher one the worst.
    """
    overall = {model: sum(own.values()) / len(own) for model, own in errors.items() if own}
    found = []
    for model in sorted(overall, key=lambda name: overall[name]):
        ranks = [
            SubsetRank(subset, 1 + sum(own.get(subset, error) < error for own in errors.values()), error)
            for subset, error in errors[model].items()
        ]
        place = 1 + sum(other < overall[model] for other in overall.values())
        best, worst = (pick(ranks, key=lambda each: (each.rank, each.error)) for pick in (min, max))
        found.append(RankSwing(model, place, best, worst))
    return found


def published_rows() -> list[PublishedRow]:
    """Return the published table, best model first."""
    text = files("rewardlab.evaluation").joinpath(TABLE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return [PublishedRow(r.pop("model"), float(r.pop("overall")), {n: float(x) for n, x in r.items()}) for r in rows]
