"""The RoboReward layout: `metadata.jsonl` beside the videos, one row per episode; read, checked and written."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from rewardlab.core.episode import Clip, Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROW_BYTES, ROWS
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import path_inside, require_name, text_lines
from rewardlab.data.metadata_notes import notes_of_rows
from rewardlab.data.roboreward_row import (
    METADATA,
    Row,
    fps_of,
    instruction_of,
    origin_of,
    parse_row,
    require,
    row_of,
    truth_of,
    valid_fps,
    world_of,
)
from rewardlab.data.video_decoding import VideoFile


def recognises(folder: Path) -> bool:
    """Tell whether the folder has rows of metadata."""
    return (folder / METADATA).is_file()


def read_folder(folder: Path) -> Contents:
    """Read and check every row and every video's container; frames are decoded later, when asked for."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for found in read_rows(folder):
        if isinstance(found, Problem):
            problems.append(found)
        else:
            episodes.append(found[1])
    if not episodes and not problems:
        what = f"holds no row; write one per video, or remove it and let `rewardlab init {folder}` begin"
        problems.append(Problem(METADATA, what))
    return Contents(tuple(episodes), tuple(problems))


def read_rows(folder: Path) -> Iterator[tuple[Row, Episode] | Problem]:
    """Yield every row with all its columns and the episode it names, or what is wrong with it."""
    rows = RowEpisodes(folder, _clip)
    for line, text in _lines(folder):
        if line > ROWS.value:
            yield Problem(f"line {line}", f"this row and those after it are not read, {ROWS.describe()}")
            return
        try:
            row = _row(text)
            yield row, rows.episode(row)
        except DataError as error:
            yield Problem(f"line {line}", str(error))


def notes(folder: Path) -> tuple[Problem, ...]:
    """Return what is odd in the rows and stops no run."""
    return notes_of_rows(folder, _parsed(islice(_lines(folder), ROWS.value)))


def _parsed(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    """Yield the rows; lines that are no rows are problems, and told elsewhere."""
    for number, text in lines:
        try:
            yield number, parse_row(text)
        except DataError:
            continue


def write_episode(folder: Path, episode: Episode, file_name: str, extra: dict[str, object] | None = None) -> None:
    """Write an episode's frames and append its row; the row comes last, so that a row always has its video."""
    from rewardlab.h264_encoding import encode  # here: PyAV is slow to load, and reading rows needs none of it

    target = folder / file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    clip = episode.clip
    encode(episode.frames, target, clip.fps, times=None if clip.is_even else episode.times)
    row = row_of(episode, file_name) | (extra or {})
    with (folder / METADATA).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


class RowEpisodes:
    """The episodes of the rows of one folder: a video that many of them name is opened once, and its clip is shared."""

    def __init__(self, folder: Path, open_clip: Callable[[Path, str, float | None], Clip]) -> None:
        self.folder = folder
        self.seen: Counter[str] = Counter()
        self.clip = cache(open_clip)

    def episode(self, row: Row) -> Episode:
        """Return the episode of one row; DataError says what is wrong with it."""
        require(row, "file_name")
        require_name(row["file_name"], "file_name")
        name = str(row["file_name"])
        instruction = instruction_of(name, row)
        clip = self.clip(self.folder, name, fps_of(name, row))
        valid_fps(name, clip.fps)
        truth, origin, world = truth_of(name, row, len(clip)), origin_of(name, row), world_of(self.folder, name, row)
        self.seen[name] += 1
        identity = name if self.seen[name] == 1 else f"{name}#{self.seen[name]}"
        return Episode(identity, instruction, clip, truth, origin, world)


def _row(text: str) -> Row:
    if len(text) > ROW_BYTES.value:
        raise DataError(f"a row of more than {ROW_BYTES.value:,} bytes, {ROW_BYTES.describe()}")
    return parse_row(text)


def _clip(folder: Path, name: str, fps: float | None) -> Clip:
    return VideoFile(path_inside(folder, name, "file_name")).clip(fps)


def _lines(folder: Path) -> Iterator[tuple[int, str]]:
    return text_lines(folder, folder / METADATA)


ROBOREWARD = Reader(
    "roboreward",
    "the RoboReward layout: metadata.jsonl beside the videos, one JSON row per episode (file_name, task, reward)",
    "a metadata.jsonl with one row per video",
    recognises,
    read_folder,
    notes,
)
