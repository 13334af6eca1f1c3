"""Training runs in series, and whether offline quality or certified severity predicts their final success."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.metrics.policy_statistics import (
    clustered_correlation_interval,
    interquartile_mean,
    pearson,
    pooled,
    rank_correlation_of,
    row_means,
    stratified_interval,
)
from rewardlab.metrics.robustness import severity_threshold
from rewardlab.rl.results import RlResults, TrainingRunResult, accuracy_at, scored_at

LOWER_IS_BETTER = ("mae", "false_success", "missed_success")
_MAX_MAE = 4.0  # levels run from 1 to 5
SEVERITIES = (0, 1, 2, 3, 4)
BROKEN_BY = 0.2  # drop of success below the clean condition from which learning counts as broken
CERTIFIED_ACCURACY = 0.75  # success accuracy on held-out episodes from which a severity is certified
_ONE_SIDED = 0.9  # two-sided confidence whose lower end is the one-sided 95 % bound


@dataclass(frozen=True)
class CurveAt:
    """A learning curve at one moment: the interquartile mean over tasks and seeds, with its interval."""

    steps: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """Training runs with the same reward, condition and algorithm."""

    name: str
    reward: str
    condition: str
    algorithm: str
    training_runs: tuple[TrainingRunResult, ...]

    @property
    def tasks(self) -> list[str]:
        """Return its tasks, in order."""
        return list(dict.fromkeys(run.task for run in self.training_runs))

    def final(self) -> dict[str, list[float]]:
        """Return the final success of every seed, by task."""
        return {
            task: [c.success for c in self.training_runs if c.task == task and c.success is not None]
            for task in self.tasks
        }

    def gain(self) -> dict[str, list[float]]:
        """Return how far the final success of every seed is above that of the base policy, by task."""
        known = [c for c in self.training_runs if c.success is not None and c.base_success is not None]
        return {
            task: [(c.success or 0.0) - (c.base_success or 0.0) for c in known if c.task == task] for task in self.tasks
        }


def series_of(results: RlResults) -> list[Series]:
    """Return the series of a study, in the order of its plan; failed training runs are in none."""
    finished = [run for run in results.training_runs if run.status == "finished"]
    keys = dict.fromkeys((run.reward, run.condition, run.algorithm) for run in finished)
    varied = [len({key[place] for key in keys}) > 1 for place in range(3)]
    series = []
    for key in keys:  # it is named by what distinguishes it from the others
        name = ", ".join(part for part, differs in zip(key, varied, strict=True) if differs) or key[0]
        own = tuple(run for run in finished if (run.reward, run.condition, run.algorithm) == key)
        series.append(Series(name, *key, own))
    return series


def learning_curve(
    runs: Sequence[TrainingRunResult], base: Callable[[TrainingRunResult], float | None]
) -> list[CurveAt]:
    """Return the interquartile mean of success over training; it begins with the base policy."""
    before: dict[str, list[float]] = {}
    for run in runs:
        start = base(run)
        before.setdefault(run.task, []).extend([] if start is None else [start])
    moments = [(0.0, before)]
    for steps in sorted({point.steps for run in runs for point in run.points}):
        by_task: dict[str, list[float]] = {}
        for run in runs:
            by_task.setdefault(run.task, []).extend(point.success for point in run.points if point.steps == steps)
        moments.append((float(steps), by_task))
    return [
        CurveAt(steps, interquartile_mean(pooled(scores)), *stratified_interval(scores))
        for steps, scores in moments
        if len(pooled(scores))
    ]


def mean_success(series: Series) -> float:
    """Return the mean final success: over seeds, then over tasks; nan where there is none."""
    means = [float(np.mean(own)) for own in series.final().values() if own]
    return float(np.mean(means)) if means else float("nan")


@dataclass(frozen=True)
class QualityPoint:
    """One reward on one task: an offline measure, oriented so that more is better, and the mean final success."""

    reward: str
    task: str
    quality: float
    success: float


@dataclass(frozen=True)
class Prediction:
    """How well one offline measure predicts final success, over rewards and tasks."""

    measure: str
    pearson: float
    low: float
    high: float
    spearman: float
    points: int


def quality_points(results: RlResults, measure: str) -> list[QualityPoint]:
    """Return every reward on every task that was both measured offline and trained on."""
    offline = {(each.reward, each.task): each.measures.get(measure) for each in results.offline}
    found = []
    for series in series_of(results):
        for task, own in series.final().items():
            value = offline.get((series.reward, task))
            if value is not None and own and series.condition == "clean" and series.algorithm != "sac":
                if measure in LOWER_IS_BETTER:  # for MAE the largest possible one minus it, as in RoboReward
                    value = (_MAX_MAE if measure == "mae" else 1.0) - value
                found.append(QualityPoint(series.reward, task, value, float(np.mean(own))))
    return found


def predictions(results: RlResults) -> list[Prediction]:
    """Return how each offline measure predicts final success, the best first; the bootstrap resamples whole rewards."""
    names = dict.fromkeys(name for each in results.offline for name in each.measures if "@" not in name)
    found: list[Prediction] = []
    for name in names:
        points = quality_points(results, name)
        x = np.array([point.quality for point in points], np.float64)
        y = np.array([point.success for point in points], np.float64)
        low, high = clustered_correlation_interval(x, y, [point.reward for point in points])
        found.append(Prediction(name, pearson(x, y), low, high, rank_correlation_of(x, y), len(points)))
    return sorted(found, key=lambda each: -each.pearson if not np.isnan(each.pearson) else 2.0)


@dataclass(frozen=True)
class SeverityCurve:
    """The final success of one reward under one perturbation, by severity; nan where it was not trained."""

    reward: str
    perturbation: str
    success: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unscored: tuple[float, ...]  # fraction of training episodes without a score
    accuracy: tuple[float, ...]  # success accuracy on held-out episodes
    certified: int | None  # last severity with an accuracy surely at least CERTIFIED_ACCURACY; -1 for none
    holds: int | None  # last severity up to which learning is not broken
    left_out: tuple[str, ...] = ()  # tasks trained at fewer severities, which would bias the means

    @property
    def is_open(self) -> bool:
        """Tell whether the severity after the last that holds was not trained, so that nothing is known of it."""
        return self.holds is not None and self.holds < SEVERITIES[-1] and np.isnan(self.success[self.holds + 1])


def finished_dsrl(results: RlResults) -> list[TrainingRunResult]:
    """Return the training runs that are finished, without those of plain SAC, which steers no base policy."""
    return [run for run in results.training_runs if run.status == "finished" and run.algorithm != "sac"]


def severity_curves(results: RlResults) -> list[SeverityCurve]:
    """Return a curve per reward and perturbation; severity 0 is the clean condition for all of them."""
    finished = finished_dsrl(results)
    rewards = list(dict.fromkeys(run.reward for run in finished if run.reward != "true"))
    names = list(dict.fromkeys(run.condition.partition("@")[0] for run in finished if "@" in run.condition))
    return [_curve(results, finished, reward, name) for reward in rewards for name in names]


def _curve(results: RlResults, runs: Sequence[TrainingRunResult], reward: str, name: str) -> SeverityCurve:
    conditions = [f"{name}@{level}" if level else "clean" for level in SEVERITIES]
    every = [[run for run in runs if run.reward == reward and run.condition == each] for each in conditions]
    # Compared are the tasks that were trained at the most severities, all at the same ones.
    trained = {task: tuple(task in _by_task(some) for some in every) for some in every for task in _by_task(some)}
    most = max(trained.values(), key=sum, default=())
    left_out = tuple(task for task in trained if trained[task] != most)
    own = [[run for run in some if trained.get(run.task) == most] for some in every]
    means = [[np.mean(values) for values in _by_task(some).values()] for some in own]
    success = tuple(float(np.mean(each)) if each else float("nan") for each in means)
    ends = [stratified_interval(_by_task(some), row_means) for some in own]
    queried = [sum(run.queried for run in some) for some in own]
    unscored = [
        sum(run.unscored for run in some) / whole if whole else float("nan")
        for some, whole in zip(own, queried, strict=True)
    ]
    measured = next((each for each in results.offline if each.reward == reward and not each.task), None)
    measures, episodes = (measured.measures, measured.episodes) if measured else ({}, 0)
    found = [measures.get(accuracy_at(name, level)) for level in SEVERITIES]
    accuracy = tuple(float("nan") if value is None else value for value in found)
    scored = [measures.get(scored_at(name, level)) for level in SEVERITIES]  # older records do not count them
    counts = [episodes if count is None else int(count) for count in scored]
    lows = [_lower(share, count) for share, count in zip(accuracy, counts, strict=True)]
    return SeverityCurve(
        reward,
        name,
        success,
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
        tuple(unscored),
        accuracy,
        severity_threshold(lows, CERTIFIED_ACCURACY),
        severity_threshold(success, success[0] - BROKEN_BY),
        left_out,
    )


def _by_task(runs: Sequence[TrainingRunResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.success is not None:
            found.setdefault(run.task, []).append(run.success)
    return found


def _lower(proportion: float, count: int) -> float:
    """Return the lower end of Wilson's interval of a proportion; episodes are drawn one by one, without clusters."""
    from scipy.stats import binomtest

    if np.isnan(proportion) or not count:
        return float("nan")
    return float(binomtest(round(proportion * count), count).proportion_ci(_ONE_SIDED, "wilson").low)
