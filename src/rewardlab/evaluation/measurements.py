"""Every metric per model, group and severity, with interval, coverage and paired reference."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS
from rewardlab.core.records import none_if_nan
from rewardlab.core.summary import Measurement, PairedReference
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.accuracy import macro_mae, micro_mae, success_accuracy
from rewardlab.metrics.clustered_bootstrap import Codes, Draws, Numbers, sum_by
from rewardlab.metrics.contract import OPTIONAL, Metric, answered, eligible
from rewardlab.metrics.estimates import MetricEstimate, clean_values, measure_answered, measure_conditions
from rewardlab.metrics.noise_floor import RepeatVariance, even_weights, subset_weights


@dataclass(frozen=True, eq=False)
class Conditions:
    """The sets of trials to measure: what each is called, and which trials are in it (-1: in none of this kind)."""

    names: list[tuple[str, str, int]]  # model, group, severity
    of_trial: NDArray[np.int64]
    single: bool  # one perturbation each, not a category


def measurements(trials: TrialTable, draws: Draws) -> Iterator[Measurement]:
    """Yield the rows of every category and perturbation; the clean episodes are severity 0 of each, and a group too."""
    clean: dict[str, list[tuple[str, MetricEstimate]]] = {}
    groups: dict[str, dict[str, None]] = {}
    rows: list[Measurement] = []
    for single in (False, True):
        conditions = group_conditions(trials, single=single)
        for model, group, severity, name, measured in _measured(trials, conditions, draws):
            if group == CLEAN:
                clean.setdefault(model, []).append((name, measured))
            else:
                rows.append(_measurement(model, group, severity, name, measured))
        for model, group, _ in conditions.names:
            groups.setdefault(model, {})[group] = None
    for model, names in groups.items():
        yield from (_measurement(model, group, 0, name, m) for group in names for name, m in clean.get(model, []))
    yield from rows


def group_conditions(trials: TrialTable, *, single: bool) -> Conditions:
    """Return every model, category (or single perturbation) and severity, and which trials belong to it."""
    model, models = trials.codes("model")
    group, groups = trials.codes("perturbation" if single else "category")
    severity = trials.number("severity").astype(np.int64)
    code = (model * len(groups) + group) * len(SEVERITIES) + severity
    if single:
        code = np.where(trials.matches("perturbation", CLEAN), -1, code)
    found, place = np.unique(code, return_inverse=True)
    skip = int((found < 0).sum())
    names = [
        (models[c // len(SEVERITIES) // len(groups)], groups[c // len(SEVERITIES) % len(groups)], c % len(SEVERITIES))
        for c in found[skip:].tolist()
    ]
    return Conditions(names, place - skip, single)


def _measured(
    trials: TrialTable, conditions: Conditions, draws: Draws
) -> Iterator[tuple[str, str, int, str, MetricEstimate]]:
    """Yield every number of every condition; a metric of answers that the model never gives is left out."""
    # One perturbation at one severity has too few trials for most metrics of pairs and bins of trials.
    chosen = [
        m
        for m in METRICS.values()
        if not conditions.single or m.values is not None or m.by_condition is not None or m.display.perturbation_table
    ]
    numbers: dict[str, list[MetricEstimate]] = {}
    for eligibility in dict.fromkeys(m.eligibility for m in chosen):
        numbers |= _columns(trials, [m for m in chosen if m.eligibility == eligibility], conditions, draws)
    for place, (model, group, severity) in enumerate(conditions.names):
        for metric in chosen:
            measured = numbers[metric.name][place]
            if measured.asked > 0 and (measured.scored > 0 or metric.eligibility not in OPTIONAL):
                yield model, group, severity, metric.name, measured


def _columns(
    trials: TrialTable, metrics: list[Metric], conditions: Conditions, draws: Draws
) -> dict[str, list[MetricEstimate]]:
    """Return metrics of one eligibility in every condition: at once where they can be, the others set by set."""
    eligibility, count = metrics[0].eligibility, len(conditions.names)
    asked_in = conditions.of_trial[eligible(trials, eligibility) & (conditions.of_trial >= 0)]
    asked = sum_by(asked_in, count).astype(np.int64).tolist()
    used = np.flatnonzero(answered(trials, eligibility) & (conditions.of_trial >= 0))
    if not len(used):
        return {m.name: [MetricEstimate(math.nan, math.nan, math.nan, 0, number) for number in asked] for m in metrics}
    taken, place = trials.take(used), conditions.of_trial[used]
    found: dict[str, list[MetricEstimate]] = {}
    for metric in metrics:
        means = measure_conditions(metric, taken, place, count, draws)
        columns = () if means is None else (means.value, means.low, means.high, means.trials.astype(np.int64))
        rows = zip(*(column.tolist() for column in columns), asked, strict=True) if columns else ()
        found[metric.name] = [MetricEstimate(*row) for row in rows]
    order = np.argsort(place, kind="stable")
    ends = pairwise(np.searchsorted(place[order], np.arange(count + 1)))
    for number, (start, stop) in zip(asked, ends, strict=True):
        one_set = taken.take(order[start:stop])
        for metric in metrics:
            if len(found[metric.name]) < count:
                found[metric.name].append(measure_answered(metric, one_set, number, draws))
    return found


def _measurement(model: str, group: str, severity: int, metric: str, m: MetricEstimate) -> Measurement:
    value, low, high = (none_if_nan(x) for x in (m.value, m.low, m.high))
    return Measurement(model, group, severity, metric, value, m.scored, m.asked, low, high)


# What a number under change is held against: the clean answer and the best constant, on the same trials.


def paired_reference(trials: TrialTable, again: RepeatVariance | None = None) -> tuple[PairedReference, ...]:
    """Return, per model, group, severity and metric, what the untouched episodes and the best constant give there.

    The metrics are those drawn over severity. `again` gives the noise floor of what differs from clean.
    """
    found: list[PairedReference] = []
    for single in (False, True):
        conditions = group_conditions(trials, single=single)
        for name, metric in ((success_accuracy.name, success_accuracy), (macro_mae.name, micro_mae)):
            found += _references(trials, conditions, name, metric.values_of(trials), again)
    return tuple(found)


def _references(
    trials: TrialTable, conditions: Conditions, name: str, values: Numbers, again: RepeatVariance | None
) -> Iterator[PairedReference]:
    subset, names = np.zeros(len(trials), dtype=np.int64), ["all"]
    if name == macro_mae.name:  # it is a mean over subsets
        subset, names = trials.codes("subset")
    place = conditions.of_trial * len(names) + subset
    used = ~np.isnan(values) & (conditions.of_trial >= 0)
    shape = (len(conditions.names), max(len(names), 1))
    of_clean = clean_values(trials, values)[0]
    paired = used & ~np.isnan(of_clean)
    clean, changed = (_means(column, paired, place, shape) for column in (of_clean, values))
    blind = _best_constant(trials, name, used, place, shape)
    relabelled = sum_by(conditions.of_trial[used & trials.matches("expectation", "relabel")], shape[0])
    counts, pairs = (sum_by(conditions.of_trial[rows], shape[0]) for rows in (used, paired))
    for number, (model, group, severity) in enumerate(conditions.names):
        if counts[number]:
            held = none_if_nan(float(clean[number])), none_if_nan(float(changed[number])), int(pairs[number])
            both = np.flatnonzero(paired & (conditions.of_trial == number)) if again else ()
            floor = _floor(again, trials, name, np.asarray(both)) if again and severity and len(both) else math.nan
            best = none_if_nan(float(blind[number]))
            counted = int(counts[number]), int(relabelled[number])
            yield PairedReference(model, group, severity, name, *held, best, *counted, none_if_nan(floor))


def _floor(again: RepeatVariance, trials: TrialTable, metric: str, rows: Codes) -> float:
    """Return the noise floor of a number on these trials, less the clean one; the error is a mean over subsets."""
    if metric == macro_mae.name:
        return again.floor_from_clean(micro_mae.name, rows, subset_weights(trials, rows))
    return again.floor_from_clean(metric, rows, even_weights(rows))


def _means(values: Numbers, used: np.ndarray, place: Codes, shape: tuple[int, int]) -> Numbers:
    """Return the mean over subsets of the mean in each, per condition."""
    known, size = used & ~np.isnan(values), shape[0] * shape[1]
    count = sum_by(place[known], size)
    with np.errstate(invalid="ignore"):
        means = (sum_by(place[known], size, values[known]) / count).reshape(shape)
        there = ~np.isnan(means)
        found: Numbers = np.where(there, means, 0).sum(axis=1) / there.sum(axis=1)
    return found


def _best_constant(trials: TrialTable, metric: str, used: np.ndarray, place: Codes, shape: tuple[int, int]) -> Numbers:
    """Return, per condition, the best that a model gets which says the same level of every trial."""
    if metric == success_accuracy.name:
        truth = trials.number("truth_success")
        return np.maximum(*(_means(np.where(truth == said, 1.0, 0.0), used, place, shape) for said in (0, 1)))
    level = trials.number("truth_level")
    errors = [_means(np.abs(level - said), used, place, shape) for said in LEVELS]
    return reduce(np.minimum, errors)
