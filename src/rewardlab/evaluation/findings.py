"""Certified severities, baselines beaten, drops, worst perturbations, calibration, unseen tasks, the verdict."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.records import none_if_nan
from rewardlab.core.summary import (
    AccuracyDrop,
    CalibrationErrors,
    CalibrationNull,
    CertifiableCategory,
    Conclusion,
    ControlCheck,
    CorruptionRobustness,
    Measurement,
    ModelNoise,
    RankStability,
    SeverityThreshold,
    Summary,
    TaskFamiliarity,
    WorstPerturbation,
)
from rewardlab.core.trial import CATEGORIES, CLEAN, SEVERITIES
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.display import format_number, listed
from rewardlab.evaluation.measurements import group_conditions
from rewardlab.metrics import METRICS
from rewardlab.metrics.accuracy import macro_mae, micro_mae, rounded, success_accuracy, success_auc_within_subset
from rewardlab.metrics.calibration import null_band, null_quantiles, reliability_diagram
from rewardlab.metrics.clustered_bootstrap import SHARE, Draws, Numbers, condition_sums
from rewardlab.metrics.contract import Mask, answered, eligible
from rewardlab.metrics.estimates import clusters_of
from rewardlab.metrics.noise_floor import RepeatVariance, even_weights, level_noise, subset_weights
from rewardlab.metrics.paired_differences import (
    Column,
    PairedDifference,
    condition_means,
    holm,
    minimum_detectable_change,
    paired_means,
    paired_metric,
)
from rewardlab.metrics.rank_correlation import rank_stability
from rewardlab.metrics.robustness import (
    certified_threshold,
    clusters_to_certify,
    mean_corruption_error,
    mean_rise,
    relative_corruption_error,
    robustness_auc,
)
from rewardlab.models import MODELS


@dataclass(frozen=True, eq=False)
class AlignedTrials:
    """One number per model and trial (episode x perturbation x severity), nan where the model has none."""

    values: dict[str, Numbers]
    cluster: NDArray[np.int64]
    clean: NDArray[np.bool_]


def align_models(trials: TrialTable, values: Numbers) -> AlignedTrials:
    """Put the number of each trial in the place of its episode, perturbation and severity, for each model."""
    (model_of, models), (episode, _) = trials.codes("model"), trials.codes("episode")
    perturbation, names = trials.codes("perturbation")
    severity = trials.number("severity").astype(np.int64)
    code = (episode * max(len(names), 1) + perturbation) * 8 + severity
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    table = np.full((len(models), len(first)), np.nan)
    table[model_of, place] = values
    by_model = {str(name): table[number] for number, name in enumerate(models)}
    return AlignedTrials(by_model, clusters_of(trials)[first], trials.matches("perturbation", CLEAN)[first])


REFERENCE = "constant"  # the model against which mCE is taken: knowing nothing
SIGNIFICANT = 0.05
_LEAST_CONTRAST = 0.5  # levels by which errors of two models rise apart
WORST = 5  # perturbations listed per evaluated model
_CALIBRATION_METRICS = ("ordinal_ece", "top_label_ece", "ranked_probability_score", "brier_score")


def severity_thresholds(trials: TrialTable, draws: Draws, accuracy_threshold: float) -> tuple[SeverityThreshold, ...]:
    """Return, per model and category, the last severity with success accuracy of at least `accuracy_threshold`.

    As measured, certified, and its fraction of draws. A severity that was not measured ends what can be claimed.
    """
    found = []
    values, cluster = success_accuracy.values_of(trials), clusters_of(trials)
    severity, clean = trials.number("severity").astype(np.int64), trials.matches("category", CLEAN)
    model_of, models = trials.codes("model")
    for number, model in enumerate(models):
        for name in CATEGORIES:
            changed = trials.matches("category", name)
            mine = (model_of == number) & (changed | clean)
            if not (changed & mine).any():
                continue
            sums = condition_sums(values[mine], cluster[mine], severity[mine], len(SEVERITIES), draws.clusters)
            reached = certified_threshold(*sums, draws, accuracy_threshold)
            shares = {str(last): share for last, share in reached.shares.items()}
            found.append(SeverityThreshold(model, name, reached.measured, reached.certified, shares))
    return tuple(found)


def certifiable_categories(trials: TrialTable, accuracy_threshold: float) -> tuple[CertifiableCategory, ...]:
    """Return, per category, whether its tasks suffice to certify a model without a mistake, and how many would.

    What counts is the lowest severity, and the clean episodes: where only higher ones are short, lower ones can be
    certified all the same.
    """
    labelled, needed = eligible(trials, success_accuracy.eligibility), clusters_to_certify(accuracy_threshold)
    category, severity = trials.text("category"), trials.number("severity")
    episode, cluster = trials.codes("episode")[0], clusters_of(trials)
    found = []
    for name in (name for name in CATEGORIES if (category == name).any()):
        lowest = severity[category == name].min()
        masks = [labelled & mask for mask in (category == CLEAN, (category == name) & (severity == lowest))]
        counted = [(len(np.unique(episode[mask])), len(np.unique(cluster[mask]))) for mask in masks]
        episodes, clusters = min(counted, key=lambda pair: pair[1])
        in_all = math.ceil(needed * episodes / clusters) if needed and clusters else None
        found.append(CertifiableCategory(name, episodes, clusters, needed, in_all))
    return tuple(found)


def control_checks(
    trials: TrialTable, draws: Draws, evaluated: Sequence[str], again: RepeatVariance | None = None
) -> tuple[ControlCheck, ...]:
    """Return, per evaluated model and control, whether its MAE is lower on the trials both scored: clean, and all.

    And whether its success AUC within source is higher, on clean episodes, where there are successes and failures.
    A gain that is no larger than what asking again can make supports nothing.
    """
    rows = align_models(trials, np.arange(len(trials), dtype=np.float64))

    def floor(model: str, control: str, where: str, metric: str) -> float:
        if again is None or metric != micro_mae.name:
            return math.nan
        both = ~np.isnan(aligned.values[model] + aligned.values[control]) & (aligned.clean | (where != "clean"))
        ours, theirs = (rows.values[name][both].astype(np.int64) for name in (model, control))
        return again.floor_between(metric, ours, theirs, even_weights(ours))

    aligned = align_models(trials, micro_mae.values_of(trials))
    kinds = {name: MODELS.get(name.partition(":")[0]) for name in aligned.values if name not in evaluated}
    controls = [name for name, kind in kinds.items() if kind is None or not kind.sees_truth]
    by_error: list[tuple[str, str, Literal["clean", "all trials"], str, PairedDifference]] = []
    by_auc = list(by_error)
    labelled = trials.where(
        trials.matches("perturbation", CLEAN) & answered(trials, success_auc_within_subset.eligibility)
    )
    for model in (name for name in evaluated if name in aligned.values):
        for control in controls:
            ours, theirs = aligned.values[model], aligned.values[control]
            clean = paired_means(
                np.where(aligned.clean, theirs, np.nan), ours, aligned.cluster, draws, micro_mae.bounds
            )
            by_error.append((model, control, "clean", micro_mae.name, clean))
            every = paired_means(theirs, ours, aligned.cluster, draws, micro_mae.bounds)
            by_error.append((model, control, "all trials", micro_mae.name, every))
            auc = _paired_auc(labelled, model, control, draws)
            if not math.isnan(auc.difference):
                by_auc.append((model, control, "clean", success_auc_within_subset.name, auc))
    corrected = [p for family in (by_error, by_auc) for p in holm([paired.p for *_, paired in family])]
    return tuple(
        ControlCheck(
            model=model,
            control=control,
            where=where,
            metric=metric,
            gain=none_if_nan(paired.difference),
            conclusion=_conclusion(paired.difference, p, noise := floor(model, control, where, metric)),
            noise_floor=none_if_nan(noise),
            **_test_fields(paired, p),
        )
        for (model, control, where, metric, paired), p in zip([*by_error, *by_auc], corrected, strict=True)
    )


def _paired_auc(clean: TrialTable, model: str, control: str, draws: Draws) -> PairedDifference:
    """Compare the success AUC of two models on the clean episodes that both scored."""
    of_model, of_control = (clean.where(clean.matches("model", name)) for name in (model, control))
    codes = of_model.codes("episode")[0], of_control.codes("episode")[0]
    _, ours, theirs = np.intersect1d(*codes, return_indices=True)
    return paired_metric(success_auc_within_subset, of_model.take(ours), of_control.take(theirs), draws)


def _conclusion(gain: float, p: float, noise: float) -> Conclusion:
    if math.isnan(p) or p >= SIGNIFICANT or abs(gain) <= noise:
        return "cannot tell"
    return "beats" if gain > 0 else "does not beat"


def _test_fields(paired: PairedDifference, p_holm: float) -> dict[str, Any]:
    """Return what the records of all paired tests state: the interval, the p-values and the counts."""
    numbers = {"low": paired.low, "high": paired.high, "p": paired.p, "p_holm": p_holm}
    counts = {"trials": paired.trials, "clusters": paired.clusters}
    return {name: none_if_nan(number) for name, number in numbers.items()} | counts


def drops(
    trials: TrialTable, draws: Draws, evaluated: Sequence[str], again: RepeatVariance | None = None
) -> tuple[AccuracyDrop, ...]:
    """Return, per evaluated model and category, the paired drop of success accuracy from clean to the highest severity.

    Only trials that keep the label count. Holm's family is all of them; each says which drop could have been seen.
    """
    truth = trials.number("truth_success")
    before = np.where((rounded(trials.number("clean_level")) == 5) == (truth == 1), 1.0, 0.0)
    before[np.isnan(trials.number("clean_level")) | ~trials.matches("expectation", "same")] = np.nan
    after, cluster = success_accuracy.values_of(trials), clusters_of(trials)
    severity = trials.number("severity")
    highest = severity.max(initial=0)
    usable = (severity == highest) & ~np.isnan(before + after)
    tests: list[tuple[str, str, int, float, PairedDifference]] = []
    for name in evaluated:
        for group in CATEGORIES:
            mask = trials.matches("model", name) & trials.matches("category", group) & usable
            if mask.any():
                episodes = len(np.unique(trials.codes("episode")[0][mask]))
                rows = np.flatnonzero(mask)
                noise = math.nan
                if again is not None:
                    noise = again.floor_from_clean(success_accuracy.name, rows, even_weights(rows))
                paired = paired_means(before[mask], after[mask], cluster[mask], draws, SHARE)
                tests.append((name, group, episodes, noise, paired))
    corrected = holm([paired.p for *_, paired in tests])
    return tuple(_drop(*test, p, int(highest)) for test, p in zip(tests, corrected, strict=True))


def _drop(
    model: str, category: str, episodes: int, noise: float, paired: PairedDifference, p: float, severity: int
) -> AccuracyDrop:
    # A model that never flipped could still flip on the next task: then the error is that of one task in all.
    error = paired.error if paired.error > 0 or paired.clusters < 2 else 1 / paired.clusters
    detectable = minimum_detectable_change(error, paired.clusters)
    note = f"with these {episodes} episodes in {paired.clusters} clusters "
    note += "no drop can be seen" if math.isnan(detectable) else f"a drop under {detectable:.2f} cannot be seen"
    return AccuracyDrop(
        model=model,
        category=category,
        severity=severity,
        metric=success_accuracy.name,
        clean=paired.a,
        changed=paired.b,
        drop=paired.difference,
        episodes=episodes,
        minimum_detectable_drop=none_if_nan(detectable),
        note=note,
        noise_floor=none_if_nan(noise),
        **_test_fields(paired, p),
    )


def model_noise(
    trials: TrialTable, draws: Draws, again: RepeatVariance | None, repeats: int, repeated: Sequence[str]
) -> tuple[ModelNoise, ...]:
    """Return how far the answers of each model move when the same is asked again; nothing where nothing was."""
    model_of, models = trials.codes("model")
    found = []
    for number, model in enumerate(models) if again is not None else ():
        assert again is not None
        rows = np.flatnonzero(model_of == number)
        deviation, changed = level_noise(again, trials, rows, draws)
        clean = {
            name: rows[trials.matches("perturbation", CLEAN)[rows] & ~np.isnan(METRICS[name].values_of(trials)[rows])]
            for name in (success_accuracy.name, micro_mae.name)
        }
        right, off = clean[success_accuracy.name], clean[micro_mae.name]
        accuracy = again.floor_between(success_accuracy.name, right, right, even_weights(right))
        error = again.floor_between(micro_mae.name, off, off, subset_weights(trials, off))
        found.append(
            ModelNoise(
                model=model,
                askings=repeats if model in repeated else 1,
                deterministic=model not in repeated,
                level_deviation=none_if_nan(deviation),
                changed=none_if_nan(changed.value),
                low=none_if_nan(changed.low) if model in repeated else None,  # nothing was drawn
                high=none_if_nan(changed.high) if model in repeated else None,
                scored=changed.scored,
                asked=changed.asked,
                success_accuracy=none_if_nan(accuracy),
                macro_mae=none_if_nan(error),
            )
        )
    return tuple(found)


def worst_perturbations(
    trials: TrialTable, measured: Sequence[Measurement], evaluated: Sequence[str]
) -> tuple[WorstPerturbation, ...]:
    """Return, per evaluated model, the perturbations that broke most expectations, at their highest severity."""
    category = dict(zip(trials.text("perturbation"), trials.text("category"), strict=True))
    values = {(entry.model, entry.group, entry.severity, entry.metric): entry.value for entry in measured}
    found = []
    for model in evaluated:
        mine = [e for e in measured if e.model == model and e.metric == "expectation_kept" and e.severity]
        kept: dict[str, Measurement] = {}
        for entry in (e for e in mine if e.group in category):
            kept[entry.group] = max(kept.get(entry.group, entry), entry, key=lambda e: e.severity)
        ranked = sorted((e for e in kept.values() if e.value is not None), key=lambda e: (e.value, e.group))
        for entry in ranked[:WORST]:
            assert entry.value is not None
            found.append(
                WorstPerturbation(
                    model=model,
                    perturbation=entry.group,
                    category=str(category[entry.group]),
                    severity=entry.severity,
                    expectation_kept=entry.value,
                    low=entry.low,
                    high=entry.high,
                    scored=entry.scored,
                    asked=entry.asked,
                    signed_shift=values.get((model, entry.group, entry.severity, "signed_shift")),
                    micro_mae=values.get((model, entry.group, entry.severity, "micro_mae")),
                    clean_micro_mae=values.get((model, entry.group, 0, "micro_mae")),
                )
            )
    return tuple(found)


def calibration_errors(trials: TrialTable, seed: int) -> tuple[CalibrationErrors, ...]:
    """Return, per model that gives probabilities, its calibration on clean and on perturbed trials, with the nulls."""
    usable = answered(trials, "probabilities")
    clean = trials.matches("perturbation", CLEAN)
    model_of, models = trials.codes("model")
    parts: tuple[tuple[Literal["clean", "perturbed"], Mask], ...] = (("clean", clean), ("perturbed", ~clean))
    found = []
    for number, model in enumerate(models):
        for part, mask in parts:
            used = trials.where(usable & mask & (model_of == number))
            if len(used):
                values = {name: none_if_nan(METRICS[name](used)) for name in _CALIBRATION_METRICS}
                nulls = null_quantiles(used, seed)
                values |= {f"{name}_null": none_if_nan(nulls[name]) for name in ("ordinal_ece", "top_label_ece")}
                diagram = tuple(reliability_diagram(used))
                found.append(CalibrationErrors(model=model, where=part, trials=len(used), diagram=diagram, **values))
    return tuple(found)


def calibration_nulls(trials: TrialTable, seed: int) -> tuple[CalibrationNull, ...]:
    """Return, per model with probabilities, category and severity, its calibration beside a calibrated model's."""
    conditions = group_conditions(trials, single=False)
    usable = answered(trials, "probabilities")
    found = []
    for place, (model, category, severity) in enumerate(conditions.names):
        used = trials.where(usable & (conditions.of_trial == place))
        bands = null_band(used, seed) if len(used) else {}
        for name, (low, high) in bands.items():
            ends = none_if_nan(METRICS[name](used)), none_if_nan(low), none_if_nan(high)
            found.append(CalibrationNull(model, category, severity, name, *ends, len(used)))
    return tuple(found)


