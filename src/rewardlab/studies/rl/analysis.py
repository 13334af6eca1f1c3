"""Training runs in series; does offline quality or certified severity predict them."""

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
from rewardlab.rl.results import RlResults, TrainingRunResult, right_at


@dataclass(frozen=True)
class CurveAt:
    """A learning curve at one moment: the interquartile mean over tasks and seeds, with its interval."""

    steps: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """Trainings with the same reward, condition and algorithm."""

    name: str
    reward: str
    condition: str
    algorithm: str
    cells: tuple[TrainingRunResult, ...]

    @property
    def tasks(self) -> list[str]:
        """Return its tasks, in order."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def final(self) -> dict[str, list[float]]:
        """Return the final success of every seed, by task."""
        return {
            task: [c.success for c in self.cells if c.task == task and c.success is not None] for task in self.tasks
        }

    def gain(self) -> dict[str, list[float]]:
        """Return how far the final success of every seed is above that of the base policy, by task."""
        known = [c for c in self.cells if c.success is not None and c.base_success is not None]
        return {
            task: [(c.success or 0.0) - (c.base_success or 0.0) for c in known if c.task == task] for task in self.tasks
        }


def series_of(results: RlResults) -> list[Series]:
    """Return the series of a study, in the order of its plan; cells that failed are in none."""
    finished = [cell for cell in results.cells if cell.status == "finished"]
    keys = dict.fromkeys((cell.reward, cell.condition, cell.algorithm) for cell in finished)
    return [
        Series(_name(key, list(keys)), *key, tuple(c for c in finished if (c.reward, c.condition, c.algorithm) == key))
        for key in keys
    ]


def learning_curve(
    cells: Sequence[TrainingRunResult], base: Callable[[TrainingRunResult], float | None]
) -> list[CurveAt]:
    """Return the interquartile mean of success over training; it begins with the base policy."""
    moments = sorted({point.steps for cell in cells for point in cell.points})
    start = _at(0.0, {c.task: [v for o in cells if o.task == c.task and (v := base(o)) is not None] for c in cells})
    found = [start] if start is not None else []
    for steps in moments:
        by_task: dict[str, list[float]] = {}
        for cell in cells:
            by_task.setdefault(cell.task, []).extend(point.success for point in cell.points if point.steps == steps)
        at = _at(float(steps), by_task)
        found += [at] if at is not None else []
    return found


def _at(steps: float, scores: dict[str, list[float]]) -> CurveAt | None:
    values = pooled(scores)
    if not len(values):
        return None
    return CurveAt(steps, interquartile_mean(values), *stratified_interval(scores))


def mean_success(series: Series) -> float:
    """Return the mean final success: over seeds, then over tasks; nan where there is none."""
    means = [float(np.mean(own)) for own in series.final().values() if own]
    return float(np.mean(means)) if means else float("nan")


def _name(key: tuple[str, str, str], keys: Sequence[tuple[str, str, str]]) -> str:
    """Return what tells a series from the others of its study."""
    varied = [len({other[place] for other in keys}) > 1 for place in range(3)]
    parts = [key[0]] if varied[0] or not any(varied) else []
    parts += [key[1]] if varied[1] else []
    parts += [key[2]] if varied[2] else []
    return ", ".join(parts)


# Does a reward that is better offline train better policies? Final success against every offline measure.

LOWER_IS_BETTER = ("mae", "false_success", "missed_success")
_MOST_MAE = 4.0  # levels run from 1 to 5


@dataclass(frozen=True)
class QualityPoint:
    """One reward on one task: an offline measure, turned so that more is better, and the mean final success."""

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
    """Return every reward on every task that was both measured offline and learned from."""
    offline = {(each.reward, each.task): each.measures.get(measure) for each in results.offline}
    found = []
    for series in series_of(results):
        for task, own in series.final().items():
            value = offline.get((series.reward, task))
            if value is not None and own and _is_plain(series):
                found.append(QualityPoint(series.reward, task, _turned(measure, value), float(np.mean(own))))
    return found


def predictions(results: RlResults) -> list[Prediction]:
    """Return how each offline measure predicts final success, the best first; intervals draw whole rewards again."""
    names = dict.fromkeys(name for each in results.offline for name in each.measures if "@" not in name)
    found = [_prediction(results, name) for name in names]
    return sorted(found, key=lambda each: -each.pearson if not np.isnan(each.pearson) else 2.0)


def _prediction(results: RlResults, measure: str) -> Prediction:
    points = quality_points(results, measure)
    x, y = (np.array([vars(point)[name] for point in points], np.float64) for name in ("quality", "success"))
    low, high = clustered_correlation_interval(x, y, [point.reward for point in points])
    return Prediction(measure, pearson(x, y), low, high, rank_correlation_of(x, y), len(points))


def _turned(measure: str, value: float) -> float:
    """Return a measure so that more is better: for MAE the largest possible one less it, as RoboReward plots it."""
    if measure not in LOWER_IS_BETTER:
        return value
    return (_MOST_MAE if measure == "mae" else 1.0) - value


def _is_plain(series: Series) -> bool:
    return series.condition == "clean" and series.algorithm == "dsrl"


# Where learning breaks when the reward watches a perturbed world, and whether the certified severity foretells it.

SEVERITIES = (0, 1, 2, 3, 4)
BROKEN_BY = 0.2  # points of success below the clean world at which learning counts as broken
RIGHT_AT_LEAST = 0.75  # share of held-out episodes whose success must be judged right for a severity to be relied on
_ONE_SIDED = 0.9  # two-sided confidence whose lower end is the one-sided 95 % bound


@dataclass(frozen=True)
class SeverityCurve:
    """The final success of one reward under one perturbation, by severity; nan where it was not trained."""

    reward: str
    perturbation: str
    success: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    silent: tuple[float, ...]  # share of training episodes that the reward gave no answer to
    right: tuple[float, ...]  # share of held-out episodes whose success it judges right
    certified: int | None  # last severity at which `right` is surely at least RIGHT_AT_LEAST; -1 for none
    holds: int | None  # last severity up to which learning is not broken
    left_out: tuple[str, ...] = ()  # tasks that were trained at fewer severities, which would tilt the means

    @property
    def is_open(self) -> bool:
        """Tell whether nothing is known of the severity after the last that holds: it was not trained."""
        return self.holds is not None and self.holds < SEVERITIES[-1] and np.isnan(self.success[self.holds + 1])


def severity_curves(results: RlResults) -> list[SeverityCurve]:
    """Return a curve per reward and perturbation; severity 0 is the clean world for all of them."""
    finished = [cell for cell in results.cells if cell.status == "finished" and cell.algorithm == "dsrl"]
    rewards = list(dict.fromkeys(cell.reward for cell in finished if cell.reward != "true"))
    names = list(dict.fromkeys(cell.condition.partition("@")[0] for cell in finished if "@" in cell.condition))
    return [_curve(results, finished, reward, name) for reward in rewards for name in names]


def _curve(results: RlResults, cells: Sequence[TrainingRunResult], reward: str, name: str) -> SeverityCurve:
    of_reward = [cell for cell in cells if cell.reward == reward]
    every = [[cell for cell in of_reward if _is_at(cell, name, level)] for level in SEVERITIES]
    compared, left_out = _compared_tasks(every)
    own = [[cell for cell in some if cell.task in compared] for some in every]
    success = tuple(_mean([_by_task(some)[task] for task in _by_task(some)]) for some in own)
    ends = [stratified_interval(_by_task(some), row_means) for some in own]
    silent = tuple(_share([(cell.silent, cell.asked) for cell in some]) for some in own)
    measured = next((each for each in results.offline if each.reward == reward and not each.task), None)
    right = tuple(
        float("nan") if measured is None or (value := measured.measures.get(right_at(name, level))) is None else value
        for level in SEVERITIES
    )
    count = measured.episodes if measured else 0
    lows = [_lower(share, count) for share in right]
    return SeverityCurve(
        reward,
        name,
        success,
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
        silent,
        right,
        severity_threshold(lows, RIGHT_AT_LEAST),
        severity_threshold(success, success[0] - BROKEN_BY),
        left_out,
    )


def _compared_tasks(cells: Sequence[Sequence[TrainingRunResult]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tasks that were trained at the most severities, all at the same ones, and the other tasks."""
    trained = {task: tuple(task in _by_task(some) for some in cells) for some in cells for task in _by_task(some)}
    most = max(trained.values(), key=sum, default=())
    return tuple(t for t in trained if trained[t] == most), tuple(t for t in trained if trained[t] != most)


def _is_at(cell: TrainingRunResult, name: str, level: int) -> bool:
    return cell.condition == (f"{name}@{level}" if level else "clean")


def _by_task(cells: Sequence[TrainingRunResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for cell in cells:
        if cell.success is not None:
            found.setdefault(cell.task, []).append(cell.success)
    return found


def _mean(by_task: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.mean(own) for own in by_task])) if by_task else float("nan")


def _share(counts: Sequence[tuple[int, int]]) -> float:
    asked = sum(total for _, total in counts)
    return sum(part for part, _ in counts) / asked if asked else float("nan")


def _lower(share: float, count: int) -> float:
    """Return the lower end of Wilson's interval of a share; episodes are drawn one by one, so none is a cluster."""
    from scipy.stats import binomtest

    if np.isnan(share) or not count:
        return float("nan")
    return float(binomtest(round(share * count), count).proportion_ci(_ONE_SIDED, "wilson").low)
