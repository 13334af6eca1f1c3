"""The summary of one run, or of several side by side: every measurement and test result, as typed records."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from rewardlab.core.records import meaning, record_from_json, record_to_json, without_checksums
from rewardlab.core.trial import CATEGORIES, CLEAN

SCHEMA = 7  # of summary.json; raised when a field comes, goes, or changes its name or its meaning
PIXEL_CONTROLS = ("motion", "end-motion", "change")  # they see how much pixels change, and nothing else
CONTROL_ORDER = ("constant", "random", "length", *PIXEL_CONTROLS, "oracle")
_MODEL_NAME_FIELDS = ("model", "control", "reference")  # fields of the records below
Conclusion = Literal["beats", "does not beat", "cannot tell"]


@dataclass(frozen=True)
class Measurement:
    """One number: a metric of a model under a category or a single perturbation at a severity."""

    model: str = meaning("the model's name")
    group: str = meaning("`clean`, a category, or a perturbation")
    severity: int = meaning("0 to 4; 0 is the clean episodes")
    metric: str = meaning("name in the catalog of metrics")
    value: float | None = meaning("the metric; null where nothing could be measured")
    scored: int = meaning("scored trials, from which the value is computed")
    asked: int = meaning("trials for which the metric is defined; scored/asked is the coverage")
    low: float | None = meaning("lower end of the 95 % interval; null where it is undefined")
    high: float | None = meaning("upper end of the 95 % interval; null where it is undefined")


@dataclass(frozen=True)
class PairedReference:
    """Baselines of a metric under perturbation, from the same trials.

    `clean` and `changed` are over the trials that have both, so their difference is what the change does. Some
    perturbations change the true label; then a constant answer may be right more often than on clean episodes.
    """

    model: str = meaning("the model's name")
    group: str = meaning("`clean`, a category, or a perturbation")
    severity: int = meaning("the severity of the trials")
    metric: str = meaning("`success_accuracy` or `macro_mae`")
    clean: float | None = meaning("the metric of the model on the clean episodes of the paired trials")
    changed: float | None = meaning("the metric of the model on the paired trials")
    paired: int = meaning("trials that the model answered whose clean episode it answered too")
    blind: float | None = meaning("the metric of the best constant level on these trials")
    trials: int = meaning("trials from which the metric is computed")
    relabelled: int = meaning("those of them whose true label the perturbation changed")
    noise_floor: float | None = meaning(
        "what asking again alone can make of the difference from `clean`: 95 % of such differences are smaller; "
        "null without --repeats"
    )


@dataclass(frozen=True)
class SeverityThreshold:
    """The last severity up to which a model's success accuracy stays at `accuracy_threshold` or above."""

    model: str = meaning("the model's name")
    category: str = meaning("the category of perturbations")
    measured: int | None = meaning("by the measured accuracy; -1: not even clean; null: unknown")
    certified: int | None = meaning("by the one-sided 95 % lower bound; -1: not even clean; null: unknown")
    draws: dict[str, float] = meaning("share of bootstrap draws in which each severity is the last one")


@dataclass(frozen=True)
class CertifiableCategory:
    """Whether a category has enough tasks to certify a model that makes no error."""

    category: str = meaning("the category of perturbations")
    episodes: int = meaning("labelled episodes, clean or at its lowest severity, whichever are fewer; 0: no labels")
    clusters: int = meaning("clusters of these episodes: groups that share a task or a video")
    clusters_needed: int | None = meaning("clusters that certify a model without errors; null: no number does")
    episodes_needed: int | None = meaning("episodes in that many clusters, at the cluster size of this run")


@dataclass(frozen=True)
class ControlCheck:
    """Whether an evaluated model is better than a control on the trials that both scored; a paired test."""

    model: str = meaning("the evaluated model")
    control: str = meaning("the control it is compared with")
    where: Literal["clean", "all trials"] = meaning("the trials that are compared")
    metric: str = meaning("the metric that is compared")
    gain: float | None = meaning("by how much the model is better: its lower error, or its higher success AUC")
    low: float | None = meaning("lower end of the 95 % interval of the gain")
    high: float | None = meaning("upper end of the 95 % interval of the gain")
    p: float | None = meaning("two-sided p-value of no difference")
    p_holm: float | None = meaning("the same, corrected by Holm over all control checks of the metric")
    trials: int = meaning("trials that both scored")
    clusters: int = meaning("clusters of the bootstrap behind them")
    conclusion: Conclusion = meaning("the conclusion at the 5 % level; a gain below the noise floor supports none")
    noise_floor: float | None = meaning(
        "what asking again alone can make of the gain: 95 % of such differences are smaller; null without --repeats"
    )


