"""From trials to a summary: rows with intervals, how far a model may be trusted, and what may be claimed."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.analysis.findings import calibration, control_checks, drops, rank_kept, robustness, thresholds, worst
from rewardlab.analysis.measurements import Row as Row
from rewardlab.analysis.measurements import measured_rows
from rewardlab.core.run import Run
from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS, Draws, draw_clusters
from rewardlab.metrics.contract import Metric
from rewardlab.metrics.derived_columns import with_clean_answers, with_clusters
from rewardlab.metrics.eligibility import asked_for
from rewardlab.metrics.intervals import clusters_of
from rewardlab.models.protocols.answer_parsers import UNREADABLE

DRAWS = 2_000
TEST_DRAWS = 10_000  # for p-values: few draws put a floor under them that a correction lifts above every limit


def summarise(run: Run, draws: int = DRAWS, seed: int = 0) -> dict[str, object]:
    """Return the summary of a run as plain data: rows with intervals, reliability, verdicts, calibration and counts."""
    trials = with_clusters(with_clean_answers(run.trials()))
    clusters = int(clusters_of(trials).max(initial=-1)) + 1
    drawn, many = draw_clusters(clusters, draws, seed), draw_clusters(clusters, max(draws, TEST_DRAWS), seed)
    record: Any = run.record
    least = float(record["plan"]["reliable_at"]) if isinstance(record.get("plan"), dict) else math.nan
    judged = [str(name) for name in record.get("judged", [])]
    rows = list(measured_rows(trials, drawn))
    return {
        "rows": [vars(row) for row in rows],
        "reliable_at": least,
        **thresholds(trials, drawn, least),
        "controls": control_checks(trials, many, judged),
        "drops": drops(trials, many, judged),
        "worst": worst(trials, rows, judged),
        "calibration": calibration(trials, seed),
        "robustness": robustness(rows),
        "rank_kept": rank_kept(rows),
        "bootstrap": _bootstrap(trials, drawn),
        "counts": _counts(trials),
    }


def usable_for(cells: TrialTable, metric: Metric) -> NDArray[np.bool_]:
    """Tell which trials a metric is about: defined cells whose truth, or clean score, is known."""
    return asked_for(cells, metric.needs)


def _bootstrap(trials: TrialTable, draws: Draws) -> dict[str, object]:
    return {
        "draws": draws.number,
        "seed": draws.seed,
        "clusters": draws.clusters,
        "episodes": len(trials.codes("episode")[1]),
        "few_clusters": draws.clusters < FEW_CLUSTERS,
        "method": "clusters are all trials that share a task or a video; expanded percentiles (Hesterberg 2015), "
        "Wilson with the effective number of trials for rates",
    }


def _counts(trials: TrialTable) -> dict[str, dict[str, int]]:
    """Return the cells of each model by outcome; an unreadable answer is one of the failed."""
    models, status = trials.text("model"), trials.text("status")
    unreadable = np.array([str(reason).startswith(UNREADABLE) for reason in trials.text("reason")], dtype=bool)
    outcomes = {name: status == name for name in ("scored", "failed", "dropped")} | {"unreadable": unreadable}
    return {
        str(model): {name: int(((models == model) & found).sum()) for name, found in outcomes.items()}
        for model in dict.fromkeys(models)
    }
