"""From trials to summary.json; refuse a file that the trials do not give (stored results check)."""

import math
from typing import Any

import numpy as np

from rewardlab.core import __version__
from rewardlab.core.errors import RunError
from rewardlab.core.records import TRIALS_DIGEST
from rewardlab.core.run import REBUILD, SUMMARY, Run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.summary import SCHEMA, Bootstrap, Caveat, OutcomeCounts, Summary
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable, trials_digest
from rewardlab.evaluation.findings import (
    calibration_errors,
    calibration_nulls,
    certifiable_categories,
    control_checks,
    corruption_robustness,
    drops,
    model_noise,
    rank_stabilities,
    severity_thresholds,
    task_familiarity,
    worst_perturbations,
)
from rewardlab.evaluation.measurements import measurements, paired_reference
from rewardlab.metrics.clustered_bootstrap import FEW_CLUSTERS, draw_clusters
from rewardlab.metrics.estimates import clusters_of, with_clean_answers, with_clusters
from rewardlab.metrics.noise_floor import repeat_variance, split_repeats
from rewardlab.models.vlm import UNREADABLE


def refuse_other_results(run: Run, name: str, stored: object, computed: object) -> None:
    """Raise a RunError where this version stored something else than it computes; another one may compute otherwise."""
    if run.record.version == __version__ and not _same(stored, computed):
        raise RunError(
            f"{run.folder / name} does not match the trials: it was edited or belongs to another run; {REBUILD}"
        )


def _same(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):  # another processor adds up in another order
        return math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(stored, dict) and isinstance(computed, dict):
        return stored.keys() == computed.keys() and all(_same(stored[key], computed[key]) for key in stored)
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(_same, stored, computed))
    return bool(stored == computed)


DRAWS = 2_000
TEST_DRAWS = 10_000  # for p-values: few draws put a floor under them that a correction lifts above every limit

_LAST: dict[tuple[object, ...], Summary] = {}  # by everything that it is computed from: `stress` reports what it saved


def summarise(run: Run, draws: int = DRAWS, seed: int = 0) -> Summary:
    """Return everything that the trials of a run say, with intervals from so many bootstrap draws."""
    return _computed(run.trials(METRIC_COLUMNS, repeats=True), run.record, draws, seed)


def _computed(table: TrialTable, record: RunRecord, draws: int = DRAWS, seed: int = 0) -> Summary:
    table, repeats = split_repeats(table) if record.plan.repeats > 1 else (table, None)
    trials = with_clusters(with_clean_answers(table))
    again = None if repeats is None else repeat_variance(trials, repeats, record.plan.repeated)
    clusters = int(clusters_of(trials).max(initial=-1)) + 1
    drawn, test_draws = draw_clusters(clusters, draws, seed), draw_clusters(clusters, max(draws, TEST_DRAWS), seed)
    evaluated, accuracy_threshold = record.evaluated, record.plan.accuracy_threshold
    measured = tuple(measurements(trials, drawn))
    return Summary(
        schema=SCHEMA,
        evaluated=evaluated,
        caveats=tuple(Caveat(model, text) for model, text in record.caveats.items()),
        familiarity=task_familiarity(trials, drawn, record.trained_tasks),
        accuracy_threshold=accuracy_threshold,
        measurements=measured,
        paired_references=paired_reference(trials, again),
        thresholds=severity_thresholds(trials, drawn, accuracy_threshold),
        certifiable=certifiable_categories(trials, accuracy_threshold),
        controls=control_checks(trials, test_draws, evaluated, again),
        drops=drops(trials, test_draws, evaluated, again),
        worst=worst_perturbations(trials, measured, evaluated),
        calibration=calibration_errors(trials, seed),
        calibration_nulls=calibration_nulls(trials, seed),
        robustness=corruption_robustness(measured),
        rank_stability=rank_stabilities(measured),
        noise=model_noise(trials, drawn, again, record.plan.repeats, record.plan.repeated),
        counts=_counts(trials),
        bootstrap=Bootstrap(
            draws=drawn.number,
            seed=drawn.seed,
            clusters=drawn.clusters,
            episodes=len(trials.codes("episode")[1]),
            few_clusters=drawn.clusters < FEW_CLUSTERS,
            method="clusters are all trials that share a task or a video; expanded percentiles (Hesterberg 2015), "
            "Wilson with the effective number of trials for rates; what was drawn for an episode goes with it",
        ),
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
        refuse_other_results(run, SUMMARY, stored.to_json(), made.to_json())
    return made


def _summary_and_digest(run: Run) -> tuple[Summary, str]:
    """Return the summary and the digest of the trials behind it; what this process computed last is not made again."""
    record = run.record
    if record.kind == "attack":  # what it asked depends on the answers, so that its means say nothing of a category
        raise RunError(f"{run.folder} is an attack: its result is attack.json beside the clips; report a stress test")
    trials = run.trials(repeats=True)
    digest = trials_digest(trials)
    said = (tuple(record.caveats.items()), tuple(record.trained_tasks.items()))
    inputs = (digest, record.evaluated, *said, record.plan.accuracy_threshold)
    if inputs not in _LAST:
        made = _computed(trials.select(METRIC_COLUMNS), record)
        _LAST.clear()
        _LAST[inputs] = made
    return _LAST[inputs], digest


def _counts(trials: TrialTable) -> tuple[OutcomeCounts, ...]:
    """Return the trials of each model by outcome; an unreadable answer is one of the failed."""
    reason, reasons = trials.codes("reason")
    unreadable = np.isin(reason, [code for code, text in enumerate(reasons) if text.startswith(UNREADABLE)])
    outcomes = [*(trials.matches("status", name) for name in ("scored", "failed", "dropped")), unreadable]
    outcomes.append(trials.matches("status", "failed") & (trials.number("abstained") == 1))
    return tuple(
        OutcomeCounts(model, *(int((trials.matches("model", model) & outcome).sum()) for outcome in outcomes))
        for model in trials.codes("model")[1]
    )
