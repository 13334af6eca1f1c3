"""Success AUC of pocket on recordings of real robots, which it never saw.

    python results/pocket/real_clips.py sample [FOLDER ...]

For each dataset: the chance that a success gets a higher probability of level 5 than another clip, with a 95 % interval
(bootstrap over tasks), and the MAE beside that of the best constant, which is chosen with hindsight.
"""

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from read_probes import auc

from rewardlab.core.episode import Episode
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model

MODELS = ("pocket", "pocket-plain")
DRAWS = 10_000


def main(datasets: Sequence[str]) -> None:
    for data in datasets:
        clips = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset(data).episodes]
        for name in MODELS:
            print(f"{data:24} {name:14} {judged(name, clips)}")


def judged(name: str, clips: Sequence[Episode]) -> str:
    model = name_model(name).build()
    answers = [answer for start in range(0, len(clips), 16) for answer in model.score(clips[start : start + 16])]
    scored = [
        (clip, a)
        for clip, a in zip(clips, answers, strict=True)
        if isinstance(a, Score) and clip.label.success is not None
    ]
    chance = np.array([answer.probabilities[4] for _, answer in scored])
    done = np.array([clip.label.success for clip, _ in scored])
    task = np.unique([clip.instruction for clip, _ in scored], return_inverse=True)[1]
    low, high = interval(chance, done, task)
    area = f"success AUC {auc(chance, done):.2f} [{low:.2f}, {high:.2f}]"
    return (
        f"{area}, {errors(scored)}, {len(scored)} of {len(clips)} clips, {done.sum()} successes, {task.max() + 1} tasks"
    )


def errors(scored: Sequence[tuple[Episode, Score]]) -> str:
    known = [(clip.label.level, answer.level) for clip, answer in scored if clip.label.level is not None]
    level, told = np.array(known, dtype=float).T
    blind = min(np.abs(constant - level).mean() for constant in range(1, 6))
    return f"MAE {np.abs(told - level).mean():.2f} (best constant {blind:.2f}) on {len(level)} with a level"


def interval(score: NDArray[np.float64], done: NDArray[np.bool_], task: NDArray[np.int64]) -> tuple[float, float]:
    rng, rows = rng_for(0, "real clips"), [np.flatnonzero(task == one) for one in np.unique(task)]
    drawn = [np.concatenate([rows[i] for i in rng.integers(len(rows), size=len(rows))]) for _ in range(DRAWS)]
    areas = [auc(score[picked], done[picked]) for picked in drawn]
    low, high = np.nanquantile(areas, (0.025, 0.975))
    return float(low), float(high)


if __name__ == "__main__":
    main(sys.argv[1:])
