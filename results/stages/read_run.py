"""The stage metrics of a run with 95 % intervals: all episodes, those of two steps, those of three.

The last lines are the first model less each other one in accuracy and AUC of stages, on the same stages.

python results/stages/read_run.py RUN
"""

import sys

import numpy as np

from rewardlab.core.run import open_run
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.evaluation.display import names_of_run
from rewardlab.metrics import METRICS, metrics_shown
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.contract import Metric, answered
from rewardlab.metrics.estimates import clusters_of, measure, with_clean_answers, with_clusters
from rewardlab.metrics.paired_differences import paired_metric


def main(folder: str) -> None:
    run = open_run(folder)
    trials = with_clusters(with_clean_answers(run.trials(METRIC_COLUMNS)))
    draws = draw_clusters(int(clusters_of(trials).max()) + 1, 2_000, seed=0)
    metrics = metrics_shown(lambda display: display.stages)
    models = trials.codes("model")[1]
    names = names_of_run(run.record, models)
    episodes = trials.text("episode").astype(str)
    for steps in ("", "two-steps", "three-steps"):
        part = trials.where(np.array([steps in name for name in episodes]))
        print(f"\n{steps or 'all'}: {len({name.partition('#')[0] for name in part.text('episode')})} episodes")
        print("| |", " | ".join(metric.name for metric in metrics), "|")
        print("|---|" + "---|" * len(metrics))
        for model in models:
            found = [measure(metric, part.where(part.matches("model", model)), draws) for metric in metrics]
            cells = [f"{f.value:.2f} [{f.low:.2f}, {f.high:.2f}] ({f.scored})" for f in found]
            print(f"| {names[model]} |", " | ".join(cells), "|")
    first, *others = run.record.evaluated
    for metric in (METRICS["stage_success_accuracy"], METRICS["stage_success_auc"]):
        own = ordered(trials, first, metric)
        for other in others:
            gain = paired_metric(metric, own, ordered(trials, other, metric), draws)
            shown = f"{gain.difference:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
            print(f"{metric.name}: {names[first]} less {names[other]} {shown}")


def ordered(trials: TrialTable, model: str, metric: Metric) -> TrialTable:
    """Return the trials of a model that a metric reads, in the order of the stages."""
    own = trials.where(trials.matches("model", model) & answered(trials, metric.eligibility))
    keys = list(zip(own.text("episode"), own.text("perturbation"), own.number("severity"), strict=True))
    return own.take(np.array(sorted(range(len(keys)), key=keys.__getitem__)))


if __name__ == "__main__":
    main(sys.argv[1])
