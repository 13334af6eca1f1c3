"""The trainings of a study in series: those that differ in task and seed alone belong together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.analysis.rl_results import CellResult, RlResults
from rewardlab.metrics.policy_statistics import interquartile_mean, pooled, stratified_interval


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
    cells: tuple[CellResult, ...]

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


def learning_curve(cells: Sequence[CellResult], base: Callable[[CellResult], float | None]) -> list[CurveAt]:
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
