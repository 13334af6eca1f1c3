"""Replay: a recorded rollout taken again, action by action, and rendered anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, Indices
from rewardlab.core.errors import DataError
from rewardlab.worlds.metaworld.physics import MAX_STEPS, Trajectory, replay_actions, simulator_versions
from rewardlab.worlds.metaworld.render import MAX_SIDE, CameraView, camera_view
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from rewardlab.worlds.metaworld.tasks import OBJECT_COLOURS
from rewardlab.worlds.offscreen import in_rendering_thread

_ACTIONS_BYTES = 1_000_000  # of the recorded actions; 500 steps need 8,000


@dataclass(frozen=True)
class RolloutRecord:
    """What is stored about a rollout beside its actions; every `stride`-th step is a frame, and the last step."""

    task: str
    seed: int
    steps: int
    stride: int
    end: float
    view: CameraView
    changes: tuple[tuple[str, tuple[float, ...]], ...] = ()  # what was already changed when it was recorded

    def video_steps(self) -> NDArray[np.int64]:
        """Return the step behind each frame of the video."""
        return video_steps(self.steps, self.stride)


@dataclass(frozen=True, eq=False)
class ReplayedRollout:
    """A World: the rollout of a record with its trajectory."""

    record: RolloutRecord
    trajectory: Trajectory

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Return these frames of the video rendered again, with a named edit of the scene or none."""
        steps = self.record.video_steps()[frames].tolist()
        more = ((change, tuple(amounts)),) if change else ()
        return render_rollout(self.trajectory, steps, self.record.view, (*self.record.changes, *more))


def video_steps(steps: int, stride: int) -> NDArray[np.int64]:
    """Return the steps that become frames: every `stride`-th from the start, so that the last is the last step."""
    return np.arange(steps % stride, steps + 1, stride)


def record_json(trajectory: Trajectory, record: RolloutRecord) -> dict[str, object]:
    """Return the JSON record of a rollout; the actions go into a file of their own."""
    view = record.view
    return {
        "kind": "metaworld",
        "task": trajectory.name,
        "seed": trajectory.seed,
        "steps": len(trajectory.actions),
        "stride": record.stride,
        "end": round(float(trajectory.progress[-1]), 4),
        "camera": view.camera,
        "size": view.size,
        "marker": view.marker,
        "changes": [[name, *amounts] for name, amounts in record.changes],
        "colours": list(dict.fromkeys(c for t in trajectory.name.split("+") for c in OBJECT_COLOURS.get(t, ()))),
        **simulator_versions(),
    }


@in_rendering_thread
def open_record(record: Mapping[str, object]) -> ReplayedRollout:
    """Return the world of a record; DataError if its actions are missing or lead elsewhere on this machine."""
    facts, path = _read(record)
    return _replayed_rollout(
        facts, path, tuple(sorted((str(k), str(v)) for k, v in record.items() if k in simulator_versions()))
    )


@lru_cache(maxsize=8)  # a stress test asks for the same episode under many changes
def _replayed_rollout(record: RolloutRecord, path: str, made_with: tuple[tuple[str, str], ...]) -> ReplayedRollout:
    actions = _actions(path)
    if len(actions) != record.steps:
        raise DataError(
            f"{path} holds {len(actions)} actions, the record says {record.steps}; collect the episode anew"
        )
    trajectory = replay_actions(record.task, record.seed, actions)
    if abs(float(trajectory.progress[-1]) - record.end) > 1e-3:
        raise DataError(
            f"{record.task} seed {record.seed} ends at progress {trajectory.progress[-1]:.3f} here, {record.end:.3f} "
            f"when it was recorded with {dict(made_with)}; this machine has {simulator_versions()}"
        )
    return ReplayedRollout(record, trajectory)


def _actions(path: str) -> NDArray[np.float32]:
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > _ACTIONS_BYTES:  # a pipe would be waited for
            raise ValueError(f"expected a file of at most {_ACTIONS_BYTES:,} bytes")
        return np.asarray(np.lib.format.open_memmap(file, mode="r"), np.float32).reshape(-1, 4)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the recorded actions cannot be read ({error}); copy the file again") from error


def _read(record: Mapping[str, object]) -> tuple[RolloutRecord, str]:
    row: Any = record
    try:
        view = camera_view(str(row["camera"]), int(row["size"]), bool(row["marker"]))
        if not 0 < int(row["steps"]) <= MAX_STEPS or not 0 < int(row["size"]) <= MAX_SIDE or int(row["stride"]) < 1:
            raise ValueError(f"at most {MAX_STEPS} steps and frames of {MAX_SIDE} pixels, and a stride of at least 1")
        facts = RolloutRecord(
            str(row["task"]),
            int(row["seed"]),
            int(row["steps"]),
            int(row["stride"]),
            float(row["end"]),
            view,
            tuple((str(name), tuple(float(a) for a in amounts)) for name, *amounts in row["changes"]),
        )
        return facts, str(row["file"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"a metaworld record needs task, seed, steps, stride, end, camera, size, file: {error}"
        ) from error
