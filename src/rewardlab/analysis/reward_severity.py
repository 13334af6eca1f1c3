"""Where learning breaks when the reward watches a perturbed world, and whether the certified severity foretells it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.analysis.rl_results import CellResult, RlResults
from rewardlab.metrics.policy_statistics import row_means, stratified_interval
from rewardlab.metrics.severity_threshold import severity_threshold

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


def _curve(results: RlResults, cells: Sequence[CellResult], reward: str, name: str) -> SeverityCurve:
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


def _compared_tasks(cells: Sequence[Sequence[CellResult]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tasks that were trained at the most severities, all at the same ones, and the other tasks."""
    trained = {task: tuple(task in _by_task(some) for some in cells) for some in cells for task in _by_task(some)}
    most = max(trained.values(), key=sum, default=())
    return tuple(t for t in trained if trained[t] == most), tuple(t for t in trained if trained[t] != most)


def right_at(perturbation: str, severity: int) -> str:
    """Return the name under which the share of rightly judged successes in a perturbed world is kept."""
    return f"right {perturbation}@{severity}"


def _is_at(cell: CellResult, name: str, level: int) -> bool:
    return cell.condition == (f"{name}@{level}" if level else "clean")


def _by_task(cells: Sequence[CellResult]) -> dict[str, list[float]]:
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
