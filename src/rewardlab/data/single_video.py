"""One video file as a dataset of one episode, of which nothing is known but what its name or task.txt says."""

from pathlib import Path

from rewardlab.core.episode import Episode, Origin
from rewardlab.core.errors import DataError
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import VIDEO_SUFFIXES
from rewardlab.data.task_text import bounded_task, task_beside
from rewardlab.data.video_decoding import VideoFile


def recognises(path: Path) -> bool:
    """Tell whether the path is a file named like a video."""
    return path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES


def read_video(path: Path) -> Contents:
    """Read the video as one episode."""
    try:
        task = bounded_task(task_beside(path.parent) or task_beside(path.parent, path.name))
        return Contents((Episode(path.name, task, VideoFile(path).clip(), origin=Origin(task=task)),), ())
    except DataError as error:
        return Contents((), (Problem(path.name, str(error)),))


VIDEO = Reader(
    "video",
    "one video file; the task is in a task.txt beside it, or in its name",
    "one video file",
    recognises,
    read_video,
)
