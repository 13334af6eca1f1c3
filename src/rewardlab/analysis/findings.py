"""What may be claimed from a run: certified severities, controls beaten, drops seen, worst changes, calibration."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from rewardlab.analysis.alignment import align
from rewardlab.analysis.measurements import Row
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.calibration import null_quantiles, reliability_diagram
from rewardlab.metrics.clustered_bootstrap import Draws, condition_sums
from rewardlab.metrics.contract import Numbers
from rewardlab.metrics.eligibility import answered
from rewardlab.metrics.error import micro_mae, rounded, success_accuracy
from rewardlab.metrics.intervals import clusters_of
from rewardlab.metrics.model_ranking import rank_stability
from rewardlab.metrics.paired_tests import Paired, paired_means
from rewardlab.metrics.robustness_curve import (
    mean_corruption_error,
    mean_rise,
    relative_corruption_error,
    robustness_auc,
)
from rewardlab.metrics.severity_threshold import reliability
from rewardlab.metrics.significance import holm, smallest_visible_change
from rewardlab.models import MODELS
from rewardlab.models.contract import ModelEntry
from rewardlab.perturb.contract import CATEGORIES, SEVERITIES

Plain = dict[str, object]
REFERENCE = "constant"  # the model against which mCE is taken: knowing nothing
SURE = 0.05


def or_none(value: float) -> float | None:
    """Return the number, None where it is nan: JSON has no nan."""
    return None if math.isnan(value) else float(value)


def values_of(trials: TrialTable, name: str) -> Numbers:
    """Return what a metric is the mean of, nan where the trial does not count."""
    metric = METRICS[name]
    assert metric.values is not None
    return np.where(answered(trials, metric.needs), metric.values(trials), np.nan)


def thresholds(trials: TrialTable, draws: Draws, least: float) -> Plain:
    """Return, per model and category, the last severity with success accuracy of at least `least`.

    As measured, certified, and its share of draws. A severity that was not measured ends what can be claimed.
    """
    found: dict[str, dict[str, dict[str, object]]] = {"reliability": {}, "certified": {}, "threshold_draws": {}}
    values, cluster = values_of(trials, success_accuracy.name), clusters_of(trials)
    category, severity = trials.text("category"), trials.number("severity").astype(np.int64)
    model_of, models = trials.codes("model")
    for number, model in enumerate(models):
        for name in CATEGORIES:
            mine = (model_of == number) & ((category == name) | (category == CLEAN))
            if not ((category == name) & mine).any():
                continue
            sums = condition_sums(values[mine], cluster[mine], severity[mine], len(SEVERITIES), draws.clusters)
            reached = reliability(*sums, draws, least)
            shares = {str(last): share for last, share in reached.shares.items()}
            found["reliability"].setdefault(model, {})[name] = or_none(reached.plain)
            found["certified"].setdefault(model, {})[name] = or_none(reached.certified)
            found["threshold_draws"].setdefault(model, {})[name] = shares
    return {**found}


def control_checks(trials: TrialTable, draws: Draws, judged: Sequence[str]) -> list[Plain]:
    """Return, per judged model and control, whether its MAE is lower on the cells both scored: clean, and all."""
    cells = align(trials, values_of(trials, micro_mae.name))
    controls = [name for name in cells.values if name not in judged and not _sees_truth(name)]
    tests: list[tuple[str, str, str, Paired]] = []
    for model in (name for name in judged if name in cells.values):
        for control in controls:
            for where, mask in (("clean", cells.clean), ("all cells", np.ones(len(cells.clean), dtype=bool))):
                ours, theirs = (np.where(mask, cells.values[name], np.nan) for name in (model, control))
                tests.append((model, control, where, paired_means(theirs, ours, cells.cluster, draws)))
    corrected = holm([paired.p for *_, paired in tests])
    return [_control_check(*test, p) for test, p in zip(tests, corrected)]


def _control_check(model: str, control: str, where: str, paired: Paired, p: float) -> Plain:
    return {
        **{"model": model, "control": control, "where": where, "metric": micro_mae.name},
        **{"gain": or_none(paired.difference), "low": or_none(paired.low), "high": or_none(paired.high)},
        **{"p": or_none(paired.p), "p_holm": or_none(p), "cells": paired.trials, "clusters": paired.clusters},
        "verdict": _verdict(paired.difference, p),
    }


def _verdict(gain: float, p: float) -> str:
    if math.isnan(p) or p >= SURE:
        return "cannot tell"
    return "beats" if gain > 0 else "does not beat"


def _sees_truth(model: str) -> bool:
    entry = MODELS.get(model.partition(":")[0])
    return isinstance(entry, ModelEntry) and entry.sees_truth


def drops(trials: TrialTable, draws: Draws, judged: Sequence[str]) -> list[Plain]:
    """Return, per judged model and category, the paired drop of success accuracy from clean to the highest severity.

    Only cells that keep the label count. Holm's family is all of them; each says which drop could have been seen.
    """
    truth = trials.number("truth_success")
    before = np.where((rounded(trials.number("clean_level")) == 5) == (truth == 1), 1.0, 0.0)
    before[np.isnan(trials.number("clean_level")) | (trials.text("expectation") != "same")] = np.nan
    after, cluster = values_of(trials, success_accuracy.name), clusters_of(trials)
    model, category, severity = trials.text("model"), trials.text("category"), trials.number("severity")
    highest = severity.max(initial=0)
    tests: list[tuple[str, str, int, Paired]] = []
    for name in judged:
        for group in CATEGORIES:
            cells = (model == name) & (category == group) & (severity == highest) & ~np.isnan(before + after)
            if cells.any():
                episodes = len(np.unique(trials.codes("episode")[0][cells]))
                tests.append((name, group, episodes, paired_means(before[cells], after[cells], cluster[cells], draws)))
    corrected = holm([paired.p for *_, paired in tests])
    return [_drop(*test, p, int(highest)) for test, p in zip(tests, corrected)]


def _drop(model: str, category: str, episodes: int, paired: Paired, p: float, severity: int) -> Plain:
    # A model that never flipped could still flip on the next task: then the error is that of one task in all.
    error = paired.error if paired.error > 0 or paired.clusters < 2 else 1 / paired.clusters
    visible = smallest_visible_change(error, paired.clusters)
    note = f"with these {episodes} episodes in {paired.clusters} clusters "
    note += "no drop can be seen" if math.isnan(visible) else f"a drop under {visible:.2f} cannot be seen"
    return (
        {"model": model, "category": category, "severity": severity, "metric": success_accuracy.name}
        | {"clean": paired.a, "changed": paired.b, "drop": paired.difference}
        | {"low": or_none(paired.low), "high": or_none(paired.high), "p": or_none(paired.p), "p_holm": or_none(p)}
        | {"cells": paired.trials, "episodes": episodes, "clusters": paired.clusters}
        | {"smallest_visible_drop": or_none(visible), "note": note}
    )


def worst(trials: TrialTable, rows: Sequence[Row], judged: Sequence[str], count: int = 5) -> dict[str, list[Plain]]:
    """Return, per judged model, the perturbations that broke most expectations, at their highest severity."""
    category = dict(zip(trials.text("perturbation"), trials.text("category")))
    table = {(row.model, row.group, row.severity, row.metric): row for row in rows}
    found: dict[str, list[Plain]] = {}
    for model in judged:
        kept: dict[str, Row] = {}
        for row in rows:
            if row.model == model and row.metric == "expectation_kept" and row.group in category and row.severity:
                kept[row.group] = max(kept.get(row.group, row), row, key=lambda r: r.severity)
        ranked = sorted((row for row in kept.values() if row.value is not None), key=lambda r: (r.value, r.group))
        found[model] = [_worst(row, str(category[row.group]), table) for row in ranked[:count]]
    return found


def _worst(row: Row, category: str, table: dict[tuple[str, str, int, str], Row]) -> Plain:
    def value(severity: int, metric: str) -> float | None:
        other = table.get((row.model, row.group, severity, metric))
        return other.value if other else None

    return (
        {"perturbation": row.group, "category": category, "severity": row.severity, "expectation_kept": row.value}
        | {"low": row.low, "high": row.high, "scored": row.scored, "asked": row.asked}
        | {"signed_shift": value(row.severity, "signed_shift"), "micro_mae": value(row.severity, "micro_mae")}
        | {"clean_micro_mae": value(0, "micro_mae")}
    )


def calibration(trials: TrialTable, seed: int) -> dict[str, dict[str, Plain]]:
    """Return, per model that gives probabilities, its calibration on clean and on perturbed cells, with the nulls."""
    found: dict[str, dict[str, Plain]] = {}
    usable = answered(trials, "probabilities")
    clean = trials.text("perturbation") == CLEAN
    model_of, models = trials.codes("model")
    for number, model in enumerate(models):
        for part, mask in (("clean", clean), ("perturbed", ~clean)):
            cells = trials.where(usable & mask & (model_of == number))
            if len(cells):
                found.setdefault(model, {})[part] = _calibration(cells, seed)
    return found


def _calibration(cells: TrialTable, seed: int) -> Plain:
    names = ("ordinal_ece", "top_label_ece", "ranked_probability_score", "brier_score")
    return (
        {name: or_none(METRICS[name](cells)) for name in names}
        | {f"{name}_null": or_none(value) for name, value in null_quantiles(cells, seed).items()}
        | {"trials": len(cells), "diagram": [asdict(point) for point in reliability_diagram(cells)]}
    )


def robustness(rows: Sequence[Row]) -> dict[str, Plain]:
    """Return, per model, mCE and relative mCE against the constant control, the mean rise of error, and the AUCs.

    The error is MAE / 4, per perturbation; the AUC is that of success accuracy, per category.
    """
    errors = _curves(rows, "micro_mae", 0.25)
    accuracy = _curves(rows, "success_accuracy", 1.0)
    reference = {c: curve for c, curve in errors.get(REFERENCE, {}).items() if c not in CATEGORIES}
    found: dict[str, Plain] = {}
    for model, curves in errors.items():
        single = {c: curve for c, curve in curves.items() if c not in CATEGORIES}
        areas = {c: or_none(robustness_auc(accuracy[model][c])) for c in accuracy.get(model, {}) if c in CATEGORIES}
        found[model] = {
            "reference": REFERENCE if reference else None,
            "mce": or_none(mean_corruption_error(single, reference)),
            "relative_mce": or_none(relative_corruption_error(single, reference)),
            "mean_rise": or_none(mean_rise(single)),
            "auc": areas,
        }
    return found


def rank_kept(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return, per category, tau-b between the ranking of all models by MAE when clean and at the highest severity."""
    curves = _curves(rows, "micro_mae", 1.0)
    found: dict[str, float | None] = {}
    for category in CATEGORIES:
        pairs = [models[category] for models in curves.values() if category in models]
        if len(pairs) > 2:
            found[category] = or_none(rank_stability([c[0] for c in pairs], [c[-1] for c in pairs]))
    return found


def _curves(rows: Sequence[Row], metric: str, scale: float) -> dict[str, dict[str, list[float]]]:
    """Return, per model and group, the values over the severities that were measured, clean first."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in sorted((r for r in rows if r.metric == metric and r.group != CLEAN), key=lambda r: r.severity):
        value = math.nan if row.value is None else row.value * scale
        found.setdefault(row.model, {}).setdefault(row.group, []).append(value)
    return {m: {g: c for g, c in groups.items() if len(c) > 1} for m, groups in found.items()}
