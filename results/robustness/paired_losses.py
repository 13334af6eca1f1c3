"""Writes paired_losses.csv: what severity 4 costs in balanced accuracy, success AUC and level; calibration by task.

    python results/robustness/paired_losses.py

It reads the run that is kept here. A loss is the clean value less that at severity 4, of the same episodes, over trials
that keep their label; intervals are 95 % bootstraps over tasks and videos, as in every.csv. Seen tasks are those that
the models were trained on. `bias` is the mean expected level less the true one. The error grows under change, so
its loss is negative; of two models, the rows hold the difference of their errors.
"""

import csv
from pathlib import Path

import numpy as np

from rewardlab.core.run import open_run
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Draws, cluster_sums, draw_clusters, percentile_interval
from rewardlab.metrics.estimates import clusters_of, expected_levels, with_clean_answers, with_clusters
from rewardlab.metrics.paired_differences import paired_means

HERE = Path(__file__).resolve().parent
OUT = HERE / "paired_losses.csv"
CATEGORIES = ("visual", "semantic", "temporal", "domain")
MODELS = ("pocket-plain", "pocket", "ensemble:pocket-plain,pocket")


def main() -> None:
    run = open_run(HERE / "run")
    trials = with_clusters(with_clean_answers(run.trials(METRIC_COLUMNS)))
    draws = draw_clusters(int(clusters_of(trials).max()) + 1, 2_000, 0)
    seen = np.isin(trials.text("task").astype(str), run.record.trained_tasks["pocket"])
    with OUT.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(("model", "part", "measure", "clean", "changed", "lost", "low", "high", "trials"))
        for model in MODELS:
            own = trials.where(trials.matches("model", model) & trials.matches("status", "scored"))
            for category in CATEGORIES:
                writer.writerows((model, category, *row) for row in losses(own, category, draws))
            for part, tasks in (("seen tasks", seen), ("unseen tasks", ~seen)):
                clean = trials.where(trials.matches("model", model) & (trials.number("severity") == 0) & tasks)
                bias = float(np.mean(expected_levels(clean) - clean.number("truth_level")))
                for measure, value in (("ordinal ECE", METRICS["ordinal_ece"](clean)), ("bias", bias)):
                    writer.writerow((model, part, measure, f"{value:.4f}", "", "", "", "", len(clean)))
        tuned, plain = (trials.where(trials.matches("model", model)) for model in ("pocket", "pocket-plain"))
        for category in CATEGORIES:
            row = error_loss(pairs(tuned, category), draws, pairs(plain, category))
            writer.writerow(("pocket less pocket-plain", category, "MAE", *row))


def losses(own: TrialTable, category: str, draws: Draws) -> list[tuple[object, ...]]:
    """Return the balanced accuracy and the success AUC that severity 4 of a category costs, on the same episodes."""
    clean, changed = pairs(own, category)
    found: list[tuple[object, ...]] = [("MAE", *error_loss((clean, changed), draws))]
    for name, measure in (("balanced accuracy", balanced), ("success AUC", success_auc)):
        (before, drawn_before), (after, drawn_after) = measure(clean, draws), measure(changed, draws)
        behind = np.array([len(np.unique(clusters_of(clean)))], dtype=np.float64)
        low, high = percentile_interval((drawn_before - drawn_after)[None, :], behind)
        numbers = (before, after, before - after, low[0], high[0])
        found.append((name, *(f"{number:.4f}" for number in numbers), len(clean)))
    return found


def pairs(own: TrialTable, category: str) -> tuple[TrialTable, TrialTable]:
    """Return the clean trials and those at severity 4 of a category, of the same episodes in the same order."""
    worst = own.matches("category", category) & (own.number("severity") == 4) & own.matches("expectation", "same")
    changed, clean = in_order(own.where(worst)), in_order(own.where(own.number("severity") == 0))
    clean = clean.where(np.isin(clean.text("episode").astype(str), changed.text("episode").astype(str)))
    assert list(clean.text("episode")) == list(changed.text("episode"))
    return clean, changed


def error_loss(
    own: tuple[TrialTable, TrialTable], draws: Draws, less: tuple[TrialTable, TrialTable] | None = None
) -> tuple[object, ...]:
    """Return the mean error of the level, clean and changed, or its difference to another model's, and the loss."""
    values = METRICS["micro_mae"].values
    assert values is not None
    clean, changed = (values(part) for part in own)
    if less is not None:
        assert list(less[0].text("episode")) == list(own[0].text("episode"))
        clean, changed = clean - values(less[0]), changed - values(less[1])
    found = paired_means(clean, changed, clusters_of(own[0]), draws)
    numbers = (found.a, found.b, found.difference, found.low, found.high)
    return (*(f"{number:.4f}" for number in numbers), found.trials)


def in_order(trials: TrialTable) -> TrialTable:
    """Return the trials in the order of their episodes."""
    return trials.take(np.argsort(trials.text("episode").astype(str), kind="stable"))


def balanced(trials: TrialTable, draws: Draws) -> tuple[float, np.ndarray]:
    """Return the balanced accuracy of success, and of every draw."""
    values = METRICS["success_accuracy"].values
    assert values is not None
    right, success = values(trials), trials.number("truth_success")
    sides = [np.where(success == side, right, np.nan) for side in (0, 1)]
    parts = [cluster_sums(side, clusters_of(trials), draws.clusters) for side in sides]
    drawn = np.mean([draws.ratios(above[None, :], below[None, :])[0] for above, below in parts], axis=0)
    return METRICS["balanced_success_accuracy"](trials), drawn


def success_auc(trials: TrialTable, draws: Draws) -> tuple[float, np.ndarray]:
    """Return the AUC of the expected level for success, and of every draw."""
    metric = METRICS["success_auc"]
    assert metric.resample is not None
    return metric(trials), metric.resample(trials, draws)


if __name__ == "__main__":
    main()
