"""Fit the thresholds of the controls that count moving pixels, on simulated rollouts.

    rewardlab collect metaworld --episodes 5 --balance --camera right,left --seed 42 --out rollouts
    python benchmarks/control_thresholds.py rollouts

The lines it prints are `THRESHOLDS` in src/rewardlab/models/controls.py: with them each level is as frequent as among
the labels of the rollouts. Which rollout has which label plays no part, so that a control learns nothing of success.
"""

import sys

import numpy as np

from rewardlab.core.episode import LEVELS
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models.controls import THRESHOLDS, pixel_changes


def main(data: str) -> None:
    """Print the thresholds of every control."""
    episodes = [sample_frames(episode, frame_policy("uniform:16")) for episode in open_dataset(data).episodes]
    levels = np.array([episode.label.level for episode in episodes])
    below = [float((levels < level).mean()) for level in LEVELS[1:]]
    found = [pixel_changes(episode) for episode in episodes]
    for name in THRESHOLDS:
        quantiles = np.quantile([changes[name] for changes in found], below)
        print(f'    "{name}": ({", ".join(f"{value:.3g}" for value in quantiles)}),')


if __name__ == "__main__":
    main(sys.argv[1])