@dataclass(frozen=True)
class AccuracyDrop:
    """The paired drop of success accuracy from clean to the highest severity, on trials that keep the label."""

    model: str = meaning("the evaluated model")
    category: str = meaning("the category of perturbations")
    severity: int = meaning("the highest severity of the run")
    metric: str = meaning("the metric that drops")
    clean: float = meaning("the metric on the clean episodes of these trials")
    changed: float = meaning("the metric on the perturbed trials")
    drop: float = meaning("clean minus changed")
    low: float | None = meaning("lower end of the 95 % interval of the drop")
    high: float | None = meaning("upper end of the 95 % interval of the drop")
    p: float | None = meaning("two-sided p-value of no drop")
    p_holm: float | None = meaning("the same, corrected by Holm over all drops")
    trials: int = meaning("trials that are compared")
    episodes: int = meaning("episodes behind them")
    clusters: int = meaning("clusters of the bootstrap behind them")
    minimum_detectable_drop: float | None = meaning("the true drop that this test finds with a power of 80 %")
    note: str = meaning("the minimum detectable drop as a sentence")
    noise_floor: float | None = meaning(
        "what asking again alone can make of the drop: 95 % of such differences are smaller; null without --repeats"
    )

    @property
    def is_noise(self) -> bool:
        """Tell whether asking again alone can make such a difference, so that it is no drop."""
        return self.noise_floor is not None and abs(self.drop) <= self.noise_floor


@dataclass(frozen=True)
class WorstPerturbation:
    """A perturbation that broke many expectations of an evaluated model, at its highest severity; worst first."""

    model: str = meaning("the evaluated model")
    perturbation: str = meaning("the perturbation's name")
    category: str = meaning("its category")
    severity: int = meaning("the highest severity that was measured")
    expectation_kept: float = meaning("share of trials that kept the expectation")
    low: float | None = meaning("lower end of its 95 % interval")
    high: float | None = meaning("upper end of its 95 % interval")
    scored: int = meaning("scored trials, from which it is computed")
    asked: int = meaning("trials for which it is defined")
    signed_shift: float | None = meaning("mean change of the level from clean where the label is kept")
    micro_mae: float | None = meaning("mean absolute error at this severity")
    clean_micro_mae: float | None = meaning("mean absolute error on the clean episodes")


@dataclass(frozen=True)
class ReliabilityBin:
    """One point of a reliability diagram: mean confidence, accuracy, and number of trials."""

    confidence: float = meaning("mean probability of the most probable level")
    accuracy: float = meaning("share of trials in which that level is the true one")
    trials: int = meaning("trials in this bin")


@dataclass(frozen=True)
class CalibrationErrors:
    """Calibration of a model that gives probabilities over the five levels."""

    model: str = meaning("the model's name")
    where: Literal["clean", "perturbed"] = meaning("the trials that are measured")
    ordinal_ece: float | None = meaning("expected calibration error of `the level is above k`, mean over k")
    top_label_ece: float | None = meaning("expected calibration error of the most probable level")
    ranked_probability_score: float | None = meaning("proper score of the cumulative probabilities; 0 is best")
    brier_score: float | None = meaning("proper score of the probabilities; 0 is best")
    ordinal_ece_null: float | None = meaning("95 % quantile of ordinal_ece for a perfectly calibrated model")
    top_label_ece_null: float | None = meaning("95 % quantile of top_label_ece for a perfectly calibrated model")
    trials: int = meaning("trials behind the numbers")
    diagram: tuple[ReliabilityBin, ...] = meaning("the reliability diagram of the most probable level")


@dataclass(frozen=True)
class CalibrationNull:
    """Calibration of a model under a category at a severity, and its range for a calibrated model on as many trials."""

    model: str = meaning("the model's name")
    category: str = meaning("the category of perturbations; `clean` for the untouched episodes")
    severity: int = meaning("0 to 4; 0 is the clean episodes")
    metric: str = meaning("`ordinal_ece` or `brier_score`")
    value: float | None = meaning("the metric on these trials")
    null_low: float | None = meaning("2.5 % quantile of the metric for a perfectly calibrated model")
    null_high: float | None = meaning("97.5 % quantile of the metric for a perfectly calibrated model")
    trials: int = meaning("trials behind the numbers")

    @property
    def miscalibrated(self) -> bool:
        """Tell whether the error is larger than chance explains."""
        return self.value is not None and self.null_high is not None and self.value > self.null_high


