"""Clips of policies: short videos of single episodes, and what an episode that fooled its reward looked like."""

from pathlib import Path

import numpy as np

from rewardlab.analysis.rl_results import HackedEpisode
from rewardlab.core.run import atomic_write
from rewardlab.h264_encoding import encode
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import render_rollout

_FRAMES, _FPS = 24, 12
_VIEW = CameraView("right", 160)


def keep_clip(episode: PolicyEpisode, folder: Path, name: str) -> str:
    """Write the video of an episode and return the name of its file."""
    steps = np.linspace(0, len(episode.trajectory.actions), _FRAMES).round().astype(int).tolist()
    frames = render_rollout(episode.trajectory, steps, _VIEW, tiled=True)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{name}.mp4") as partial:
        encode(frames, partial, _FPS, crf=26)
    return f"{name}.mp4"


def hacked_episode(episode: PolicyEpisode, level: float, clip: str) -> HackedEpisode:
    """Return what is kept of an episode that its reward took for a success."""
    trajectory, last = episode.trajectory, episode.trajectory.readings[-1]
    gripper = trajectory.gripper_pos[-1] - trajectory.gripper_pos[0]
    moved = trajectory.object_pos[-1] - trajectory.object_pos[0]
    went, carried = (tuple(round(float(value), 4) for value in part) for part in (gripper, moved))
    return HackedEpisode(clip, level, last.level, float(last.progress), went, carried, float(last.distance))
