"""One entry of each kind, as pyproject.toml registers them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab import Episode, Score
from rewardlab.core.episode import Frames, Label, episode_from_frames
from rewardlab.core.trial_table import TrialTable
from rewardlab.data.contract import Contents, Reader
from rewardlab.metrics.contract import metric
from rewardlab.perturbations.contract import on_frames


@dataclass(frozen=True)
class Brightness:
    """Reward a bright last frame, from 1 to 5."""

    gain: float = 1.0

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        """Return the brightness of the last frame on the scale of levels."""
        return [Score(float(np.clip(1 + 4 * self.gain * e.frames[-1].mean() / 255, 1, 5))) for e in episodes]


@on_frames("visual", parameter="gain", table=(0.8, 0.6, 0.5, 0.3))
def half_light(frames: Frames, gain: float, rng: np.random.Generator) -> Frames:  # noqa: ARG001
    """Half of the lamps are off."""
    return (frames * gain).astype(np.uint8)


@metric(better="higher")
def mean_level(trials: TrialTable) -> float:
    """Mean level of all answers."""
    return float(np.nanmean(trials.number("level")))


def halfway(batch: Any, target: float = 0.5) -> Any:
    """Pull every frame halfway to its instruction."""
    return ((batch.value - target) ** 2).mean()


def _read(folder: Path) -> Contents:
    files = sorted(folder.glob("*.npy"))
    return Contents(tuple(episode_from_frames(np.load(file), file.stem, label=Label(level=5)) for file in files), ())


ARRAYS = Reader("arrays", "clips as .npy files", "*.npy files", lambda folder: any(folder.glob("*.npy")), _read)
