"""From a run's trials to its summary: measurements with intervals, severity thresholds, and what may be claimed."""

import numpy as np

from rewardlab.analysis.findings import (
    calibration_errors,
    calibration_nulls,
    certifiable_categories,
    control_checks,
    corruption_robustness,
    drops,
    rank_stabilities,
    severity_thresholds,
    worst_perturbations,
)
from rewardlab.analysis.measurements import measurements
from rewardlab.analysis.same_cells import same_cells
from rewardlab.analysis.stored_numbers import refuse_other_numbers
from rewardlab.analysis.task_familiarity import task_familiarity
from rewardlab.core.errors import RunError
from rewardlab.core.run import SUMMARY, Run
from rewardlab.core.run_record import RunRecord
from rewardlab.core.sealed_json import TRIALS_DIGEST
from rewardlab.core.summary import SCHEMA, Bootstrap, Caveat, OutcomeCounts, Summary
from rewardlab.core.trial import WITHOUT_RAW, TrialTable
from rewardlab.core.trial_digest import trials_digest
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS, Draws, draw_clusters
from rewardlab.metrics.derived_columns import with_clean_answers, with_clusters
from rewardlab.metrics.metric_estimates import clusters_of
from rewardlab.models.protocols.answer_parsers import UNREADABLE

DRAWS = 2_000
TEST_DRAWS = 10_000  # for p-values: few draws put a floor under them that a correction lifts above every limit

_LAST: dict[tuple[object, ...], Summary] = {}  # by everything that it is computed from: `stress` reports what it saved


def summarise(run: Run, draws: int = DRAWS, seed: int = 0) -> Summary:
    """Return everything that the trials of a run say, with intervals from so many bootstrap draws."""
    return _computed(run.trials(WITHOUT_RAW), run.record, draws, seed)


def _computed(table: TrialTable, record: RunRecord, draws: int = DRAWS, seed: int = 0) -> Summary:
    trials = with_clusters(with_clean_answers(table))
    clusters = int(clusters_of(trials).max(initial=-1)) + 1
    drawn, test_draws = draw_clusters(clusters, draws, seed), draw_clusters(clusters, max(draws, TEST_DRAWS), seed)
    judged, reliable_at = record.judged, record.plan.reliable_at
    measured = tuple(measurements(trials, drawn))
    return Summary(
        schema=SCHEMA,
        judged=judged,
        caveats=tuple(Caveat(model, text) for model, text in record.caveats.items()),
        familiarity=task_familiarity(trials, drawn, record.trained_tasks),
        reliable_at=reliable_at,
        measurements=measured,
        same_cells=same_cells(trials),
        thresholds=severity_thresholds(trials, drawn, reliable_at),
        certifiable=certifiable_categories(trials, reliable_at),
        controls=control_checks(trials, test_draws, judged),
        drops=drops(trials, test_draws, judged),
        worst=worst_perturbations(trials, measured, judged),
        calibration=calibration_errors(trials, seed),
        calibration_nulls=calibration_nulls(trials, seed),
        robustness=corruption_robustness(measured),
        rank_stability=rank_stabilities(measured),
        counts=_counts(trials),
        bootstrap=_bootstrap(trials, drawn),
    )


def save_summary(run: Run) -> None:
    """Write the summary of a run beside its trials."""
    made, digest = _summary_and_digest(run)
    run.save(SUMMARY, made.to_json() | {TRIALS_DIGEST: digest})


def load_summary(run: Run) -> Summary:
    """Return the summary of a run, computed from its trials; a summary.json of these trials that differs is refused."""
    stored, stored_digest = run.stored_summary()
    made, digest = _summary_and_digest(run)
    if stored is not None and stored_digest == digest:
        refuse_other_numbers(run, SUMMARY, stored.to_json(), made.to_json())
    return made


def _summary_and_digest(run: Run) -> tuple[Summary, str]:
    """Return the summary and the digest of the trials behind it; what this process computed last is not made again."""
    record = run.record
    if record.kind == "attack":  # what it asked depends on the answers, so that its means say nothing of a category
        raise RunError(f"{run.folder} is an attack: its result is attack.json beside the clips; report a stress test")
    trials = run.trials()
    digest = trials_digest(trials)
    said = (tuple(record.caveats.items()), tuple(record.trained_tasks.items()))
    inputs = (digest, record.judged, *said, record.plan.reliable_at)
    if inputs not in _LAST:
        made = _computed(trials.select(WITHOUT_RAW), record)
        _LAST.clear()
        _LAST[inputs] = made
    return _LAST[inputs], digest


def _bootstrap(trials: TrialTable, draws: Draws) -> Bootstrap:
    return Bootstrap(
        draws=draws.number,
        seed=draws.seed,
        clusters=draws.clusters,
        episodes=len(trials.codes("episode")[1]),
        few_clusters=draws.clusters < FEW_CLUSTERS,
        method="clusters are all trials that share a task or a video; expanded percentiles (Hesterberg 2015), "
        "Wilson with the effective number of trials for rates; what was drawn for an episode goes with it",
    )


def _counts(trials: TrialTable) -> tuple[OutcomeCounts, ...]:
    """Return the cells of each model by outcome; an unreadable answer is one of the failed."""
    reason, reasons = trials.codes("reason")
    unreadable = np.isin(reason, [code for code, text in enumerate(reasons) if text.startswith(UNREADABLE)])
    outcomes = [*(trials.matches("status", name) for name in ("scored", "failed", "dropped")), unreadable]
    return tuple(
        OutcomeCounts(model, *(int((trials.matches("model", model) & outcome).sum()) for outcome in outcomes))
        for model in trials.codes("model")[1]
    )
