"""The static control of a protocol: the first frame in place of every frame, to see whether a model counts frames."""

import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.models.model_string import one_of


def check_control(control: str) -> None:
    """Check, in a `__post_init__`, the option control."""
    one_of("control", control, ("none", "static"))


def controlled_frames(episode: Episode, control: str) -> Frames:
    """Return the frames of an episode, or as many copies of the first for the static control."""
    frames = episode.frames
    return frames[np.zeros(len(frames), dtype=np.int64)] if control == "static" else frames
