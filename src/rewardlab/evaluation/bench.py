"""The RoboRewardBench protocol: errors per subset (bench.json), copies among the videos (duplicates.json), the
preferences between two clips (preferences.json), and why rollouts failed (causes.json)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rewardlab.core.errors import DataError, PlanError, StopRun
from rewardlab.core.records import (
    TRIALS_DIGEST,
    meaning,
    none_if_nan,
    record_from_json,
    record_to_json,
    without_checksums,
)
from rewardlab.core.run import Run
from rewardlab.core.storage import locked
from rewardlab.core.trial import CLEAN, FAILURE_ANSWERS
from rewardlab.core.trial_table import TrialTable, trials_digest
from rewardlab.data import choose_split, open_dataset
from rewardlab.data.duplicates import episodes_to_leave_out, find_duplicates
from rewardlab.data.sources import IF_DEMONSTRATIONS
from rewardlab.data.video import map_threads
from rewardlab.evaluation.preferences import (
    PREFERENCES,
    BenchmarkPreferences,
    PairAnswers,
    compare_clips,
    draw_level_pairs,
    measure_preferences,
)
from rewardlab.evaluation.roborewardbench import SUBSETS, HelmReadings, helm_readings
from rewardlab.evaluation.summary import DRAWS
from rewardlab.metrics.accuracy import macro_mae, micro_mae
from rewardlab.metrics.clustered_bootstrap import Draws, draw_clusters
from rewardlab.metrics.contract import answered, eligible
from rewardlab.metrics.estimates import MetricEstimate, clusters_of, measure, measure_conditions, with_clusters
from rewardlab.metrics.failure_causes import (
    CauseAnswers,
    cause_accuracy,
    cause_answers,
    cause_confusion,
    cause_frame_error,
    cause_macro_f1,
    says_causes,
)
from rewardlab.metrics.rank_correlation import PreferredPair, preferred_pairs

if TYPE_CHECKING:
    from rewardlab.evaluation.plan import Plan

# The number that HELM reads in a text; whole levels of a model without text; the most probable of its levels; and, with
# no HELM score: levels that are expectations without probabilities; texts in another format.
HelmLevels = Literal["text", "level", "mode", "expectation", "other format"]
BENCH_SCHEMA = 3  # of bench.json


@dataclass(frozen=True)
class ErrorEstimate:
    """A mean absolute error in levels with its interval and its coverage."""

    value: float | None = meaning("the error; null where nothing was scored")
    low: float | None = meaning("lower end of the 95 % interval; null where it is undefined")
    high: float | None = meaning("upper end of the 95 % interval; null where it is undefined")
    scored: int = meaning("scored episodes, from which the value is computed")
    asked: int = meaning("episodes for which it is defined")


@dataclass(frozen=True)
class ProtocolErrors:
    """The errors of a model under one protocol of reading its answers."""

    macro: ErrorEstimate = meaning("mean over subsets, the headline of RoboRewardBench")
    micro: ErrorEstimate = meaning("mean over episodes")
    subsets: dict[str, ErrorEstimate] = meaning("mean over the episodes of each subset")
    embodiments: dict[str, ErrorEstimate] = meaning("mean over the subsets of each embodiment, where it is stated")
    perspectives: dict[str, ErrorEstimate] = meaning("mean over the subsets of each perspective, where it is stated")


@dataclass(frozen=True)
class AnswerCounts:
    """What became of the episodes that a model was asked about."""

    asked: int = meaning("episodes with a true level")
    scored: int = meaning("episodes with a level as rewardlab reads it")
    texts: int = meaning("answers that are a text")
    unread: int = meaning("texts in which rewardlab reads no level")
    unread_by_helm: int = meaning("texts in which HELM reads no number")
    missing: int = meaning("episodes without an answer, or of which the model said that it cannot tell")


@dataclass(frozen=True)
class ModelErrors:
    """One model of the benchmark."""

    counts: AnswerCounts = meaning("what became of its answers")
    strict: ProtocolErrors = meaning("as rewardlab reads them; an unreadable answer lowers the coverage")
    helm: ProtocolErrors | None = meaning("as HELM reads them; null where it can read none")
    helm_levels: HelmLevels = meaning("where the whole levels of HELM's scoring come from, or why it has none")


@dataclass(frozen=True)
class BenchmarkDraws:
    """How the intervals were made."""

    draws: int = meaning("bootstrap draws for every interval")
    seed: int = meaning("seed of the draws")
    clusters: int = meaning("clusters: episodes that share a task or a video")


@dataclass(frozen=True)
class BenchmarkErrors:
    """Every error of a benchmark run; `bench.json` holds it."""

    schema: int = meaning(f"version of this layout, {BENCH_SCHEMA}")
    data: str = meaning("the dataset")
    frames: str = meaning("which frames the models were shown")
    subsets: tuple[str, ...] = meaning("the subsets of the dataset")
    missing_subsets: tuple[str, ...] = meaning("subsets of RoboRewardBench that the dataset does not have")
    models: dict[str, ModelErrors] = meaning("the errors by model")
    bootstrap: BenchmarkDraws = meaning("how the intervals were made")

    def to_json(self) -> dict[str, Any]:
        """Return what bench.json holds."""
        content: dict[str, Any] = record_to_json(self)
        return content

    @staticmethod
    def from_json(content: object) -> "BenchmarkErrors":
        """Return the errors that JSON content holds; a ValueError says what does not fit."""
        if not isinstance(content, Mapping) or content.get("schema") != BENCH_SCHEMA:
            raise ValueError(f"it has no `schema: {BENCH_SCHEMA}`")
        return record_from_json(BenchmarkErrors, without_checksums(content))


@dataclass(frozen=True)
class CauseErrors:
    """How well a model tells why rollouts failed; `none` is the cause of those that did not fail."""

    accuracy: ErrorEstimate = meaning("share of the answers that name the true cause")
    macro_f1: ErrorEstimate = meaning("mean over the causes that occur of the F1 score of each")
    frame_error: ErrorEstimate = meaning("mean distance from the true frame, as a fraction of the clip")
    confusion: dict[str, dict[str, int]] = meaning("by true cause, how often each is said; `unread` is no answer")


@dataclass(frozen=True)
class BenchmarkCauses:
    """What `causes.json` holds: the models that were asked for causes, and what sees nothing."""

    models: dict[str, CauseErrors] = meaning("the errors by model")
    constant: CauseErrors = meaning("those of whoever always says the most common cause at the median frame")


BENCH, COPIES, CAUSES = "bench.json", "duplicates.json", "causes.json"


def run_benchmark(plan: "Plan", *, duplicates: bool, against: str | None, preferences: int = 0) -> Run:
    """Score the clean episodes, then write the errors, the videos there twice, and the preferences between clips.

    Where the data states causes of failures and a model was asked for them, their errors are written too.
    """
    from rewardlab.evaluation.evaluate import evaluate, load_episodes, scoring_context, stopped

    training = None if against is None else open_dataset(choose_split(against, "train")).episodes
    episodes = load_episodes(replace(plan, stages=False)).episodes
    pairs = preferred_pairs(episodes)  # before anything is scored: a contradiction stops the run
    people = pairs[: max(preferences, 0)]
    level_pairs = draw_level_pairs(episodes, preferences - len(people), plan.seed, _names(people))
    if preferences < 0 or (preferences and not (people or level_pairs)):
        where = plan.data if plan.limit is None else f"{plan.data} with --limit {plan.limit}"
        what = "has no two clips of one instruction with different levels, and no column `preference`"
        more = "" if plan.limit is None else "; use a larger --limit"
        raise PlanError(
            f"preferences must be 0 or more, got {preferences}" if preferences < 0 else f"{where} {what}{more}"
        )
    run = evaluate(plan)
    answers: dict[str, PairAnswers] = {}
    if preferences:
        try:
            with locked(run.folder):  # another process would ask the same pairs, and replace these answers
                answers = compare_clips(run, plan, scoring_context(plan, episodes), people, level_pairs)
        except (KeyboardInterrupt, StopRun) as stop:
            raise stopped(
                stop, f"every trial is scored in {run.place}, but not every pair is compared: {stop}"
            ) from None
    wordless = [m.name for m in plan.every_model if m.members]  # a composite's level is not what a member wrote
    of_trials = {TRIALS_DIGEST: trials_digest(run.trials())}
    run.save(BENCH, benchmark_errors(run, wordless).to_json() | of_trials)
    if pairs or level_pairs:
        run.save(PREFERENCES, record_to_json(benchmark_preferences(run, pairs, level_pairs, answers)) | of_trials)
    causes = benchmark_causes(run)
    if causes is not None:
        run.save(CAUSES, record_to_json(causes) | of_trials)
    if duplicates or training is not None:
        look = partial(map_threads, workers=plan.execution.workers)
        found = find_duplicates(episodes, training, run.folder, look)
        without = errors_without(run, wordless, episodes_to_leave_out(found["copies"]))
        run.save(COPIES, found | {"mae": without} | of_trials)
    return run


def _names(pairs: Sequence[PreferredPair]) -> list[frozenset[str]]:
    return [frozenset((pair.a, pair.b)) for pair in pairs]


def benchmark_errors(run: Run, without_text: Collection[str]) -> BenchmarkErrors:
    """Return every model's errors under HELM's reading and under ours, with intervals, coverage and unread answers."""
    strict = with_clusters(_clean(run))
    if not eligible(strict, "level").any():
        raise DataError(f"no episode has a reward from 1 to 5, so there is no error to measure; {IF_DEMONSTRATIONS}")
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


def benchmark_preferences(
    run: Run,
    pairs: tuple[PreferredPair, ...],
    level_pairs: tuple[PreferredPair, ...] = (),
    answers: dict[str, PairAnswers] | None = None,
) -> BenchmarkPreferences:
    """Return how every model orders pairs of clips: those that people compared, and those of known levels."""
    trials = with_clusters(_clean(run))
    draws = draw_clusters(int(clusters_of(trials).max()) + 1, DRAWS, seed=0)
    return measure_preferences(trials, draws, pairs, level_pairs, answers or {})


def benchmark_causes(run: Run) -> BenchmarkCauses | None:
    """Return how well models tell why rollouts failed; None where no cause is known, or no model was asked for it."""
    trials = with_clusters(_clean(run))
    if (trials.codes("truth_failure_cause")[0] < 0).all():
        return None
    draws = draw_clusters(int(clusters_of(trials).max()) + 1, DRAWS, seed=0)
    by_model = {model: trials.where(trials.matches("model", model)) for model in trials.codes("model")[1]}
    answers = {model: cause_answers(mine) for model, mine in by_model.items() if says_causes(mine)}
    if not answers:
        return None
    models = {model: _cause_errors(given, draws) for model, given in answers.items()}
    return BenchmarkCauses(models, _cause_errors(next(iter(answers.values())).constant(), draws))


def _cause_errors(answers: CauseAnswers, draws: Draws) -> CauseErrors:
    columns, counts = (*FAILURE_ANSWERS, "unread"), cause_confusion(answers).tolist()
    confusion = {
        true: dict(zip(columns, row, strict=True))
        for true, row in zip(FAILURE_ANSWERS, counts, strict=True)
        if any(row)
    }
    return CauseErrors(
        accuracy=_estimate(cause_accuracy(answers, draws)),
        macro_f1=_estimate(cause_macro_f1(answers, draws)),
        frame_error=_estimate(cause_frame_error(answers, draws)),
        confusion=confusion,
    )


def _clean(run: Run) -> TrialTable:
    """Return the trials of the protocol as a table of their own: those of `--grounding` move no interval."""
    trials = run.trials()
    return TrialTable(trials.where(trials.matches("perturbation", CLEAN)).arrow)


def errors_without(run: Run, without_text: Collection[str], copies: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return, per model and way of reading, the mean error over subsets with and without these episodes."""
    strict = _clean(run)
    tables = {"strict": strict, "helm": helm_readings(strict, without_text).trials}
    found: dict[str, dict[str, Any]] = {}
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
    levels: HelmLevels = "text" if counts.texts else "level"
    if counts.scored > 0 and 0 < counts.texts == counts.unread_by_helm:  # such as percentages per frame
        levels = "other format"
    elif (mine & readings.fractional).any():  # an expectation is no prediction of the benchmark
        levels = "expectation"
    elif (mine & readings.mode).any():
        levels = "mode"
    incompatible = levels in ("expectation", "other format")
    helm = None if incompatible else protocol_errors(readings.trials.where(mine), draws)
    return ModelErrors(counts, protocol_errors(strict.where(mine), draws), helm, levels)


