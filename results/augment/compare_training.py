"""Do the factory's negatives teach to tell failures from successes? `compare_training.py JUDGED RUN OUT.json`.

RUN is the folder of a `rewardlab train objective`; its models judge held-out simulated episodes. Objectives of
without_negatives.py, and rewind, learn from successes alone. The success AUC is that of successes and failures of one
task, averaged over tasks; intervals are from drawing tasks again, the same for all.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import show_only, strip_labels
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Failure
from rewardlab.data import open_dataset
from rewardlab.models import name_model

DRAWS = 10_000
Floats = NDArray[np.float64]


def last_rewards(model: str, episodes: list) -> Floats:
    """Return the reward of the last frame of every episode."""
    built, found = name_model(model).build(), []
    for start in range(0, len(episodes), 16):
        for answer in built.score([strip_labels(episode) for episode in episodes[start : start + 16]]):
            found.append(float("nan") if isinstance(answer, Failure) else answer.progress[-1])
    return np.array(found)


def auc(rewards: Floats, success: NDArray[np.bool_]) -> float:
    """Return the chance that a success has more than a failure; ties are half right."""
    gaps = rewards[success][:, None] - rewards[~success][None]
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)


def by_task(rewards: Floats, episodes: list) -> dict[str, float]:
    """Return the success AUC of every task that has both."""
    tasks = np.array([episode.origin.task for episode in episodes])
    success = np.array([bool(episode.truth.success) for episode in episodes])
    both = [task for task in sorted(set(tasks)) if 0 < success[tasks == task].sum() < (tasks == task).sum()]
    return {task: auc(rewards[tasks == task], success[tasks == task]) for task in both}


def interval(values: Floats) -> list[float]:
    """Return the mean with its 95 % interval over tasks."""
    picks = rng_for(0, "tasks").integers(len(values), size=(DRAWS, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), (2.5, 97.5))
    return [round(float(values.mean()), 3), round(float(low), 3), round(float(high), 3)]


def main() -> None:
    """Judge with every model of the run and write the numbers."""
    judged, run, out = (Path(word) for word in sys.argv[1:])
    every = open_dataset(str(judged)).episodes
    episodes = [show_only(episode, np.array([len(episode.clip) - 1])) for episode in every]  # a reward sees one frame
    means: dict[str, Floats] = {}
    for folder in sorted(run.glob("trainings/*/*")):
        seeds = sorted(folder.glob("seed*"))
        scores = [by_task(last_rewards(f"contrastive:{seed}", episodes), episodes) for seed in seeds]
        means[folder.name] = np.mean([list(each.values()) for each in scores], axis=0)
    with_negatives = {name: each for name, each in means.items() if name in ("classification", "triplet")}
    found = {
        "episodes": len(episodes),
        "tasks": len(next(iter(means.values()))),
        "success_auc": {name: interval(each) for name, each in means.items()},
        "differences": {
            f"{name} - {other}": interval(each - means[other])
            for name, each in with_negatives.items()
            for other in means.keys() - with_negatives.keys()
        },
    }
    out.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2, sort_keys=True))


if __name__ == "__main__":
    main()
