"""LeRobot datasets: Parquet rows beside one video per episode (v2) or per many episodes (v3), for each camera."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Clip, Episode, Origin, Truth
from rewardlab.core.errors import DataError
from rewardlab.core.limits import INSTRUCTION_CHARACTERS, ROWS
from rewardlab.data.camera_choice import ALL_CAMERAS, camera_note, choose_cameras, episode_id, short_name
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.lerobot.dataset_info import INFO, Camera, DatasetInfo, read_dataset_info
from rewardlab.data.lerobot.episode_entries import EpisodeEntry, read_entries, read_tasks
from rewardlab.data.lerobot.episode_rows import DataFiles, EpisodeRows
from rewardlab.data.lerobot.truth_columns import PROGRESS_FILE, read_progress
from rewardlab.data.parquet_images import ParquetImages
from rewardlab.data.video_decoding import VideoFile
from rewardlab.data.video_segment import segment_of_video


def recognises(folder: Path) -> bool:
    """Tell whether the folder describes itself as LeRobot does."""
    return (folder / INFO).is_file()


def read_folder(folder: Path) -> Contents:
    """Read every episode as one camera saw it."""
    return read_camera(folder, "")


def read_camera(folder: Path, wanted: str) -> Contents:
    """Read every episode as the named camera saw it, or as all did."""
    try:
        dataset = _Dataset(read_dataset_info(folder), wanted)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for entry in dataset.entries:
        for camera in dataset.chosen:
            try:
                episodes.append(dataset.episode(entry, camera))
            except DataError as error:
                problems.append(Problem(episode_id(f"episode {entry.index}", camera.key, dataset.keys), str(error)))
    return Contents(tuple(episodes), tuple(problems))


def notes(folder: Path) -> tuple[Problem, ...]:
    """Say which camera is read, and how many of the listed episodes are not in this copy."""
    try:
        info = read_dataset_info(folder)
        listed, present = _present(info)
    except DataError:
        return ()
    found = camera_note([camera.key for camera in _with_files(info, present, "")])
    if len(present) < listed:
        what = f"{listed - len(present)} of {listed} listed episodes have no data file here and are left out"
        found = (*found, Problem("episodes", what))
    return found


class _Dataset:
    """One dataset while it is read: files that many episodes share are opened once."""

    def __init__(self, info: DatasetInfo, wanted: str) -> None:
        self.info, self.files, self.tasks = info, DataFiles(info), read_tasks(info)
        self.progress = read_progress(info.folder)
        self.videos: dict[Path, VideoFile] = {}
        listed, self.entries = _present(info)
        if not self.entries:
            raise DataError(f"none of the {listed} listed episodes has its data file here; copy them as well")
        cameras = info.cameras if wanted not in ("", ALL_CAMERAS) else _with_files(info, self.entries, wanted)
        self.keys = [camera.key for camera in info.cameras]
        chosen = choose_cameras([camera.key for camera in cameras], wanted)
        self.chosen = [camera for camera in cameras if camera.key in chosen]

    def episode(self, entry: EpisodeEntry, camera: Camera) -> Episode:
        """Return what a camera saw of an episode; DataError says what is wrong with it."""
        rows = self.files.rows(entry)
        instruction = self._instruction(rows)
        origin = Origin(task=instruction, embodiment=self.info.robot, camera=short_name(camera.key))
        clip = self._images(entry, camera, rows) if camera.stored == "image" else self._video(entry, camera, rows)
        name = episode_id(f"episode_{entry.index:06d}", camera.key, self.keys)
        return Episode(name, instruction, clip, self._truth(entry, rows), origin)

    def _truth(self, entry: EpisodeEntry, rows: EpisodeRows) -> Truth:
        progress = self.progress.get(entry.index)
        if progress is not None and len(progress) != entry.length:
            raise DataError(f"{PROGRESS_FILE}: {len(progress)} rows, but the list of episodes says {entry.length}")
        return replace(entry.truth or rows.truth, progress=progress)

    def _instruction(self, rows: EpisodeRows) -> str:
        instruction = self.tasks.get(rows.task_index, "")
        if not instruction.strip():
            raise DataError(f"{rows.path}: task_index {rows.task_index} has no text among the tasks of the dataset")
        if len(instruction) > INSTRUCTION_CHARACTERS.value:
            raise DataError(f"a task of {len(instruction):,} characters, {INSTRUCTION_CHARACTERS.describe()}")
        return instruction

    def _video(self, entry: EpisodeEntry, camera: Camera, rows: EpisodeRows) -> Clip:
        place = entry.videos[camera.key]
        path = self.info.video_file(place.values)
        video = self.videos.setdefault(path, VideoFile(path))
        if not self.info.is_v3:
            if video.count != entry.length:
                raise DataError(f"{path}: {video.count} frames, but the episode has {entry.length} rows; copy it again")
            return Clip(video, np.arange(entry.length), rows.positions, rows.fps, video.info.frame_bytes)
        segment = segment_of_video(path, video.info, place.start, entry.length)
        return Clip(segment, np.arange(entry.length), rows.positions, rows.fps, segment.frame_bytes)

    def _images(self, entry: EpisodeEntry, camera: Camera, rows: EpisodeRows) -> Clip:
        images = ParquetImages(self.info.folder, rows.path, camera.key, rows.first, entry.length)
        return Clip(images, np.arange(entry.length), rows.positions, rows.fps)


def _present(info: DatasetInfo) -> tuple[int, list[EpisodeEntry]]:
    """Return how many episodes are listed, and those whose data file is here: people copy a few of many."""
    listed, present, seen = 0, [], set[int]()
    for entry in read_entries(info):
        listed += 1
        if entry.index in seen:
            raise DataError(f"episode {entry.index} is listed twice; remove the file of episodes that is not in use")
        seen.add(entry.index)
        if listed > ROWS.value:
            raise DataError(f"more than {ROWS.value:,} episodes, {ROWS.describe()}")
        if info.data_file(entry.data).exists():
            present.append(entry)
    return listed, present


def _with_files(info: DatasetInfo, entries: Sequence[EpisodeEntry], wanted: str) -> tuple[Camera, ...]:
    """Return the cameras that have frames, for any episode where all are wanted, else for the first one.

    All that are listed, where none has.
    """
    looked_at = entries if wanted == ALL_CAMERAS else entries[:1]
    found = tuple(camera for camera in info.cameras if any(_has_frames(info, entry, camera) for entry in looked_at))
    return found or info.cameras


def _has_frames(info: DatasetInfo, entry: EpisodeEntry, camera: Camera) -> bool:
    place = entry.videos.get(camera.key)
    return place is None or info.video_file(place.values).exists()


LEROBOT = Reader(
    "lerobot",
    "LeRobot v2.0, v2.1 and v3.0: meta/info.json, Parquet rows and videos, or images in the rows; several cameras",
    "meta/info.json of a LeRobot dataset",
    recognises,
    read_folder,
    notes,
    read_camera,
)
