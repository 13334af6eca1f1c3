"""Prints the mean error of the level on clean rollouts, tasks that were trained on apart from others.

    python results/vlm/known_unseen.py

It reads the runs that are kept here and in results/robustness, which are of the same 700 rollouts. Intervals are 95 %
bootstrap over tasks.
"""

import sys
from pathlib import Path

import numpy as np

from rewardlab.core.run import Run
from rewardlab.core.trial import Trial
from rewardlab.worlds.metaworld.tasks import unseen_tasks

RESULTS = Path(__file__).resolve().parent.parent
sys.path.append(str(RESULTS / "ablation"))
from read_ablation import interval  # noqa: E402

RUNS = {"hf:smol-reward": "vlm", "pocket": "robustness", "constant": "vlm"}


def main() -> None:
    unseen = unseen_tasks(0)
    for model, folder in RUNS.items():
        trials = [t for t in Run(RESULTS / folder / "run").trials().rows() if t.model == model and not t.severity]
        known = [t for t in trials if t.task not in unseen]
        others = [t for t in trials if t.task in unseen]
        print(f"{model:<16}{error(known):>20} of {len(known)}{error(others):>20} of {len(others)}")


def error(trials: list[Trial]) -> str:
    levels = [(t.level, t.truth_level) for t in trials if t.level is not None and t.truth_level is not None]
    return interval(np.abs(np.subtract(*np.array(levels).T)), np.array([t.task for t in trials]))


if __name__ == "__main__":
    main()