@dataclass(frozen=True)
class CorruptionRobustness:
    """Corruption errors of a model over all severities; the error is MAE / 4, per perturbation."""

    model: str = meaning("the model's name")
    reference: str | None = meaning("the model that errors are divided by; null where it was not scored")
    mce: float | None = meaning("mean corruption error against the reference")
    relative_mce: float | None = meaning("mean rise of error over clean, against that of the reference")
    mean_rise: float | None = meaning("mean rise of error over clean")
    auc: dict[str, float | None] = meaning("per category, area under success accuracy, relative to clean accuracy")


@dataclass(frozen=True)
class RankStability:
    """Whether a category of perturbations reorders the models of a run."""

    category: str = meaning("the category of perturbations")
    tau_b: float | None = meaning("Kendall's tau-b of the models' MAE, clean against the highest severity")


@dataclass(frozen=True)
class ModelNoise:
    """How far the answers of a model move when the same is asked again; the first answer is the one that counts."""

    model: str = meaning("the model's name")
    askings: int = meaning("how often each trial was asked; 1 for a model that always answers alike")
    deterministic: bool = meaning("true where the model always answers alike, so that its noise is 0 without asking")
    level_deviation: float | None = meaning("standard deviation of the level between askings of a trial; null: unknown")
    changed: float | None = meaning("share of pairs of askings with different rounded levels; null: unknown")
    low: float | None = meaning("lower end of its 95 % interval")
    high: float | None = meaning("upper end of its 95 % interval")
    scored: int = meaning("trials with a level in two askings or more; of a deterministic model, in one")
    asked: int = meaning("trials that were asked")
    success_accuracy: float | None = meaning("noise floor between two askings of all clean episodes; null: unknown")
    macro_mae: float | None = meaning("the same of the mean absolute error, averaged over subsets")


@dataclass(frozen=True)
class OutcomeCounts:
    """The trials of a model by outcome."""

    model: str = meaning("the model's name")
    scored: int = meaning("trials with a score")
    failed: int = meaning("trials without a score because the model failed")
    dropped: int = meaning("trials that were not scored because the perturbation does not apply")
    unreadable: int = meaning("failed trials whose answer could not be parsed")
    abstained: int = meaning("failed trials whose answer is that the clip does not show what is asked")


@dataclass(frozen=True)
class Caveat:
    """A limit of a model's results, to be shown with them."""

    model: str = meaning("the evaluated model")
    text: str = meaning("one sentence")


