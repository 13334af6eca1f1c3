"""From trials to a summary: every metric per model, category and severity, each beside its coverage."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.run import Run
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.contract import Metric
from rewardlab.metrics.robustness import reliability_threshold
from rewardlab.perturb.contract import CATEGORIES, SEVERITIES

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """One number: a metric of a model under a category or a single perturbation at a severity."""

    model: str
    group: str
    severity: int
    metric: str
    value: float | None  # None where nothing could be measured
    scored: int  # trials behind the value
    asked: int  # trials that should have been behind it


def summarise(run: Run) -> dict[str, object]:
    """Return the summary of a run as plain data: rows, reliability thresholds and counts."""
    trials = _with_clean_level(run.trials())
    rows = list(_rows(trials))
    plan = run.record["plan"]
    least = float(plan["reliable_at"]) if isinstance(plan, dict) else math.nan
    return {
        "rows": [asdict(row) for row in rows],
        "reliability": _reliability(rows, least),
        "reliable_at": least,
        "counts": _counts(trials),
    }


def _with_clean_level(trials: TrialTable) -> TrialTable:
    """Add the level that the same model gave the untouched episode."""
    keys = list(zip(trials.text("model"), trials.text("episode")))
    clean = trials.text("perturbation") == CLEAN
    levels = trials.number("level")
    known = {key: level for key, level, is_clean in zip(keys, levels, clean) if is_clean}
    column = np.array([known.get(key, math.nan) for key in keys], dtype=np.float64)
    return TrialTable(trials.arrow.append_column("clean_level", [column]))


def _rows(trials: TrialTable) -> Iterator[Row]:
    models, severity = trials.text("model"), trials.number("severity")
    groups = {"category": trials.text("category"), "perturbation": trials.text("perturbation")}
    for model in dict.fromkeys(models):
        mine = models == model
        clean = trials.where(mine & (groups["category"] == CLEAN))
        for name, members in _members(groups):
            for level in SEVERITIES:
                cells = clean if level == 0 else trials.where(mine & members & (severity == level))
                if len(cells):
                    yield from (_row(cells, metric, model, name, level) for metric in METRICS.values())


def _members(groups: dict[str, NDArray[np.object_]]) -> Iterator[tuple[str, Mask]]:
    for category in CATEGORIES:
        if (groups["category"] == category).any():
            yield category, groups["category"] == category
    for name in dict.fromkeys(groups["perturbation"]):
        if name != CLEAN:
            yield str(name), groups["perturbation"] == name


def _row(cells: TrialTable, metric: Metric, model: str, group: str, severity: int) -> Row:
    usable = usable_for(cells, metric)
    scored = usable & (cells.text("status") == "scored")
    value = metric(cells.where(scored))
    number = None if math.isnan(value) else value
    return Row(model, group, severity, metric.name, number, int(scored.sum()), int(usable.sum()))


def usable_for(cells: TrialTable, metric: Metric) -> Mask:
    """Tell which trials a metric is about: defined cells whose truth, or clean score, is known."""
    defined: Mask = cells.text("status") != "dropped"
    if metric.needs == "clean score":
        defined &= (cells.text("expectation") != "undefined") & ~np.isnan(cells.number("clean_level"))
        return defined
    labelled = np.isin(cells.text("expectation"), ["same", "relabel"])
    # A cell that failed before its expectation was known still had a truth: it counts as asked.
    labelled |= (cells.text("status") == "failed") & (cells.text("expectation") == "undefined")
    truth = cells.number("truth_level" if metric.needs == "level" else "truth_success")
    known: Mask = defined & labelled & ~np.isnan(truth)
    return known


def _reliability(rows: list[Row], least: float) -> dict[str, dict[str, float | None]]:
    curves: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.metric == "success_accuracy" and row.group in CATEGORIES:
            value = math.nan if row.value is None else row.value
            curves.setdefault((row.model, row.group), []).append(value)
    found: dict[str, dict[str, float | None]] = {}
    for (model, group), curve in curves.items():
        threshold = reliability_threshold(curve, least)
        found.setdefault(model, {})[group] = None if math.isnan(threshold) else threshold
    return found


def _counts(trials: TrialTable) -> dict[str, dict[str, int]]:
    models, status = trials.text("model"), trials.text("status")
    return {
        str(model): {
            name: int(((models == model) & (status == name)).sum()) for name in ("scored", "failed", "dropped")
        }
        for model in dict.fromkeys(models)
    }
