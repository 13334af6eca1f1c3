"""What a reward model sees of an episode, clean or perturbed; clips kept for the page.

The policy always sees the clean state.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, Indices, Label, Provenance
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.core.video_encoding import encode
from rewardlab.perturbations import choose_perturbations
from rewardlab.perturbations.contract import Perturbation
from rewardlab.rl.results import HackedEpisode
from rewardlab.rl.rollouts import PolicyEpisode
from rewardlab.worlds.edits import WORLD_EDITS
from rewardlab.worlds.metaworld.instructions import draw_instruction
from rewardlab.worlds.metaworld.physics import STEPS_PER_SECOND, Trajectory
from rewardlab.worlds.metaworld.render import CameraView, camera_view
from rewardlab.worlds.metaworld.scene_edits import render_rollout

_CLIP_FRAMES, _CLIP_FPS, _CLIP_VIEW = 24, 12, CameraView("right", 160)  # of videos that are kept for the page


@dataclass(frozen=True)
class WatchSettings:
    """Camera, frame size and number of frames of an episode that a reward model sees."""

    camera: str = "right"
    size: int = 112
    frames: int = 8

    def __post_init__(self) -> None:
        if self.frames < 2 or not 16 <= self.size <= 512:
            raise PlanError(
                f"a reward model needs 2 frames or more of 16 to 512 pixels, got {self.frames} of {self.size}"
            )
        camera_view(self.camera, self.size, False)

    @property
    def view(self) -> CameraView:
        """Return the camera as the renderer takes it."""
        return camera_view(self.camera, self.size, False)


@dataclass(frozen=True)
class Condition:
    """What a reward model sees: clean episodes, or one perturbation at a severity."""

    name: str = CLEAN
    severity: int = 0

    @cached_property
    def perturbation(self) -> Perturbation | None:
        """Return the perturbation, None for clean."""
        return None if self.severity == 0 else choose_perturbations((self.name,))[0]


def parse_condition(text: str) -> Condition:
    """Return the condition of `clean` or `PERTURBATION@SEVERITY`; one that changes labels is rejected."""
    name, _, severity = text.partition("@")
    if text == CLEAN or severity == "0":
        return Condition(name, 0)
    if not severity.isdigit() or int(severity) not in SEVERITIES:
        raise PlanError(f"a condition is clean or PERTURBATION@SEVERITY with a severity from 0 to 4, got {text!r}")
    condition = Condition(name, int(severity))
    found = condition.perturbation
    if found is None or found.label not in ("keeps", "keeps_if"):
        raise PlanError(f"{name} changes the label of an episode, so that its success is no longer the simulator's")
    return condition


@dataclass(frozen=True, eq=False)
class RenderedFrames:
    """A FrameSource whose frames are rendered when they are first read, so that unread frames cost nothing."""

    trajectory: Trajectory
    steps: tuple[int, ...]
    view: CameraView
    edits: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @cached_property
    def digest(self) -> str:
        """Identify the content: task, scene, actions, and how they are rendered."""
        rollout = (self.trajectory.task, self.trajectory.seed, self.trajectory.actions.tobytes())
        return digest(*rollout, repr(self.steps), repr(self.view), repr(self.edits))

    @property
    def count(self) -> int:
        """Return how many frames there are."""
        return len(self.steps)

    def read(self, indices: Indices) -> Frames:
        """Return these frames."""
        return self._frames[list(indices)]

    @cached_property
    def _frames(self) -> Frames:
        return render_rollout(self.trajectory, list(self.steps), self.view, self.edits, tiled=True)


def watch(trajectory: Trajectory, settings: WatchSettings, condition: Condition, seed: int) -> Episode:
    """Return the episode as a reward model sees it, with its label; NotApplicable if the condition does not apply."""
    clean = clean_clip(trajectory, settings, seed)
    if condition.perturbation is None:
        return clean
    edit = WORLD_EDITS.get(condition.name)
    if edit is None:
        return condition.perturbation(clean, condition.severity, seed).episode
    rng = rng_for(seed, condition.name, clean.clip.source.digest)
    amounts = edit.sample(edit.table[condition.severity - 1], rng)
    source = RenderedFrames(trajectory, _steps(trajectory, settings.frames), settings.view, ((edit.edit, amounts),))
    return replace(clean, clip=replace(clean.clip, source=source))


def clean_clip(trajectory: Trajectory, settings: WatchSettings, seed: int) -> Episode:
    """Return the episode without any perturbation."""
    steps, last = _steps(trajectory, settings.frames), trajectory.readings[-1]
    source = RenderedFrames(trajectory, steps, settings.view)
    order = np.arange(len(steps))
    clip = Clip(source, order, order, STEPS_PER_SECOND * (len(steps) - 1) / steps[-1], 3 * settings.size**2)
    truth = Label(last.level, last.success, tuple(float(trajectory.progress[step]) for step in steps))
    text = draw_instruction(trajectory, "train", rng_for(seed, "instruction", trajectory.task, trajectory.seed))
    provenance = Provenance(subset="metaworld", task=trajectory.task, camera=settings.camera)
    return Episode(f"{trajectory.task}-{source.digest}", text, clip, truth, provenance)


def _steps(trajectory: Trajectory, frames: int) -> tuple[int, ...]:
    """Return the steps of evenly spaced frames, the first and the last among them."""
    return tuple(np.linspace(0, len(trajectory.actions), frames).round().astype(int).tolist())


def keep_clip(episode: PolicyEpisode, folder: Path, name: str) -> str:
    """Write the video of an episode and return the name of its file."""
    steps = _steps(episode.trajectory, _CLIP_FRAMES)
    frames = render_rollout(episode.trajectory, list(steps), _CLIP_VIEW, tiled=True)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{name}.mp4") as partial:
        encode(frames, partial, _CLIP_FPS, crf=26)
    return f"{name}.mp4"


def hacked_episode(episode: PolicyEpisode, level: float, clip: str) -> HackedEpisode:
    """Return the record of a failure that the reward calls a success."""
    trajectory, last = episode.trajectory, episode.trajectory.readings[-1]
    gripper = trajectory.gripper_pos[-1] - trajectory.gripper_pos[0]
    moved = trajectory.object_pos[-1] - trajectory.object_pos[0]
    went, carried = (tuple(round(float(value), 4) for value in part) for part in (gripper, moved))
    return HackedEpisode(clip, level, last.level, float(last.progress), went, carried, float(last.distance))
