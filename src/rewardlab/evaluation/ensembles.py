"""What models made of others gain and pay: how alike members err, what a verdict costs, what normalising changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rewardlab.core.run import Run
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.evaluation.summary import DRAWS
from rewardlab.metrics import accuracy
from rewardlab.metrics.clustered_bootstrap import (
    CORRELATION,
    Draws,
    Numbers,
    draw_clusters,
    percentile_interval,
    sum_by,
)
from rewardlab.metrics.contract import Metric, answered
from rewardlab.metrics.estimates import clusters_of, measure, with_clean_answers, with_clusters
from rewardlab.metrics.paired_differences import PairedDifference, paired_means

_COLUMNS = (*METRIC_COLUMNS, "cost", "member_levels", "member_failures", "skipped_members")


@dataclass(frozen=True)
class ErrorCorrelation:
    """How alike two members of an ensemble err: the correlation of their errors in levels, over labelled trials."""

    ensemble: str
    first: str
    second: str
    value: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class CostPoint:
    """What a model reaches and what a verdict of it takes: price and seconds (None where unknown), members asked."""

    model: str
    accuracy: float
    low: float
    high: float
    price: float | None
    seconds: float | None
    asked: float  # members per verdict; 1 for a single model


@dataclass(frozen=True)
class EnsembleReport:
    """The correlations of errors and the points of the curve of cost against accuracy."""

    correlations: tuple[ErrorCorrelation, ...]
    points: tuple[CostPoint, ...]


def report_ensembles(run: Run) -> EnsembleReport | None:
    """Return what the ensembles of a run cost and gain beside its other evaluated models; None where it has none."""
    trials = with_clusters(with_clean_answers(run.trials(_COLUMNS)))
    own = {model: _of(trials, model) for model in dict.fromkeys(trials.text("model"))}
    asked = {model: _asked(own[model]) for model in run.record.evaluated if model in own}
    if not any(asked.values()):
        return None
    draws = draw_clusters(int(clusters_of(trials).max(initial=-1)) + 1, DRAWS, 0)
    correlations: dict[tuple[str, str, float], ErrorCorrelation] = {}  # another rule for the same members says the same
    for model, members in asked.items():
        if members and (members.keys() <= own.keys() or np.isnan(own[model].number("skipped_members")).all()):
            for found in error_correlations(own, model, tuple(members), draws):  # else some answers are missing
                correlations.setdefault((found.first, found.second, found.value), found)
    points = tuple(_point(own, model, asked, draws) for model in asked)
    return EnsembleReport(tuple(correlations.values()), points)


def error_correlations(
    own: Mapping[str, TrialTable], ensemble: str, names: Sequence[str], draws: Draws
) -> list[ErrorCorrelation]:
    """Return the correlation of the errors of each two members, with its interval.

    A member that the run also asks alone has its own answers there, which an early exit leaves out of the ensemble's.
    """
    used = own[ensemble].where(answered(own[ensemble], "level"))
    truth, cluster = used.number("truth_level"), clusters_of(used)
    alone = {name: dict(zip(_places(own[name]), own[name].number("level"), strict=True)) for name in names & own.keys()}
    rows = [dict(row["member_levels"] or ()) for row in used.records(("member_levels",))]
    levels = {
        name: [alone[name].get(place, np.nan) for place in _places(used)]
        if name in alone
        else [row.get(name, np.nan) for row in rows]
        for name in names
    }
    errors = {name: np.array(said, dtype=np.float64) - truth for name, said in levels.items()}
    found = []
    for first, second in combinations(names, 2):
        both = ~np.isnan(errors[first] + errors[second])
        one, two, places = errors[first][both], errors[second][both], cluster[both]
        products = [np.ones(len(one)), one, two, one * one, two * two, one * two]
        sums = np.array([sum_by(places, draws.clusters, values) for values in products])
        value = float(_correlation(sums.sum(axis=1)[:, None])[0])
        behind = np.array([len(np.unique(places))], dtype=np.float64)
        low, high = percentile_interval(_correlation(draws.sums(sums))[None, :], behind, bounds=CORRELATION)
        found.append(ErrorCorrelation(ensemble, first, second, value, float(low[0]), float(high[0]), len(one)))
    return found


def _correlation(sums: Numbers) -> Numbers:
    """Return Pearson's correlation from the sums of 1, x, y, xx, yy and xy, each a row; nan where one does not vary."""
    n, x, y, xx, yy, xy = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
        return np.where(spread > 1e-9, (xy - x * y / n) / spread, np.nan)


def _of(trials: TrialTable, model: str) -> TrialTable:
    return trials.where(trials.matches("model", model) & trials.matches("status", "scored"))


def _places(own: TrialTable) -> list[tuple[str, str, float]]:
    """Return which episode under which condition each trial is about."""
    return list(zip(own.text("episode"), own.text("perturbation"), own.number("severity"), strict=True))


