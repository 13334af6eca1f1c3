"""Rows of a dataset in and out: every column is kept, videos are linked where they can be, rows are written last."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rewardlab.augmentation.provenance import (
    PROVENANCE,
    DatasetRow,
    Row,
    StageRows,
    require_provenance,
    with_provenance,
)
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write, writable
from rewardlab.data import dataset_folder, open_dataset, split_camera
from rewardlab.data.contract import Problem
from rewardlab.data.conversion.rollout_grouping import grouped_rollouts
from rewardlab.data.dataset_files import text_lines
from rewardlab.data.roboarena_dump import PREFERENCES, read_preferences
from rewardlab.data.roboreward_folder import ROBOREWARD, read_rows
from rewardlab.data.roboreward_row import METADATA, parse_row, row_of
from rewardlab.data.writers.video_copy import copied_file

REJECTED = "rejected.jsonl"
# Writes every clip to its file, and returns those that could not be written, and why.
WriteVideos = Callable[[Sequence[tuple[Episode, Path]]], Mapping[Path, str]]


def read_dataset(name: str, *, skip_bad: bool) -> list[DatasetRow]:
    """Return the rows of a dataset of any layout, each with its provenance; DataError where some are unsound."""
    found = _read(name)
    problems = [each for each in found if isinstance(each, Problem)]
    rows = [with_provenance(*each) for each in found if not isinstance(each, Problem)]
    if problems and not skip_bad:
        what = f"{name} has {len(problems)} problems; correct them, or leave them out with --skip-bad"
        raise DataError(what + "".join(f"\n  {problem}" for problem in problems[:5]))
    if not rows:
        raise DataError(f"{name} holds no usable episode; run `rewardlab check {name}`")
    return rows


def read_rejected(name: str) -> list[Row]:
    """Return the rows that earlier stages refused; a dataset that no stage made has none."""
    rows = _json_lines(dataset_folder(name) / REJECTED)
    for row in rows:
        require_provenance({PROVENANCE: None, **row})
    return rows


def read_pairwise(name: str) -> list[Row]:
    """Return which of two rollouts people preferred, where the dataset says so."""
    folder = dataset_folder(name)
    known = _json_lines(folder / PREFERENCES)
    return known or read_preferences(folder)


def write_dataset(
    folder: Path, rows: StageRows, refused: Sequence[Row], pairwise: Sequence[Row], write_videos: WriteVideos
) -> StageRows:
    """Write a dataset: the videos, then what was refused, then the rows, each file whole or not there.

    Return the rows that were written: one whose video killed its worker twice is refused for it.
    """
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        rows = _with_videos(folder, rows, write_videos)
        for row in rows.kept:
            _place_world(folder, row)
    _write_lines(folder / REJECTED, [*refused, *(row.row for row in rows.rejected)])
    if pairwise:
        _write_lines(folder / PREFERENCES, pairwise)
    _write_lines(folder / METADATA, [row.row for row in rows.kept])
    return rows


def _with_videos(folder: Path, rows: StageRows, write_videos: WriteVideos) -> StageRows:
    """Put the videos of the rows below the folder, unless they are there: linked, or written by the workers.

    The rows that are returned know their files, so that the next stage links them.
    """
    wanted: dict[Path, Episode] = {}
    for row in rows.kept:
        target = _video_of(folder, row)
        if not target.exists() and target not in wanted:
            file = row.video or copied_file(row.episode.clip)
            if file is None:
                wanted[target] = row.episode
            else:
                _link(file, target)
    lost = write_videos([(episode, target) for target, episode in wanted.items()])
    targets = ((row, _video_of(folder, row)) for row in rows.kept)
    kept = [replace(row, video=target) for row, target in targets if target not in lost]
    gone = [
        row.refused(str(row.provenance["stage"]), f"its video could not be written: {lost[_video_of(folder, row)]}")
        for row in rows.kept
        if _video_of(folder, row) in lost
    ]
    return StageRows(tuple(kept), (*rows.rejected, *gone))


def _video_of(folder: Path, row: DatasetRow) -> Path:
    return folder / str(row.row["file_name"])


def _place_world(folder: Path, row: DatasetRow) -> None:
    """Put the record of a row's simulation below the folder, unless it is there."""
    world = row.row.get("world")
    if row.episode.world is not None and isinstance(world, dict) and "file" in world:
        _link(Path(str(row.episode.world["file"])), folder / str(world["file"]))


def _read(name: str) -> list[tuple[Row, Episode] | Problem]:
    folder = dataset_folder(name)
    if ROBOREWARD.recognises(folder) and not split_camera(name)[1]:
        return list(read_rows(folder))
    contents = open_dataset(name)
    worded = [episode for episode in contents.episodes if episode.instruction.strip()]
    rollouts = grouped_rollouts(worded, joins=False) if worded else []
    rows: list[tuple[Row, Episode]] = []
    for rollout in rollouts:
        name = f"{rollout.name}.mp4"
        row: Row = {**row_of(rollout.first, name), "episode_id": rollout.first.id}
        rows.append((row, replace(rollout.first, id=name)))
    return [*rows, *contents.problems]


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no such thing."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(source, target)
        return
    with atomic_write(target) as partial:
        shutil.copyfile(source, partial)


def _json_lines(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    found = []
    for number, line in text_lines(path.parent, path):
        try:
            found.append(parse_row(line))
        except DataError as error:
            raise DataError(f"{path} line {number}: {error}; make it anew") from None
    return found


def _write_lines(path: Path, rows: Sequence[Row]) -> None:
    with atomic_write(path) as partial:
        partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
