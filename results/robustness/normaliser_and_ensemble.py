"""The tables of the normaliser and the ensemble in README.md, from a run: python normaliser_and_ensemble.py RUN."""

import sys
from pathlib import Path

import numpy as np

from rewardlab.core.run import open_run
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.evaluation.ensembles import report_ensembles
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import clusters_of, measure, with_clean_answers, with_clusters
from rewardlab.metrics.paired_differences import paired_means

run = open_run(Path(sys.argv[1]))
trials = with_clusters(with_clean_answers(run.trials(METRIC_COLUMNS)))
draws = draw_clusters(int(clusters_of(trials).max()) + 1, 10_000, 0)
changed = trials.number("severity") > 0
same = changed & trials.matches("expectation", "same")
other = changed & (trials.matches("expectation", "lower") | trials.matches("expectation", "relabel"))
PARTS = {
    "clean: success accuracy": ("success_accuracy", ~changed),
    "same meaning: success accuracy": ("success_accuracy", same),
    "same meaning: MAE": ("micro_mae", same),
    "same meaning: level as clean": ("expectation_kept", same),
    "other meaning: kept": ("expectation_kept", other),
}


def of(model: str, part: np.ndarray) -> TrialTable:
    """Return the scored trials of a model, in the order of episode and condition."""
    own = trials.where(part & trials.matches("model", model) & trials.matches("status", "scored"))
    keys = list(zip(own.text("episode"), own.number("severity"), strict=True))
    return own.take(np.array(sorted(range(len(keys)), key=keys.__getitem__)))


def shown(value: float, low: float, high: float, sign: str = "") -> str:
    """Return a number with its interval."""
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


print("| " + " | ".join(["model", *PARTS]) + " |")
for model in run.record.evaluated:
    found = [measure(METRICS[name], of(model, part), draws) for name, part in PARTS.values()]
    print("| " + " | ".join([model, *(shown(f.value, f.low, f.high) for f in found)]) + " |")
print("\npaired differences, normalised minus plain")
for model in run.record.evaluated:
    if f"normalise:{model}" not in run.record.evaluated:
        continue
    cells = []
    for name, part in PARTS.values():
        plain, rewritten = of(model, part), of(f"normalise:{model}", part)
        values = METRICS[name].values
        assert values is not None and list(plain.text("episode")) == list(rewritten.text("episode"))
        gain = paired_means(values(rewritten), values(plain), clusters_of(plain), draws)
        cells.append(shown(gain.difference, gain.low, gain.high, "+"))
    print("| " + " | ".join([model, *cells]) + " |")
rewritten_to: dict[str, list[bool]] = {}
columns = ("episode", "severity", "expectation", "status", "normalised_instruction")
asked = run.trials()
rows = asked.where(asked.matches("model", "normalise:pocket")).records(columns)
clean = {row["episode"]: row["normalised_instruction"] for row in rows if row["severity"] == 0}
for row in (row for row in rows if row["severity"] and row["status"] == "scored"):
    undone = row["normalised_instruction"] == clean[row["episode"]]
    rewritten_to.setdefault(row["expectation"], []).append(undone)
print({name: f"{sum(undone)} of {len(undone)} rewritten as the clean one" for name, undone in rewritten_to.items()})
report = report_ensembles(run)
assert report is not None
for point in report.points:
    print(point)
for correlation in report.correlations:
    print(correlation)
print({name: int(part.sum() / len(trials.codes("model")[1])) for name, (_, part) in PARTS.items()})