def protocol_errors(trials: TrialTable, draws: Draws) -> ProtocolErrors:
    """Return macro and micro error and that of each subset, embodiment and perspective.

    The trials are those of one model under one reading.
    """
    used = trials.where(answered(trials, "level"))
    subset, names = used.codes("subset")
    means = measure_conditions(micro_mae, used, subset, len(names), draws)
    assert means is not None
    asked = np.bincount(trials.codes("subset")[0][eligible(trials, "level")], minlength=len(names))
    columns = (means.value, means.low, means.high, means.trials.astype(np.int64), asked)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return ProtocolErrors(
        macro=_estimate(measure(macro_mae, trials, draws)),
        micro=_estimate(measure(micro_mae, trials, draws)),
        subsets={name: _estimate(MetricEstimate(*row)) for name, row in zip(names, rows, strict=True)},
        embodiments=_macro_by(trials, "embodiment", draws),
        perspectives=_macro_by(trials, "perspective", draws),
    )


def _macro_by(trials: TrialTable, column: str, draws: Draws) -> dict[str, ErrorEstimate]:
    """Return the mean error over subsets of the trials of each value of a column; trials without one are left out."""
    codes, names = trials.codes(column)
    groups = {names[code]: trials.where(codes == code) for code in np.unique(codes[codes >= 0])}
    return {name: _estimate(measure(macro_mae, groups[name], draws)) for name in sorted(groups)}


def _estimate(measured: MetricEstimate) -> ErrorEstimate:
    value, low, high = (none_if_nan(x) for x in (measured.value, measured.low, measured.high))
    return ErrorEstimate(value, low, high, measured.scored, measured.asked)
