"""Clustered bootstraps of tau-b, MAE and accuracy at the size of RoboRewardBench: all draws at once, or one by one.

    python benchmarks/bootstrap_speed.py [--draws 10000] [--by-hand 200]

The rival resamples tasks, writes the trials out and calls scipy and numpy on them, as papers do. It is timed on the
first `--by-hand` of the same draws and extrapolated to all of them; on those, both must give the same numbers.
The last line is `ratio: X`, the seconds of the rival over ours.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.clustered_bootstrap import Draws, cluster_sums, draw_clusters
from rewardlab.metrics.rank_correlation import pair_draws

TRIALS, TASKS = 2831, 600
Numbers = NDArray[np.float64]


def study() -> tuple[Numbers, Numbers, NDArray[np.int64]]:
    """Return scores, true levels and tasks of as many trials as RoboRewardBench has."""
    rng = rng_for(0, "bootstrap speed")
    task = np.append(np.arange(TASKS), rng.integers(0, TASKS, TRIALS - TASKS))
    truth = rng.integers(1, 6, TRIALS).astype(np.float64)
    return np.clip(truth + rng.integers(-2, 3, TRIALS), 1, 5), truth, task


def all_at_once(scores: Numbers, truth: Numbers, task: NDArray[np.int64], draws: int) -> tuple[Numbers, Draws]:
    """Return tau-b, MAE and accuracy (rows) in every draw; drawing the tasks is part of the work."""
    drawn = draw_clusters(TASKS, draws, seed=0)
    tau = pair_draws(scores, truth, task, drawn).tau_b()
    sums = [cluster_sums(values, task, TASKS) for values in (np.abs(scores - truth), (scores == truth).astype(float))]
    means = drawn.ratios(np.stack([above for above, _ in sums]), np.stack([below for _, below in sums]))
    return np.vstack([tau, means]), drawn


def one_by_one(scores: Numbers, truth: Numbers, task: NDArray[np.int64], drawn: Draws, draws: int) -> Numbers:
    """Return the same from trials written out draw by draw."""
    members = [np.flatnonzero(task == number) for number in range(TASKS)]
    found = np.empty((3, draws))
    for draw in range(draws):
        chosen = np.repeat(np.arange(TASKS), drawn.counts[:, draw])
        rows = np.concatenate([members[number] for number in chosen])
        said, true = scores[rows], truth[rows]
        found[:, draw] = kendalltau(said, true).statistic, np.abs(said - true).mean(), (said == true).mean()
    return found


def measured(name: str, scores: Numbers, truth: Numbers, task: NDArray[np.int64], options: argparse.Namespace) -> float:
    """Time both, check that they agree, and return how many times faster ours is."""
    started = time.perf_counter()
    ours, drawn = all_at_once(scores, truth, task, options.draws)
    ours_s = time.perf_counter() - started
    started = time.perf_counter()
    theirs = one_by_one(scores, truth, task, drawn, options.by_hand)
    theirs_s = (time.perf_counter() - started) * options.draws / options.by_hand
    gap = np.abs(ours[:, : options.by_hand] - theirs).max()
    assert gap < 1e-12, f"the two disagree by {gap}"
    print(f"{name}: {options.draws} draws of {TRIALS} trials in {TASKS} tasks, largest disagreement {gap:.0e}")
    print(f"  all at once {ours_s:.2f} s")
    print(f"  one by one  {theirs_s:.1f} s, extrapolated from {options.by_hand} draws: {theirs_s / ours_s:.0f} times")
    return theirs_s / ours_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--by-hand", type=int, default=200)
    options = parser.parse_args()
    scores, truth, task = study()
    all_at_once(scores, truth, task, 100)  # warm up: imports and the file cache
    one_by_one(scores, truth, task, draw_clusters(TASKS, 2, seed=0), 2)
    fractional = scores + 0.3 * rng_for(1, "bootstrap speed").random(TRIALS)
    measured("fractional scores", fractional, truth, task, options)
    print(f"ratio: {measured('whole levels', scores, truth, task, options):.1f}")


if __name__ == "__main__":
    main()