@dataclass(frozen=True)
class TaskFamiliarity:
    """A metric of a model on the clean episodes of tasks that it was trained on, or of others."""

    model: str = meaning("the evaluated model")
    tasks: Literal["seen", "unseen"] = meaning("seen: tasks it was trained on, with other episodes; unseen: the others")
    metric: str = meaning("name in the catalog of metrics")
    value: float | None = meaning("the metric; null where nothing could be measured")
    low: float | None = meaning("lower end of the 95 % interval; null where it is undefined")
    high: float | None = meaning("upper end of the 95 % interval; null where it is undefined")
    blind: float | None = meaning("the metric of `constant` on episodes of the same tasks")
    episodes: int = meaning("episodes from which the value is computed")


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals were made."""

    draws: int = meaning("bootstrap draws for every interval")
    seed: int = meaning("seed of the draws")
    clusters: int = meaning("clusters: trials that share a task or a video")
    episodes: int = meaning("episodes of the run")
    few_clusters: bool = meaning("true where intervals are rough because there are few clusters")
    method: str = meaning("the method in words")


def in_control_order(models: Iterable[str]) -> list[str]:
    """Return models in the order of tables and pages: controls from `constant` to `oracle`, then the others."""
    place = {name: number for number, name in enumerate(CONTROL_ORDER)}
    return sorted(models, key=lambda model: place.get(model.partition(":")[0], len(place)))


@dataclass(frozen=True)
class Summary:
    """Every measurement and test result of a run; the content of `summary.json`."""

    schema: int = meaning(f"version of this layout, {SCHEMA}")
    evaluated: tuple[str, ...] = meaning("the models that the run is about; the others are controls")
    caveats: tuple[Caveat, ...] = meaning("limits of the results of single models")
    familiarity: tuple[TaskFamiliarity, ...] = meaning("metrics on tasks that a model was trained on, and on others")
    accuracy_threshold: float = meaning("success accuracy below which a model counts as unreliable")
    measurements: tuple[Measurement, ...] = meaning("every number with its interval and its coverage")
    paired_references: tuple[PairedReference, ...] = meaning("baselines of these numbers, from the same trials")
    thresholds: tuple[SeverityThreshold, ...] = meaning("the highest severity at which each model is reliable")
    certifiable: tuple[CertifiableCategory, ...] = meaning("whether there is enough data to certify any model")
    controls: tuple[ControlCheck, ...] = meaning("the evaluated models against the controls")
    drops: tuple[AccuracyDrop, ...] = meaning("accuracy drops of each evaluated model, per category")
    worst: tuple[WorstPerturbation, ...] = meaning("the worst five perturbations of each evaluated model")
    calibration: tuple[CalibrationErrors, ...] = meaning("calibration of the models that give probabilities")
    calibration_nulls: tuple[CalibrationNull, ...] = meaning("calibration over severity, with its null range")
    robustness: tuple[CorruptionRobustness, ...] = meaning("corruption errors of every model")
    rank_stability: tuple[RankStability, ...] = meaning("how each category reorders the models")
    noise: tuple[ModelNoise, ...] = meaning("the noise floor of every model; empty without --repeats")
    counts: tuple[OutcomeCounts, ...] = meaning("trials of every model by outcome")
    bootstrap: Bootstrap = meaning("how the intervals were made")

    def to_json(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        content: dict[str, Any] = record_to_json(self)
        return content

    @staticmethod
    def from_json(content: object) -> "Summary":
        """Return the summary from JSON content; ValueError if it is invalid."""
        if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
            raise ValueError(f"it has no `schema: {SCHEMA}`")
        return record_from_json(Summary, without_checksums(content))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Return the models, evaluated ones first, then the controls in their order."""
        others = dict.fromkeys(entry.model for entry in self.measurements)
        return tuple(dict.fromkeys([*self.evaluated, *in_control_order(others)]))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Return the categories that were measured."""
        return tuple(name for name in CATEGORIES if name in self._groups)

    @cached_property
    def perturbations(self) -> tuple[str, ...]:
        """Return the perturbations that were measured."""
        return tuple(name for name in self._groups if name not in CATEGORIES and name != CLEAN)

    @cached_property
    def highest_severity(self) -> int:
        """Return the highest severity that was measured."""
        return max((entry.severity for entry in self.measurements), default=0)

    def measurement(self, model: str, group: str, severity: int, metric: str) -> Measurement:
        """Return one number with its interval and coverage; an empty one if there are no such trials."""
        empty = Measurement(model, group, severity, metric, None, 0, 0, None, None)
        return self._found.get((model, group, severity, metric), empty)

    def paired_reference_of(self, model: str, group: str, severity: int, metric: str) -> PairedReference:
        """Return the baselines of a measurement; an empty record if there are none."""
        empty = PairedReference(model, group, severity, metric, None, None, 0, None, 0, 0, None)
        return self._paired_references.get((model, group, severity, metric), empty)

    @cached_property
    def severities(self) -> tuple[int, ...]:
        """Return the severities that were measured, 0 first."""
        return tuple(sorted({entry.severity for entry in self.measurements}))

    @cached_property
    def relabelled(self) -> frozenset[str]:
        """Return the groups in which perturbations changed some true labels."""
        return frozenset(entry.group for entry in self.paired_references if entry.relabelled)

    def clean(self, model: str, metric: str) -> Measurement:
        """Return a metric on the clean episodes."""
        return self.measurement(model, CLEAN, 0, metric)

    def best_control(self, model: str, metric: str, better: Literal["higher", "lower"]) -> Measurement | None:
        """Return a metric, on clean episodes, of the control that is best by it, the oracle apart; None without any."""
        names = in_control_order(dict.fromkeys(check.control for check in self.controls if check.model == model))
        rows = [(row.value, row) for name in names if (row := self.clean(name, metric)).value is not None]
        best = max if better == "higher" else min
        return best(rows, key=lambda pair: pair[0])[1] if rows else None

    def threshold(self, model: str, category: str) -> SeverityThreshold:
        """Return the highest reliable severity of a model; unknown if it was not measured."""
        unknown = SeverityThreshold(model, category, None, None, {})
        mine = (t for t in self.thresholds if (t.model, t.category) == (model, category))
        return next(mine, unknown)

    def calibration_null(self, model: str, category: str, severity: int, metric: str) -> CalibrationNull:
        """Return a calibration error with its null range; an empty one where the model gives no probabilities."""
        empty = CalibrationNull(model, category, severity, metric, None, None, None, 0)
        return self._calibration_nulls.get((model, category, severity, metric), empty)

    @cached_property
    def labelled(self) -> bool:
        """Tell whether any clean episode states a true level or a success."""
        names = ("micro_mae", "success_accuracy")
        return any(self.clean(model, name).asked for model in self.models for name in names)

    @cached_property
    def unlabelled(self) -> tuple[str, ...]:
        """Return the categories whose episodes have no success label, so that nothing can be certified."""
        return tuple(c.category for c in self.certifiable if not c.clusters)

    @cached_property
    def too_small(self) -> tuple[CertifiableCategory, ...]:
        """Return the categories with too few tasks to certify even a model that makes no error."""
        return tuple(c for c in self.certifiable if c.clusters and c.clusters < (c.clusters_needed or c.clusters + 1))

    def caveat(self, model: str) -> str:
        """Return the caveat of a model, empty for most models."""
        return next((caveat.text for caveat in self.caveats if caveat.model == model), "")

    def familiar(self, model: str, tasks: str, metric: str) -> TaskFamiliarity | None:
        """Return a metric of a model on the tasks it was trained on, or on others; None if they are not known."""
        wanted = (model, tasks, metric)
        return next((f for f in self.familiarity if (f.model, f.tasks, f.metric) == wanted), None)

    def outcomes(self, model: str) -> OutcomeCounts:
        """Return the trials of a model by outcome."""
        return next((c for c in self.counts if c.model == model), OutcomeCounts(model, 0, 0, 0, 0, 0))

    def noise_of(self, model: str) -> ModelNoise | None:
        """Return the noise floor of a model; None where nothing was asked again."""
        return next((noise for noise in self.noise if noise.model == model), None)

    @cached_property
    def _groups(self) -> dict[str, None]:
        return dict.fromkeys(entry.group for entry in self.measurements)

    @cached_property
    def _paired_references(self) -> dict[tuple[str, str, int, str], PairedReference]:
        return {(s.model, s.group, s.severity, s.metric): s for s in self.paired_references}

    @cached_property
    def _calibration_nulls(self) -> dict[tuple[str, str, int, str], CalibrationNull]:
        return {(c.model, c.category, c.severity, c.metric): c for c in self.calibration_nulls}

    @cached_property
    def _found(self) -> dict[tuple[str, str, int, str], Measurement]:
        return {(m.model, m.group, m.severity, m.metric): m for m in self.measurements}


def join_summaries(named: Sequence[tuple[str, Summary]]) -> Summary:
    """Put summaries side by side; a model of several runs gets its run's name; other fields are the first's."""
    if len(named) == 1:
        return named[0][1]
    times = Counter(model for _, summary in named for model in summary.models)
    renamed = [
        rename_models(summary, {model: f"{model} ({run})" for model in summary.models if times[model] > 1})
        for run, summary in named
    ]
    joined: dict[str, Any] = {
        field: tuple(record for summary in renamed for record in vars(summary)[field]) for field in _lists(renamed[0])
    }
    return replace(renamed[0], **joined)


def rename_models(summary: Summary, names: Mapping[str, str]) -> Summary:
    """Return the summary with other names of models; models that are not in `names` keep theirs."""
    renamed: dict[str, Any] = {
        field: tuple(_renamed(record, names) for record in vars(summary)[field]) for field in _lists(summary)
    }
    return replace(summary, **renamed)


def _lists(summary: Summary) -> list[str]:
    return [entry.name for entry in fields(Summary) if isinstance(vars(summary)[entry.name], tuple)]


def _renamed(record: Any, names: Mapping[str, str]) -> Any:
    """Return a record, or the name of a model, with the new names of models."""
    if isinstance(record, str):
        return names.get(record, record)
    changes = {field: names[old] for field, old in vars(record).items() if field in _MODEL_NAME_FIELDS and old in names}
    return replace(record, **changes) if changes else record
