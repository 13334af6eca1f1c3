"""A metadata.jsonl for videos that have none: one row each, the task guessed from names where they say it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import DataError
from rewardlab.data.dataset_files import video_names
from rewardlab.data.roboreward_row import METADATA

_LEAST_WORDS = 2  # one word alone, such as `drawer`, says no task
_LINES_SHOWN = 8
_NO_TASK = {  # words of names that say how a video was taken, not what was done
    *("video", "videos", "clip", "clips", "episode", "episodes", "rollout", "rollouts", "camera", "cam", "view"),
    *("demo", "trial", "run", "take", "test", "train", "val", "data", "recording", "rec", "img", "mov", "dsc", "vid"),
    *("front", "wrist", "side", "top", "left", "right", "success", "failure", "fail", "good", "bad", "final", "copy"),
}


@dataclass(frozen=True)
class InitPlan:
    """Write a metadata.jsonl skeleton for the videos in a folder: one row per video, to be filled in."""

    folder: Path = setting("a folder with videos", positional=True)


@dataclass(frozen=True)
class Skeleton:
    """What was written: the file, the task of every row, empty where no name says it."""

    path: Path
    tasks: tuple[str, ...]


def write_skeleton(folder: Path) -> Skeleton:
    """Write one row per video below the folder; what is there already is never written over."""
    if not folder.is_dir():
        raise DataError(f"no folder at {str(folder)!r}; name the folder that holds your videos")
    names = video_names(folder)
    if not names:
        raise DataError(f"{folder} holds no video (.mp4, .mov, .avi, .mkv, .webm, .m4v); put yours there first")
    tasks = tuple(task_in(name) for name in names)
    rows = [{"file_name": name, "task": task, "reward": None} for name, task in zip(names, tasks)]
    try:
        with (folder / METADATA).open("x", encoding="utf-8") as handle:
            handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except FileExistsError:
        raise DataError(
            f"{folder / METADATA} is there already and was left as it is; `rewardlab check {folder}` says what it lacks"
        ) from None
    return Skeleton(folder / METADATA, tasks)


def task_in(name: str) -> str:
    """Return the task that the name of a video, or of the folder it is in, says; empty where none does."""
    path = Path(name)
    for text in (path.stem, *(part.name for part in path.parents)):
        words = [word for word in re.split(r"[\W_]+", text.lower()) if word.isalpha()]
        if len([word for word in words if word not in _NO_TASK]) >= _LEAST_WORDS:
            return " ".join(words)
    return ""


def skeleton_lines(skeleton: Skeleton) -> Sequence[str]:
    """Return what was written and what is left to do, one line each."""
    empty = [number for number, task in enumerate(skeleton.tasks, start=1) if not task]
    guessed = len(skeleton.tasks) - len(empty)
    lines = [f"{skeleton.path}: {len(skeleton.tasks)} rows, one per video"]
    if guessed:
        lines.append(f"read the {guessed} tasks that were guessed from names, and correct them")
    if empty:
        few = ", ".join(map(str, empty[:_LINES_SHOWN])) + (", ..." if len(empty) > _LINES_SHOWN else "")
        lines.append(f"fill in task, what the robot was asked to do: line {few}")
    lines.append("fill in reward, 1 (nothing done) to 5 (done), or success, true or false: every line")
    return [*lines, f"then: rewardlab check {skeleton.path.parent}"]
