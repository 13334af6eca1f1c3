"""From a run's trials to its summary: measurements with intervals, severity thresholds, and what may be claimed."""

from typing import Any

import numpy as np

from rewardlab.analysis.findings import (
    calibration_errors,
    control_checks,
    corruption_robustness,
    drops,
    rank_stabilities,
    severity_thresholds,
    worst_perturbations,
)
from rewardlab.analysis.measurements import measurements
from rewardlab.core.run import SUMMARY, Run
from rewardlab.core.summary import SCHEMA, Bootstrap, Caveat, OutcomeCounts, Summary
from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS, Draws, draw_clusters
from rewardlab.metrics.derived_columns import with_clean_answers, with_clusters
from rewardlab.metrics.metric_estimates import clusters_of
from rewardlab.models.protocols.answer_parsers import UNREADABLE

DRAWS = 2_000
TEST_DRAWS = 10_000  # for p-values: few draws put a floor under them that a correction lifts above every limit


def summarise(run: Run, draws: int = DRAWS, seed: int = 0) -> Summary:
    """Return everything that the trials of a run say, with intervals from so many bootstrap draws."""
    trials = with_clusters(with_clean_answers(run.trials()))
    clusters = int(clusters_of(trials).max(initial=-1)) + 1
    drawn, test_draws = draw_clusters(clusters, draws, seed), draw_clusters(clusters, max(draws, TEST_DRAWS), seed)
    record: Any = run.record
    reliable_at = float(record["plan"]["reliable_at"])
    judged = tuple(str(name) for name in record["judged"])
    measured = tuple(measurements(trials, drawn))
    return Summary(
        schema=SCHEMA,
        judged=judged,
        caveats=tuple(Caveat(model, text) for model, text in record.get("caveats", {}).items()),
        reliable_at=reliable_at,
        measurements=measured,
        thresholds=severity_thresholds(trials, drawn, reliable_at),
        controls=control_checks(trials, test_draws, judged),
        drops=drops(trials, test_draws, judged),
        worst=worst_perturbations(trials, measured, judged),
        calibration=calibration_errors(trials, seed),
        robustness=corruption_robustness(measured),
        rank_stability=rank_stabilities(measured),
        counts=_counts(trials),
        bootstrap=_bootstrap(trials, drawn),
    )


def save_summary(run: Run) -> None:
    """Write the summary of a run beside its trials."""
    run.save(SUMMARY, summarise(run).to_json())


def load_summary(run: Run) -> Summary:
    """Read the summary of a run, computing it where the run was stopped or is of an older version."""
    return run.stored_summary() or summarise(run)


def _bootstrap(trials: TrialTable, draws: Draws) -> Bootstrap:
    return Bootstrap(
        draws=draws.number,
        seed=draws.seed,
        clusters=draws.clusters,
        episodes=len(trials.codes("episode")[1]),
        few_clusters=draws.clusters < FEW_CLUSTERS,
        method="clusters are all trials that share a task or a video; expanded percentiles (Hesterberg 2015), "
        "Wilson with the effective number of trials for rates",
    )


def _counts(trials: TrialTable) -> tuple[OutcomeCounts, ...]:
    """Return the cells of each model by outcome; an unreadable answer is one of the failed."""
    models, status = trials.text("model"), trials.text("status")
    unreadable = np.array([str(reason).startswith(UNREADABLE) for reason in trials.text("reason")], dtype=bool)
    outcomes = [*(status == name for name in ("scored", "failed", "dropped")), unreadable]
    return tuple(
        OutcomeCounts(str(model), *(int(((models == model) & outcome).sum()) for outcome in outcomes))
        for model in dict.fromkeys(models)
    )
