"""Primary measures of a study by stratum, by perturbation and by pair of roles; Eq. 1 fitted to them; cost.

Strata are the Meta-World tasks that were trained on and those that were not, the tabletop, real clips, and clips
without a label, of which only expectations are known. A pixel-counting control stands beside every model.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

import numpy as np

from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Draws, Numbers, cluster_sums, percentile_interval
from rewardlab.metrics.contract import answered
from rewardlab.metrics.estimates import clusters_of
from rewardlab.metrics.paired_differences import training_draws
from rewardlab.studies.perturbation_paper.equation import StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import MeasuredAccuracy, fit_models
from rewardlab.studies.perturbation_paper.measured import MeasuredStudy, at
from rewardlab.studies.perturbation_paper.measured_tables import csv_of
from rewardlab.studies.perturbation_paper.paper import CATEGORIES, WORST
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import unseen_tasks

BALANCED, AUC = "balanced_success_accuracy", "success_auc_within_subset"
PRIMARY = (BALANCED, AUC)
EXPECTED = ("flip_rate", "level_shift", "signed_shift", "expectation_kept")  # what needs no label
_LABELLED = (*PRIMARY, "micro_mae")
OTHER, GROUNDED = "other instruction", "instruction_grounding"  # clips that are also shown under another task's words
_BY_PERTURBATION = ("success_accuracy", "micro_mae", "flip_rate")
_ENDS = ("value", "low", "high")
_STRATUM = ("stratum", "category", "severity", "metric", "better")
Estimate = tuple[float, Numbers]  # a number, and what it is in every draw


def strata_files(study: MeasuredStudy) -> dict[str, str]:
    """Return these tables by file name."""
    lost = ("lost", "lost_low", "lost_high", "trials")
    contrast = ("less", *_STRATUM, "difference", "low", "high", "lost", "lost_low", "lost_high")
    rows = _Rows(study)
    fitted = ("model", "plays", "alpha", "alpha_error", *(f"{s}{c}" for c in CATEGORIES for s in ("", "error_")))
    return {
        "strata.csv": csv_of(study, ("model", "plays", *_STRATUM, *_ENDS, *lost), rows.strata()),
        "contrasts.csv": csv_of(study, ("model", *contrast), rows.contrasts()),
        "perturbations.csv": csv_of(
            study,
            ("model", "plays", "perturbation", "category", "severity", "metric", "better", *_ENDS, "trials"),
            rows.perturbations(),
        ),
        "equation.csv": csv_of(study, (*fitted, "largest_misfit"), _equation(study)),
        "cost.csv": csv_of(
            study, ("model", "plays", "seconds", "input_tokens", "output_tokens", "cost", "verdicts"), _cost(study)
        ),
    }


def strata_of(trials: TrialTable, fold: int | None) -> dict[str, np.ndarray]:
    """Return which trials are in each stratum; with a fold, its Meta-World tasks are apart."""
    task, names = trials.codes("task")
    held_out = unseen_tasks(fold) if fold is not None else ()
    tabletop = trials.matches("subset", "tabletop")  # whose tasks may be called as one of Meta-World
    simulated = np.array([name in PROGRESS_SPECS for name in names] or [False])[task] & ~tabletop
    unseen = np.array([name in held_out for name in names] or [False])[task]
    level, success = trials.number("truth_level"), trials.number("truth_success")
    episode, names = trials.codes("episode")
    labelled = np.zeros(len(names) + 1, bool)
    labelled[episode[~np.isnan(level) | ~np.isnan(success)]] = True
    real = ~simulated & ~tabletop
    found = {
        "known tasks": simulated & ~unseen,
        "unseen tasks": simulated & unseen,
        "tabletop": tabletop,
        "real clips": real & labelled[episode],
        "clips without labels": real & ~labelled[episode],
    }
    return {name: rows for name, rows in found.items() if rows.any()}


@dataclass(frozen=True)
class _Rows:
    """The rows of the tables, from one study."""

    study: MeasuredStudy

    @cached_property
    def places(self) -> list[tuple[tuple[str, str, int], "_Parts"]]:
        """Return every stratum, category and severity with the trials there."""
        return list(self._places())

    def strata(self) -> Iterator[Sequence[object]]:
        """Yield every measure of every arm and model, by stratum, category and severity, and what severity costs."""
        for place, parts in self.places:
            for name in self.study.models:
                role = self.study.role(name)
                for metric, values in self._measures(name, parts, place):
                    found = values("now")
                    if not math.isnan(found[0]):
                        yield (name, role, *place, metric, METRICS[metric].better, *_within(metric, found, parts),
                               *_ends(values("lost"), parts.clusters), parts.count(self.study, name))  # fmt: skip

    def contrasts(self) -> Iterator[Sequence[object]]:
        """Yield the differences of two roles, or of two other arms, on the same trials; at the ends to all models."""
        roles = [self.study.model(role) for role in ("ensemble", "tuned", "general") if role in self.study.roles]
        arms = [name for name in self.study.arms if name not in roles]
        others = [name for name in self.study.models if name not in (*roles, *arms)]
        between = [*combinations(roles, 2), *combinations(arms, 2)]
        at_ends = [*between, *product(roles, arms), *product((*roles, *arms), others)]
        for place, parts in self.places:
            for one, other in at_ends if place[2] in (0, WORST) else between:
                for (metric, ours), (_, theirs) in zip(
                    self._measures(one, parts, place), self._measures(other, parts, place), strict=True
                ):
                    if metric in EXPECTED and other in others:
                        continue
                    gaps = [_less(ours(when), theirs(when)) for when in ("now", "lost")]
                    if not math.isnan(gaps[0][0]):
                        numbers = (number for gap in gaps for number in _ends(gap, parts.clusters))
                        yield (one, other, *place, metric, METRICS[metric].better, *numbers)

    def perturbations(self) -> Iterator[Sequence[object]]:
        """Yield the measures of every perturbation by its own name, over all strata."""
        trials = self.study.trials
        pairs = zip(trials.text("drawn").tolist(), trials.text("perturbation").tolist(), strict=True)
        own = np.array([drawn or name for drawn, name in pairs], dtype=object)
        severity, counted = trials.number("severity"), self._keeps_label
        for perturbation, category in sorted(set(zip(own.tolist(), trials.text("category").tolist(), strict=True))):
            if category == CLEAN or perturbation.startswith("random:"):
                continue
            for step in SEVERITIES[1:]:
                rows = np.flatnonzero((own == perturbation) & (severity == step) & counted)
                parts = _Parts(trials.take(rows), None, self.study.draws)
                for name in self.study.evaluated if len(rows) else ():
                    for metric in _BY_PERTURBATION:
                        found = parts.of_arm(self.study, name, metric)
                        if not math.isnan(found[0]):
                            yield (name, self.study.role(name), perturbation, category, step, metric,
                                   METRICS[metric].better, *_within(metric, found, parts),
                                   parts.count(self.study, name))  # fmt: skip

    @property
    def _keeps_label(self) -> np.ndarray:
        return self.study.keeps_label & self.study.trials.matches("status", "scored")

    def _places(self) -> Iterator[tuple[tuple[str, str, int], "_Parts"]]:
        """Yield every stratum, category and severity with the trials there, and the clean ones of the same episodes."""
        trials = self.study.trials
        severity, kept = trials.number("severity"), self._keeps_label
        clean = trials.matches("perturbation", CLEAN) & kept
        for stratum, inside in strata_of(trials, self.study.fold).items():
            yield (stratum, CLEAN, 0), _Parts(trials.where(clean & inside), None, self.study.draws)
            if len(others := trials.where(inside & answered(trials, METRICS[GROUNDED].eligibility))):
                yield (stratum, OTHER, 0), _Parts(others, None, self.study.draws)
            for category in (name for name in CATEGORIES if trials.matches("category", name).any()):
                for step in SEVERITIES[1:]:
                    here = trials.where(inside & kept & trials.matches("category", category) & (severity == step))
                    if len(here):
                        yield (stratum, category, step), _Parts(here, trials.where(clean & inside), self.study.draws)

    def _measures(
        self, name: str, parts: "_Parts", place: tuple[str, str, int]
    ) -> Iterator[tuple[str, Callable[[str], Estimate]]]:
        """Yield each measure of an arm or model with a function of its value `now` and of what it `lost`."""
        (stratum, category, _), changed = place, parts.before is not None
        metrics = (*(() if stratum == "clips without labels" else _LABELLED), *(EXPECTED if changed else ()))
        for metric in (GROUNDED,) if category == OTHER else metrics:

            def value(when: str, metric: str = metric) -> Estimate:
                if when == "lost" and (not changed or metric in EXPECTED):
                    return math.nan, np.full(self.study.draws.number, math.nan)
                return parts.of_arm(self.study, name, metric, when)

            yield metric, value


@dataclass(frozen=True, eq=False)
class _Parts:
    """Trials of one place, and the clean ones of the same stratum."""

    now: TrialTable
    before: TrialTable | None
    draws: Draws
    known: dict[tuple[str, ...], Estimate] = field(default_factory=dict)
    tables: dict[str, TrialTable] = field(default_factory=dict)  # the trials of a model here

    @cached_property
    def clusters(self) -> int:
        return len(np.unique(clusters_of(self.now)))

    def of_model(self, model: str) -> TrialTable:
        """Return the trials of one model here."""
        if model not in self.tables:
            self.tables[model] = self.now.where(self.now.matches("model", model))
        return self.tables[model]

    def count(self, study: MeasuredStudy, name: str) -> int:
        """Return how many trials are behind an arm or model."""
        return sum(len(self.of_model(each)) for each in study.trainings(name))

    def of_arm(self, study: MeasuredStudy, name: str, metric: str, when: str = "now") -> Estimate:
        """Return the mean over the trainings of an arm, which are drawn again with the clusters."""
        key = "arm", name, metric, when
        if key not in self.known:
            find = self.estimate if when == "now" else self.lost
            self.known[key] = _mean_of_trainings(name, [find(metric, each) for each in study.trainings(name)])
        return self.known[key]

    def estimate(self, metric: str, model: str) -> Estimate:
        """Return a measure of one model here."""
        key = metric, model, "now"
        if key not in self.known:
            self.known[key] = _estimate(metric, self.of_model(model), self.draws)
        return self.known[key]

    def lost(self, metric: str, model: str) -> Estimate:
        """Return the clean value less this one, of the same episodes; a higher error is a loss too."""
        assert self.before is not None
        here, before = self.of_model(model), self.before
        same = np.isin(before.text("episode").astype(str), here.text("episode").astype(str))
        clean = _estimate(metric, before.where(before.matches("model", model) & same), self.draws)
        changed = self.estimate(metric, model)
        return _less(clean, changed) if METRICS[metric].better == "higher" else _less(changed, clean)


def _estimate(metric: str, trials: TrialTable, draws: Draws) -> Estimate:
    entry, cluster = METRICS[metric], clusters_of(trials)
    if metric == BALANCED:
        right = METRICS["success_accuracy"].values_of(trials)
        success = trials.number("truth_success")
        sides = [np.where(success == side, right, np.nan) for side in (0, 1)]
        each = [_mean(side, cluster, draws) for side in sides]
        return float(np.mean([value for value, _ in each])), np.mean([drawn for _, drawn in each], axis=0)
    if entry.values is not None:
        return _mean(entry.values_of(trials), cluster, draws)
    assert entry.resample is not None
    value = entry(trials)
    return value, (np.full(draws.number, math.nan) if math.isnan(value) else entry.resample(trials, draws))


def _mean(values: Numbers, cluster: np.ndarray, draws: Draws) -> Estimate:
    above, below = cluster_sums(values, cluster, draws.clusters)
    if not below.any():
        return math.nan, np.full(draws.number, math.nan)
    return float(above.sum() / below.sum()), draws.ratios(above[None, :], below[None, :])[0]


def _mean_of_trainings(name: str, each: Sequence[Estimate]) -> Estimate:
    if len(each) == 1:
        return each[0]
    times = training_draws(name, len(each), len(each[0][1]))
    drawn = (times * np.stack([values for _, values in each])).sum(axis=0) / len(each)
    return float(np.mean([value for value, _ in each])), drawn


def _less(one: Estimate, other: Estimate) -> Estimate:
    return one[0] - other[0], one[1] - other[1]


def _ends(found: Estimate, clusters: int) -> tuple[float, float, float]:
    low, high = percentile_interval(found[1][None, :], np.array([clusters], dtype=np.float64))
    return found[0], float(low[0]), float(high[0])


def _within(metric: str, found: Estimate, parts: _Parts) -> list[float]:
    """Return a number and its interval, which does not leave the bounds of the metric."""
    ends: list[float] = np.clip(_ends(found, parts.clusters), *METRICS[metric].bounds).tolist()
    return ends


def _equation(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    """Yield Eq. 1 of the paper fitted to the accuracies of every arm and model that was measured in all categories."""
    lines: dict[str, list[MeasuredAccuracy]] = {}
    for name in study.evaluated:
        places = [(CLEAN, 0), *((c, s) for c in study.categories for s in SEVERITIES[1:])]
        values = [(*place, study.accuracy.combined(at(name, *place)).value) for place in places]
        known = [MeasuredAccuracy(name, c, s, value) for c, s, value in values if not math.isnan(value)]
        if {line.category for line in known} == {CLEAN, *study.categories}:
            lines[name] = known
    if not lines or not study.categories:
        return
    fitted = fit_models((line for each in lines.values() for line in each), StudyConfig())
    for name, found in fitted.items():
        sigma: Mapping[str, float] = found.competence.sigma
        numbers = (number for c in CATEGORIES for number in (sigma.get(c), found.errors.get(c)))
        yield name, study.role(name), found.competence.alpha, found.errors["alpha"], *numbers, found.largest_misfit


def _cost(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    """Yield the mean seconds, tokens and price of a verdict; nothing where no trial says."""
    scored = study.trials.matches("status", "scored")
    for name in study.models:
        mine = scored & np.logical_or.reduce([study.trials.matches("model", each) for each in study.trainings(name)])
        trials = study.trials.where(mine)
        numbers = [trials.number(column) for column in ("seconds", "input_tokens", "output_tokens", "cost")]
        numbers[0] = np.where(numbers[0] > 0, numbers[0], np.nan)  # a run that was kept without times has zeros
        means = (float(values[known].mean()) if (known := ~np.isnan(values)).any() else None for values in numbers)
        yield name, study.role(name), *means, len(trials)
