"""Columns that metrics read beside those of a trial: the model's clean answer, and the cluster of the bootstrap."""

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics.progress_order import order_correlations


def with_clean_answers(trials: TrialTable) -> TrialTable:
    """Add what the same model said of the untouched episode: its level and the order of its progress."""
    level, order = clean_values(trials, trials.number("level"), order_correlations(trials))
    return trials.with_column("clean_level", level).with_column("clean_order", order)


def clean_values(trials: TrialTable, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return, for each column of one number per trial, that number of the same model on the untouched episode."""
    model, _ = trials.codes("model")
    episode, episodes = trials.codes("episode")
    known, place = np.unique(model * max(len(episodes), 1) + episode, return_inverse=True)
    clean = trials.matches("perturbation", CLEAN)
    found = []
    for values in columns:
        by_pair = np.full(len(known), np.nan)
        by_pair[place[clean]] = values[clean]
        found.append(by_pair[place])
    return found


def with_clusters(trials: TrialTable) -> TrialTable:
    """Add the number of the cluster that each trial belongs to; no task and no video is in two clusters."""
    return trials.with_column("cluster", cluster_codes(trials.codes("task")[0], trials.codes("video")[0]))


def cluster_codes(task: NDArray[np.int64], video: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cluster of each trial, numbered from 0: trials that share a task or a video are in the same one."""
    parent = list(range(int(task.max(initial=-1)) + 1))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first_task: dict[int, int] = {}
    for code, video_code in np.unique(np.stack([task, video], axis=1), axis=0).tolist():
        parent[root(code)] = root(first_task.setdefault(video_code, code))
    roots = np.array([root(node) for node in range(len(parent))], dtype=np.int64)
    return np.unique(roots[task], return_inverse=True)[1].astype(np.int64)
