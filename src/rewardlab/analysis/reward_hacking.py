"""Reward hacking: false successes before and after learning, and the ways in which policies come by them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.analysis.rl_results import CellResult, FalseSuccess, HackedEpisode, RlResults

_APART = 0.08  # metres (or levels / 12) between clusters: what ends nearer is the same trick
_LEVEL_SCALE = 1 / 12  # how far apart two true levels are, in metres of motion


@dataclass(frozen=True)
class HackingRate:
    """The share of failures that a reward calls successes, of the base policy and of what was trained on it."""

    reward: str
    condition: str
    before: FalseSuccess
    after: FalseSuccess

    @property
    def rates(self) -> tuple[float, float]:
        """Return the shares before and after; nan where there was no failure."""
        return _rate(self.before), _rate(self.after)


@dataclass(frozen=True)
class HackingCluster:
    """False successes of one reward on one task that end alike."""

    task: str
    reward: str
    condition: str
    episodes: tuple[HackedEpisode, ...]

    @property
    def description(self) -> str:
        """Say how these episodes end: where the gripper went, whether the object moved, and how far the task is."""
        moved = np.mean([np.linalg.norm(each.moved) for each in self.episodes])
        gripper = np.mean([each.gripper for each in self.episodes], axis=0)
        level = float(np.mean([each.true_level for each in self.episodes]))
        what = "the object is not moved" if moved < 0.01 else f"the object is moved by {100 * moved:.0f} cm"
        return f"{what}, the gripper goes {_way(gripper)}; true level {level:.1f}"

    @property
    def clips(self) -> tuple[str, ...]:
        """Return the videos that were kept of it."""
        return tuple(each.clip for each in self.episodes if each.clip)


def hacking_rates(results: RlResults) -> list[HackingRate]:
    """Return the rates of every reward and condition that was asked by a model, over tasks and seeds."""
    finished = [cell for cell in results.cells if cell.status == "finished" and cell.reward != "true"]
    keys = dict.fromkeys((cell.reward, cell.condition) for cell in finished if cell.algorithm == "dsrl")
    return [_hacking_rate(key, [c for c in finished if (c.reward, c.condition) == key]) for key in keys]


def hacking_clusters(results: RlResults) -> list[HackingCluster]:
    """Return the clusters of false successes, the largest first."""
    keys = dict.fromkeys((cell.task, cell.reward, cell.condition) for cell in results.cells if cell.hacked)
    found: list[HackingCluster] = []
    for key in keys:
        episodes = [e for c in results.cells if (c.task, c.reward, c.condition) == key for e in c.hacked]
        found += [HackingCluster(*key, tuple(some)) for some in cluster_episodes(episodes)]
    return sorted(found, key=lambda cluster: -len(cluster.episodes))


def cluster_episodes(episodes: Sequence[HackedEpisode]) -> list[list[HackedEpisode]]:
    """Return episodes in clusters by average linkage of how gripper and object moved and of their true level."""
    if len(episodes) < 2:
        return [list(episodes)] if episodes else []
    from scipy.cluster.hierarchy import fcluster, linkage

    labels = fcluster(linkage(_features(episodes), "average"), _APART, "distance")
    return [[e for e, label in zip(episodes, labels) if label == number] for number in sorted(set(labels.tolist()))]


def _features(episodes: Sequence[HackedEpisode]) -> NDArray[np.float64]:
    return np.array([[*e.gripper, *e.moved, _LEVEL_SCALE * e.true_level] for e in episodes], np.float64)


def _hacking_rate(key: tuple[str, str], cells: Sequence[CellResult]) -> HackingRate:
    return HackingRate(*key, _total([cell.before for cell in cells]), _total([cell.after for cell in cells]))


def _total(counts: Sequence[FalseSuccess]) -> FalseSuccess:
    return FalseSuccess(
        sum(each.failures for each in counts), sum(each.called for each in counts), sum(e.episodes for e in counts)
    )


def _rate(counted: FalseSuccess) -> float:
    return counted.called / counted.failures if counted.failures else float("nan")


def _way(displacement: NDArray[np.float64]) -> str:
    """Return the direction of the largest part of a displacement, in the robot's frame."""
    names = (("right", "left"), ("away from the robot", "towards the robot"), ("up", "down"))
    axis = int(np.abs(displacement).argmax())
    return f"{100 * abs(displacement[axis]):.0f} cm {names[axis][0 if displacement[axis] > 0 else 1]}"