def corruption_robustness(measured: Sequence[Measurement]) -> tuple[CorruptionRobustness, ...]:
    """Return, per model, mCE and relative mCE against the constant control, the mean rise of error, and the AUCs.

    The error is MAE / 4, per perturbation; the AUC is that of success accuracy, per category.
    """
    errors = _curves(measured, "micro_mae", 0.25)
    accuracy = _curves(measured, "success_accuracy", 1.0)
    reference = {c: curve for c, curve in errors.get(REFERENCE, {}).items() if c not in CATEGORIES}
    found = []
    for model, curves in errors.items():
        single = {c: curve for c, curve in curves.items() if c not in CATEGORIES}
        areas = [(c, curve) for c, curve in accuracy.get(model, {}).items() if c in CATEGORIES]
        found.append(
            CorruptionRobustness(
                model=model,
                reference=REFERENCE if reference else None,
                mce=none_if_nan(mean_corruption_error(single, reference)),
                relative_mce=none_if_nan(relative_corruption_error(single, reference)),
                mean_rise=none_if_nan(mean_rise(single)),
                auc={str(c): none_if_nan(robustness_auc(curve)) for c, curve in areas},
            )
        )
    return tuple(found)


def rank_stabilities(measured: Sequence[Measurement]) -> tuple[RankStability, ...]:
    """Return, per category, tau-b between the ranking of all models by MAE when clean and at the highest severity."""
    curves = _curves(measured, "micro_mae", 1.0)
    found = []
    for category in CATEGORIES:
        pairs = [models[category] for models in curves.values() if category in models]
        if len(pairs) > 2:
            tau_b = rank_stability([c[0] for c in pairs], [c[-1] for c in pairs])
            found.append(RankStability(category, none_if_nan(tau_b)))
    return tuple(found)


