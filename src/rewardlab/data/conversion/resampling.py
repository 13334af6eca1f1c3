"""A rollout at another frame rate: at every tick of a clock the latest frame there is."""

from dataclasses import replace

import numpy as np

from rewardlab.core.episode import Episode, rearrange


def at_rate(episode: Episode, fps: float) -> Episode:
    """Return the rollout at an even rate; its first and its last frame are always shown, truth follows the frames."""
    if episode.clip.is_even and episode.clip.fps == fps and _is_whole(episode):
        return episode
    times = episode.times - episode.times[0]
    ticks = np.arange(round(float(times[-1]) * fps) + 1) / fps
    picks = np.searchsorted(times, ticks + 1e-6 / fps, side="right") - 1
    picks[-1] = len(times) - 1
    shown = rearrange(episode, picks)
    return replace(shown, clip=replace(shown.clip, fps=float(fps)))


def _is_whole(episode: Episode) -> bool:
    return np.array_equal(episode.clip.positions, np.arange(len(episode.clip)))
