"""The RoboRewardBench protocol: clean episodes, the error per subset, and its mean over subsets."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rewardlab.analysis.benchmark_errors import (
    BENCH_SCHEMA,
    AnswerCounts,
    BenchmarkDraws,
    BenchmarkErrors,
    ErrorEstimate,
    HelmLevels,
    ModelErrors,
    ProtocolErrors,
)
from rewardlab.analysis.helm_answer_parsing import HelmReadings, helm_readings
from rewardlab.analysis.published_roborewardbench import SUBSETS
from rewardlab.analysis.run_summary import DRAWS
from rewardlab.core.command_settings import as_command, setting
from rewardlab.core.dataclass_json import none_if_nan
from rewardlab.core.errors import DataError
from rewardlab.core.run import Run
from rewardlab.core.sealed_json import TRIALS_DIGEST
from rewardlab.core.trial import TrialTable
from rewardlab.core.trial_digest import trials_digest
from rewardlab.data import choose_split, open_dataset
from rewardlab.data.duplicates import episodes_to_leave_out, find_duplicates
from rewardlab.metrics.clustered_bootstrap import Draws, draw_clusters
from rewardlab.metrics.derived_columns import with_clusters
from rewardlab.metrics.eligibility import Mask, answered, eligible
from rewardlab.metrics.error_and_accuracy import macro_mae, micro_mae
from rewardlab.metrics.metric_estimates import MetricEstimate, clusters_of, measure, measure_conditions
from rewardlab.models import name_model
from rewardlab.models.contract import NamedModel
from rewardlab.runner.scoring_settings import FRAMES_HELP, ScoringSettings
from rewardlab.runner.stress import StressPlan, clean_plan, load_episodes, run_stress
from rewardlab.runner.thread_map import map_threads

BENCH, COPIES = "bench.json", "duplicates.json"

Plain = dict[str, Any]


@dataclass(frozen=True)
class BenchPlan:
    """Score clean episodes by the RoboRewardBench protocol and tell the error per subset and over all."""

    models: tuple[str, ...] = setting("models to evaluate, e.g. clock or package.module:name", positional=True)
    data: str = setting(
        "a copy of teetone/RoboReward (or one of its splits), any dataset folder, a shipped name such as sample, "
        "or hub:teetone/RoboReward to fetch it",
        positional=True,
    )
    split: str = setting("the split to evaluate where DATA holds several", "test")
    frames: str = setting(FRAMES_HELP, "fps:1")
    controls: bool = setting("score the controls constant, random, clock and oracle too", True)
    duplicates: bool = setting("look for videos that are there twice, or nearly", True)
    against: str | None = setting("training set in which to look for the evaluated videos", None)
    scoring: ScoringSettings = ScoringSettings()

    def stress_plan(self) -> StressPlan:
        """Return the stress test without perturbations that scores these models on the split."""
        data = choose_split(self.data, self.split)
        return clean_plan(self.models, data, self.frames, self.scoring, controls=self.controls)


def run_benchmark(plan: BenchPlan, own: Sequence[NamedModel] = ()) -> Run:
    """Score the clean episodes, then write the errors (bench.json) and the videos there twice (duplicates.json)."""
    stress_plan = plan.stress_plan()
    training = None if plan.against is None else open_dataset(choose_split(plan.against, "train")).episodes
    given = {model.as_written: model for model in own}
    models = [given.get(name) or name_model(name) for name in stress_plan.all_models()]
    run = run_stress(stress_plan, models, kind="bench", command=as_command("bench", plan))
    wordless = [model.name for model in models if not model.speaks]
    of_trials = {TRIALS_DIGEST: trials_digest(run.trials())}
    run.save(BENCH, benchmark_errors(run, wordless).to_json() | of_trials)
    if plan.duplicates or training is not None:
        found = find_duplicates(
            load_episodes(stress_plan).episodes,
            training,
            run.folder,
            partial(map_threads, workers=plan.scoring.workers),
        )
        without = errors_without(run, wordless, episodes_to_leave_out(found["copies"]))
        run.save(COPIES, found | {"mae": without} | of_trials)
    return run


def benchmark_errors(run: Run, without_text: Collection[str]) -> BenchmarkErrors:
    """Return every model's errors under HELM's reading and under ours, with intervals, coverage and unread answers."""
    strict = with_clusters(run.trials())
    if not eligible(strict, "level").any():
        raise DataError("no episode has a reward from 1 to 5, so there is no error to measure")
    draws = draw_clusters(int(clusters_of(strict).max()) + 1, DRAWS, seed=0)
    readings = helm_readings(strict, without_text)
    subsets = sorted(set(strict.codes("subset")[1]))
    settings = run.record.settings
    return BenchmarkErrors(
        schema=BENCH_SCHEMA,
        data=settings.data,
        frames=settings.frames,
        subsets=tuple(subsets),
        missing_subsets=tuple(name for name in SUBSETS if name not in subsets),
        models={model: _model_errors(model, strict, readings, draws) for model in strict.codes("model")[1]},
        bootstrap=BenchmarkDraws(draws.number, draws.seed, draws.clusters),
    )


def errors_without(run: Run, without_text: Collection[str], copies: Collection[str]) -> dict[str, Plain]:
    """Return, per model and way of reading, the mean error over subsets with and without these episodes."""
    strict = run.trials()
    tables = {"strict": strict, "helm": helm_readings(strict, without_text).trials}
    found: dict[str, Plain] = {}
    for model in strict.codes("model")[1]:
        for way, trials in tables.items():
            mine = trials.where(trials.matches("model", model) & answered(trials, "level"))
            kept = mine.where(np.array([episode not in copies for episode in mine.text("episode")], dtype=bool))
            numbers = {"with": none_if_nan(macro_mae(mine)), "without": none_if_nan(macro_mae(kept))}
            found.setdefault(model, {})[way] = numbers
    return found


def _model_errors(model: str, strict: TrialTable, readings: HelmReadings, draws: Draws) -> ModelErrors:
    mine = strict.matches("model", model) & eligible(strict, "level")
    failed, text = strict.matches("status", "failed"), readings.text
    counts = AnswerCounts(
        asked=int(mine.sum()),
        scored=int((mine & answered(strict, "level")).sum()),
        texts=int((mine & text).sum()),
        unread=int((mine & failed & text).sum()),
        unread_by_helm=int((mine & text & ~readings.readable).sum()),
        missing=int((mine & failed & ~text).sum()),
    )
    levels = _helm_levels(counts, mine, readings)
    incompatible = levels in ("expectation", "other format")
    helm = None if incompatible else protocol_errors(readings.trials.where(mine), draws)
    return ModelErrors(counts, protocol_errors(strict.where(mine), draws), helm, levels)


def _helm_levels(counts: AnswerCounts, mine: Mask, readings: HelmReadings) -> HelmLevels:
    """Return what HELM's scoring takes of a model; an expectation is no prediction of the benchmark."""
    if counts.scored > 0 and 0 < counts.texts == counts.unread_by_helm:  # such as percentages per frame
        return "other format"
    if (mine & readings.fractional).any():
        return "expectation"
    if (mine & readings.mode).any():
        return "mode"
    return "text" if counts.texts else "level"


def protocol_errors(trials: TrialTable, draws: Draws) -> ProtocolErrors:
    """Return macro and micro error and that of each subset, of trials of one model under one reading."""
    used = trials.where(answered(trials, "level"))
    subset, names = used.codes("subset")
    means = measure_conditions(micro_mae, used, subset, len(names), draws)
    assert means is not None
    asked = np.bincount(trials.codes("subset")[0][eligible(trials, "level")], minlength=len(names))
    rows = zip(*(c.tolist() for c in (means.value, means.low, means.high, means.trials.astype(np.int64), asked)))
    return ProtocolErrors(
        macro=_estimate(measure(macro_mae, trials, draws)),
        micro=_estimate(measure(micro_mae, trials, draws)),
        subsets={name: _estimate(MetricEstimate(*row)) for name, row in zip(names, rows)},
    )


def _estimate(measured: MetricEstimate) -> ErrorEstimate:
    value, low, high = (none_if_nan(x) for x in (measured.value, measured.low, measured.high))
    return ErrorEstimate(value, low, high, measured.scored, measured.asked)