def _mean(values: Numbers) -> float | None:
    return float(values.mean()) if len(values) and not np.isnan(values).any() else None


def _asked(own: TrialTable) -> dict[str, float]:
    """Return the members of an ensemble with the share of its verdicts for which each was asked; empty for others."""
    rows = own.records(("member_levels", "member_failures"))
    counts = Counter(name for row in rows for part in row.values() for name, _ in part or ())
    return {name: count / len(rows) for name, count in counts.items()}


def _point(
    own: Mapping[str, TrialTable], model: str, asked: Mapping[str, Mapping[str, float]], draws: Draws
) -> CostPoint:
    found = measure(accuracy.success_accuracy, own[model], draws)
    calls = sum(asked[model].values()) if asked[model] else 1.0
    price = _mean(own[model].number("cost"))
    return CostPoint(model, found.value, found.low, found.high, price, _seconds(own, model, asked), calls)


def _seconds(own: Mapping[str, TrialTable], model: str, asked: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return the seconds of a verdict on a clean episode, whose frames are new to the model; None where unknown.

    A member that others of the run ask too answers from memory: its seconds are those of its own trials, if any.
    """
    wrapped = model.removeprefix("normalise:")
    if wrapped != model and wrapped in own:
        return _seconds(own, wrapped, asked)
    members = asked.get(model, {})
    shared = {name for other, names in asked.items() if other != model for name in names}
    if not members.keys() & {*own, *shared}:
        return _mean(own[model].where(own[model].matches("perturbation", "clean")).number("seconds"))
    each = [(share, _seconds(own, name, asked) if name in own else None) for name, share in members.items()]
    known = [share * seconds for share, seconds in each if seconds is not None]
    return sum(known) if len(known) == len(each) else None


# What rewriting the instruction gains and costs: `normalise:MODEL` beside MODEL in the same run.

_NORMALISED = "normalise:"
_SAME, _OTHER = "other words, same meaning", "other meaning"
_COMPARED: tuple[tuple[str, Metric], ...] = (
    ("clean", accuracy.success_accuracy),
    ("clean", accuracy.micro_mae),
    (_SAME, accuracy.success_accuracy),
    (_SAME, accuracy.micro_mae),
    (_SAME, accuracy.expectation_kept),
    (_OTHER, accuracy.expectation_kept),
)


@dataclass(frozen=True)
class NormaliserGain:
    """A metric with rewritten instructions (`a`) and as they are given (`b`), on the trials that both answered."""

    where: str
    heading: str
    found: PairedDifference


@dataclass(frozen=True)
class NormaliserReport:
    """What `normalise:` changes for a model, and by how much it raises the price of a verdict; None where unknown."""

    model: str
    plain: str
    gains: tuple[NormaliserGain, ...]
    price: float | None


def report_normalisers(run: Run) -> list[NormaliserReport]:
    """Return what the normalisers of a run change, each beside the same model of the run without it."""
    evaluated = run.record.evaluated
    pairs = {name: plain for name in evaluated if (plain := _without_normaliser(name)) in evaluated}
    if not pairs:
        return []
    trials = with_clusters(with_clean_answers(run.trials(_COLUMNS)))
    draws = draw_clusters(int(clusters_of(trials).max(initial=-1)) + 1, DRAWS, 0)
    return [_normaliser_report(_of(trials, name), _of(trials, plain), draws) for name, plain in pairs.items()]


def _without_normaliser(name: str) -> str:
    """Return the model behind a normaliser, as it is called alone; empty for any other model."""
    if not name.startswith(_NORMALISED):
        return ""
    model, _, option = name.removeprefix(_NORMALISED).rpartition("?")
    return model if model and option.startswith("rewriter=") else name.removeprefix(_NORMALISED)


def _normaliser_report(normalised: TrialTable, plain: TrialTable, draws: Draws) -> NormaliserReport:
    rows = {place: row for row, place in enumerate(_places(plain))}
    shared = [(row, rows[place]) for row, place in enumerate(_places(normalised)) if place in rows]
    first, second = (side.take(np.array([pair[at] for pair in shared])) for at, side in enumerate((normalised, plain)))
    changed = first.matches("category", "semantic")
    same = first.matches("expectation", "same")
    other = first.matches("expectation", "lower") | first.matches("expectation", "relabel")
    masks = {"clean": first.matches("perturbation", "clean"), _SAME: changed & same, _OTHER: changed & other}
    gains = []
    for where, metric in _COMPARED:
        a, b = first.where(masks[where]), second.where(masks[where])
        assert metric.values is not None  # all of them are means over trials
        found = paired_means(metric.values(a), metric.values(b), clusters_of(a), draws, metric.bounds)
        if found.trials:
            gains.append(NormaliserGain(where, metric.heading, found))
    prices = [_mean(side.number("cost")) for side in (first, second)]
    price = None if prices[0] is None or prices[1] is None else prices[0] - prices[1]
    return NormaliserReport(normalised.text("model")[0], plain.text("model")[0], tuple(gains), price)