def _curves(measured: Sequence[Measurement], metric: str, scale: float) -> dict[str, dict[str, list[float]]]:
    """Return, per model and group, the values over the severities that were measured, clean first."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in sorted((r for r in measured if r.metric == metric and r.group != CLEAN), key=lambda r: r.severity):
        value = math.nan if row.value is None else row.value * scale
        found.setdefault(row.model, {}).setdefault(row.group, []).append(value)
    return {m: {g: c for g, c in groups.items() if len(c) > 1} for m, groups in found.items()}


# Seen and unseen apart: what a model makes of tasks that it was trained on, and of others, beside a constant.

KINDS: tuple[Literal["seen", "unseen"], ...] = ("seen", "unseen")


def task_familiarity(
    trials: TrialTable, draws: Draws, trained_tasks: Mapping[str, tuple[str, ...]]
) -> tuple[TaskFamiliarity, ...]:
    """Return the clean numbers of every model whose training tasks are known, where the data has both kinds or one."""
    clean = trials.where(trials.matches("category", CLEAN))
    known = {model: tasks for model, tasks in trained_tasks.items() if set(tasks) & set(clean.codes("task")[1])}
    return tuple(row for model, tasks in known.items() for row in _familiarity(clean, draws, model, tasks))


def seen_or_unseen(trials: TrialTable, trained: tuple[str, ...]) -> Column:
    """Return which of the trials are of tasks that a model was trained on, as a column of conditions."""
    task, names = trials.codes("task")
    return np.array([name not in trained for name in names], dtype=np.int64)[task], KINDS


def _familiarity(clean: TrialTable, draws: Draws, model: str, trained: tuple[str, ...]) -> Iterator[TaskFamiliarity]:
    columns = clean.codes("model"), seen_or_unseen(clean, trained)
    for metric in (micro_mae.name, success_accuracy.name):
        values, proportion = METRICS[metric].values_of(clean), METRICS[metric].proportion
        means = condition_means(values, clusters_of(clean), columns, draws, proportion=proportion)
        for kind in KINDS:
            if episodes := means.count({(model, kind): 1.0}):
                found, blind = (means.combined({(name, kind): 1.0}) for name in (model, REFERENCE))
                ends = none_if_nan(found.low), none_if_nan(found.high), none_if_nan(blind.value)
                yield TaskFamiliarity(model, kind, metric, none_if_nan(found.value), *ends, episodes)


@dataclass(frozen=True)
class Contrast:
    """The change under which two evaluated models differ most: one holds, the other breaks, on the same clips."""

    perturbation: str
    severity: int
    holds: str
    breaks: str
    errors: dict[str, tuple[float, float]]  # by model: mean error in levels, clean and changed
    episodes: int  # that both compare; each model only those that it answered clean and changed

    def is_about(self, entry: WorstPerturbation) -> bool:
        """Tell whether this is the change, and the model that breaks under it."""
        mine = (self.breaks, self.perturbation, self.severity)
        return mine == (entry.model, entry.perturbation, entry.severity)

    @property
    def sentence(self) -> str:
        """Return the four errors in words."""
        (own, changed), (others, broken) = self.errors[self.holds], self.errors[self.breaks]
        return (
            f"Under {self.perturbation} at severity {self.severity}, the error of {self.breaks} goes from "
            f"{others:.2f} to {broken:.2f} levels, that of {self.holds} from {own:.2f} to {changed:.2f} "
            f"({self.episodes} clips)."
        )


def contrast(summary: Summary) -> Contrast | None:
    """Return the perturbation whose highest severity parts two evaluated models most; None where none does.

    What counts is by how much the error rises over that on the same clips unchanged. It is a description, not a test.
    """
    severity, metric = summary.highest_severity, macro_mae.name
    found: list[tuple[float, Contrast]] = []
    for name in summary.perturbations if severity else ():
        errors, floors, clips = dict[str, tuple[float, float]](), dict[str, float](), dict[str, int]()
        for model in summary.evaluated:
            held = summary.paired_reference_of(model, name, severity, metric)
            if held.clean is not None and held.changed is not None:
                errors[model], clips[model] = (held.clean, held.changed), held.paired
                floors[model] = held.noise_floor or 0.0
        rises = {model: changed - clean for model, (clean, changed) in errors.items()}
        rises = {m: 0.0 if abs(rise) <= floors[m] else rise for m, rise in rises.items()}
        if len(rises) > 1:
            best, worst = min(rises, key=rises.__getitem__), max(rises, key=rises.__getitem__)
            shown, fewest = {m: errors[m] for m in (best, worst)}, min(clips[best], clips[worst])
            made = Contrast(name, severity, best, worst, shown, fewest)
            found.append((rises[worst] - max(rises[best], 0.0), made))
    gap, most = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return most if gap > _LEAST_CONTRAST else None


# The verdict: one sentence a model, by fixed rules, which claims no more than the tests and intervals above.

NAMED = 2  # models with a sentence of their own; the others are counted


def verdict(summary: Summary) -> tuple[str, ...]:
    """Return the verdict on the first two evaluated models, one line each, and how many models follow."""
    lines = [f"{model}: {model_verdict(summary, model)}" for model in summary.evaluated[:NAMED]]
    more = len(summary.evaluated) - NAMED
    return (*lines, *([f"And {more} more model{'s' * (more > 1)}."] if more > 0 else []))


def model_verdict(summary: Summary, model: str) -> str:
    """Return where a model holds, where it breaks, whether it beats the best control, and what not to use it for.

    It holds up to the certified severity, as far as a constant answer fails there. It breaks at the first severity
    whose 95 % interval of success accuracy lies below the accuracy threshold. It loses accuracy where the paired drop
    is significant after Holm. Without labels, only the expectations kept are stated.
    """
    counts = summary.outcomes(model)
    if not counts.scored:
        return f"no verdict, as none of {counts.scored + counts.failed:,} trials has a score."
    if not summary.labelled:
        return _unlabelled_verdict(summary, model)
    control, control_advice = _against_best_control(summary, model)
    changes, weak = _under_change(summary, model)
    tasks, task_advice = _on_tasks(summary, model)
    said = "; ".join(part for part in (*changes, control, tasks) if part)
    places = [
        *([f"under {_kinds(summary, weak, 'any change')}"] if weak else []),
        *([task_advice] if task_advice else []),
    ]
    advice = control_advice or (f"Do not use it {' or '.join(places)}." if places else "")
    return f"{said or 'no clean episode that it scored has a label'}. {advice}".strip()


def _unlabelled_verdict(summary: Summary, model: str) -> str:
    kept, asked = expectations_kept(summary, model)
    if not asked:
        return "no verdict, as the episodes have no labels and no expectation was tested."
    worst = next((entry for entry in summary.worst if entry.model == model and entry.expectation_kept < 1), None)
    fewest = f", fewest under {worst.perturbation} ({worst.expectation_kept:.0%})" if worst else ""
    constant, most = expectations_kept(summary, REFERENCE)
    beside = f"; an answer that never changes keeps {constant / most:.0%}" if most and model != REFERENCE else ""
    return (
        f"keeps {kept:,} of {asked:,} expectations ({kept / asked:.0%}){fewest}{beside}. "
        "Without labels, nothing shows whether its rewards are right."
    )


def expectations_kept(summary: Summary, model: str) -> tuple[int, int]:
    """Return how many trials of a model kept their expectation, and how many were scored for it, over all changes."""
    rows = [
        summary.measurement(model, category, severity, "expectation_kept")
        for category in summary.categories
        for severity in summary.severities
        if severity
    ]
    return sum(round((row.value or 0.0) * row.scored) for row in rows), sum(row.scored for row in rows)


def _against_best_control(summary: Summary, model: str) -> tuple[str, str]:
    """Return what the paired test against the control of the lowest error concludes, and the advice that follows."""
    best = summary.best_control(model, micro_mae.name, micro_mae.better)
    if best is None:
        return "not compared with any control", ""
    wanted = (model, best.model, "clean", micro_mae.name)
    found = next(c for c in summary.controls if (c.model, c.control, c.where, c.metric) == wanted)
    if found.conclusion == "beats":
        return f"beats the best control, {best.model}, on clean episodes", ""
    if found.conclusion == "does not beat":
        return f"worse than the control {best.model} on clean episodes", "Do not use it."
    return (
        f"not shown to be better than the best control, {best.model}, on clean episodes",
        "Do not rely on it before a larger test.",
    )


def _under_change(summary: Summary, model: str) -> tuple[list[str], list[str]]:
    """Return what is shown under each category of change, and the categories under which the model is unreliable."""
    if not summary.categories:
        return ["tested on clean episodes only"], []
    if _below_threshold(summary, model, CLEAN, 0):
        accuracy = format_number(summary.clean(model, success_accuracy.name).value)
        return [f"judges success wrongly too often on clean episodes already (accuracy {accuracy})"], []
    severities = [severity for severity in summary.severities if severity]
    small = {entry.category for entry in summary.too_small}
    holds: dict[int, list[str]] = {}
    breaks: dict[int, list[str]] = {}
    loses: list[str] = []
    noise: list[str] = []  # a drop that asking again alone can make
    no_test: list[str] = []  # certified, but one constant answer is accurate enough too
    open_: list[str] = []
    for name in summary.categories:
        held = tested_severity(summary, model, name) if name not in small else None
        broken = next((s for s in severities if _below_threshold(summary, model, name, s)), None)
        lost = any(
            (drop.model, drop.category) == (model, name)
            and drop.drop > 0
            and (drop.p_holm or 1.0) < SIGNIFICANT
            and not drop.is_noise
            for drop in summary.drops
        )
        if any((d.model, d.category) == (model, name) and d.drop > 0 and d.is_noise for d in summary.drops):
            noise.append(name)
        if held:
            holds.setdefault(held, []).append(name)
        if broken is not None:
            breaks.setdefault(broken, []).append(name)
        elif lost:
            loses.append(name)
        elif not held and name not in small and (summary.threshold(model, name).certified or 0) > 0:
            no_test.append(name)
        elif not held:
            open_.append(name)
    said = [f"holds up to severity {at} under {_kinds(summary, names)}" for at, names in sorted(holds.items())[::-1]]
    said += [f"breaks at severity {at} under {_kinds(summary, names)}" for at, names in sorted(breaks.items())]
    said += [f"loses accuracy under {_kinds(summary, loses)}"] if loses else []
    said += [f"the drop under {_kinds(summary, noise)} is within its noise floor, so it is no drop"] if noise else []
    least = f"the accuracy threshold of {summary.accuracy_threshold:.2f}"
    said += [f"reaches {least} under {_kinds(summary, no_test)}, as does one constant answer"] if no_test else []
    few = [entry for entry in summary.too_small if entry.category in open_]
    rest = [name for name in open_ if name not in {*small, *summary.unlabelled}]
    said += [_too_few(summary, few)] if few else []
    said += (
        [f"neither certified nor shown to break under {_kinds(summary, rest, 'any kind of change')}"] if rest else []
    )
    worst = next((entry for entry in summary.worst if entry.model == model and entry.expectation_kept < 1), None)
    if worst is not None:
        said.append(f"keeps the fewest expectations under {worst.perturbation} ({worst.expectation_kept:.0%})")
    return said, [name for names in (*breaks.values(), loses) for name in names]


def _too_few(summary: Summary, small: Sequence[CertifiableCategory]) -> str:
    tasks = min(entry.clusters for entry in small)
    needed = [entry.clusters_needed for entry in small if entry.clusters_needed]
    counts = f"too few tasks ({tasks}{f'; {max(needed)} are enough' if needed else ''})"
    if len(small) == len(summary.categories):
        return f"{counts} to certify any severity"
    return f"{counts} to certify it under {_kinds(summary, [entry.category for entry in small])}"


def _kinds(summary: Summary, categories: Sequence[str], every: str = "every kind of change") -> str:
    several = len(summary.categories) > 1
    return every if several and {*categories} == {*summary.categories} else f"{listed(list(categories))} changes"


def tested_severity(summary: Summary, model: str, category: str) -> int | None:
    """Return the last certified severity at which one constant answer fails; None where there is none."""
    certified = summary.threshold(model, category).certified
    tested = [
        s
        for s in range((-1 if certified is None else certified) + 1)
        if not _constant_passes(summary, model, category, s)
    ]
    return tested[-1] if tested else None


def _constant_passes(summary: Summary, model: str, category: str, severity: int) -> bool:
    """Tell whether one constant answer for all trials is accurate enough to be certified."""
    held = summary.paired_reference_of(model, category if severity else CLEAN, severity, success_accuracy.name)
    return held.blind is not None and held.blind >= summary.accuracy_threshold


def _below_threshold(summary: Summary, model: str, group: str, severity: int) -> bool:
    high = summary.measurement(model, group, severity, success_accuracy.name).high
    return high is not None and high < summary.accuracy_threshold


def _on_tasks(summary: Summary, model: str) -> tuple[str, str]:
    """Return what limits the result to tasks that the model was trained on, and the tasks not to use it for."""
    seen, unseen = (summary.familiar(model, kind, micro_mae.name) for kind in KINDS)
    if unseen is not None:
        if unseen.high is not None and unseen.blind is not None and unseen.high < unseen.blind:
            return "", ""
        said = f"not shown to be better than {REFERENCE} on tasks not seen in training"
        return said, "on tasks not seen in training"
    return ("measured on tasks seen in training only", "") if seen is not None else ("", "")
