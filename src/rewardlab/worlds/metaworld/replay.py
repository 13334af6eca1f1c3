"""Replay: a recorded rollout taken again, action by action, and filmed anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, Indices
from rewardlab.core.errors import DataError
from rewardlab.worlds.metaworld.objects import COLOURS
from rewardlab.worlds.metaworld.physics import Trace, repeat, versions
from rewardlab.worlds.metaworld.render import CameraView, camera_view
from rewardlab.worlds.metaworld.scene_edits import render_rollout


@dataclass(frozen=True)
class Record:
    """What is stored about a rollout beside its actions; every `stride`-th step is a frame, and the last step."""

    task: str
    seed: int
    steps: int
    stride: int
    end: float
    look: CameraView
    changes: tuple[tuple[str, tuple[float, ...]], ...] = ()  # what was already changed when it was recorded

    def kept(self) -> NDArray[np.int64]:
        """Return the step behind each frame of the video."""
        return kept_steps(self.steps, self.stride)


@dataclass(frozen=True, eq=False)
class Replayed:
    """A World: the rollout of a record, with its states at hand."""

    record: Record
    trace: Trace

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Film these frames of the video again, with a named change of the scene or none."""
        steps = self.record.kept()[frames].tolist()
        more = ((change, tuple(amounts)),) if change else ()
        return render_rollout(self.trace, steps, self.record.look, (*self.record.changes, *more))


def kept_steps(steps: int, stride: int) -> NDArray[np.int64]:
    """Return the steps that become frames: every `stride`-th from the start, so that the last is the last step."""
    return np.arange(steps % stride, steps + 1, stride)


def record_of(trace: Trace, record: Record) -> dict[str, object]:
    """Return the JSON record of a rollout; the actions go into a file of their own."""
    look = record.look
    return {
        "kind": "metaworld",
        "task": trace.task,
        "seed": trace.seed,
        "steps": len(trace.actions),
        "stride": record.stride,
        "end": round(float(trace.progress[-1]), 4),
        "camera": look.camera,
        "size": look.size,
        "marker": look.marker,
        "changes": [[name, *amounts] for name, amounts in record.changes],
        "colours": list(COLOURS.get(trace.task, ())),
        **versions(),
    }


def open_record(record: Mapping[str, object]) -> Replayed:
    """Return the world of a record; DataError if its actions are gone or lead elsewhere on this machine."""
    facts, path = _read(record)
    return _replayed(facts, path, tuple(sorted((str(k), str(v)) for k, v in record.items() if k in versions())))


@lru_cache(maxsize=8)  # a stress test asks for the same episode under many changes
def _replayed(record: Record, path: str, made_with: tuple[tuple[str, str], ...]) -> Replayed:
    actions = _actions(path)
    if len(actions) != record.steps:
        raise DataError(
            f"{path} holds {len(actions)} actions, the record says {record.steps}; collect the episode anew"
        )
    trace = repeat(record.task, record.seed, actions)
    if abs(float(trace.progress[-1]) - record.end) > 1e-3:
        raise DataError(
            f"{record.task} seed {record.seed} ends at progress {trace.progress[-1]:.3f} here, {record.end:.3f} when "
            f"it was recorded with {dict(made_with)}; this machine has {versions()}"
        )
    return Replayed(record, trace)


def _actions(path: str) -> NDArray[np.float32]:
    try:
        return np.asarray(np.load(Path(path)), np.float32).reshape(-1, 4)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the recorded actions cannot be read ({error}); copy the file again") from error


def _read(record: Mapping[str, object]) -> tuple[Record, str]:
    row: Any = record
    try:
        look = camera_view(str(row["camera"]), int(row["size"]), bool(row["marker"]))
        facts = Record(
            str(row["task"]),
            int(row["seed"]),
            int(row["steps"]),
            int(row["stride"]),
            float(row["end"]),
            look,
            tuple((str(name), tuple(float(a) for a in amounts)) for name, *amounts in row["changes"]),
        )
        return facts, str(row["file"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a metaworld record needs task, seed, steps, stride, end, camera, size, file: {error}"
        ) from error
