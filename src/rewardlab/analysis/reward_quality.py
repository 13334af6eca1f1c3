"""Does a reward that is better offline train better policies? Final success against every offline measure."""

from dataclasses import dataclass

import numpy as np

from rewardlab.analysis.rl_results import RlResults
from rewardlab.analysis.rl_series import Series, series_of
from rewardlab.metrics.policy_statistics import clustered_correlation_interval, pearson, rank_correlation_of

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
