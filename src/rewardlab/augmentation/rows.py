"""Rows of a dataset with their provenance: read from any layout, changed, written.

Every column is kept, videos are linked where possible, and the rows are written last.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from rewardlab.augmentation.questions import Attempt
from rewardlab.augmentation.rules import RULES, stated_certainty
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest
from rewardlab.core.storage import link_or_copy, writable, write_file
from rewardlab.data import dataset_folder, open_dataset, refuse_problems, split_camera
from rewardlab.data.contract import Problem
from rewardlab.data.convert import grouped_rollouts
from rewardlab.data.roboreward import ROBOREWARD, read_rows
from rewardlab.data.roboreward_rows import METADATA, parse_row, row_of
from rewardlab.data.safe_files import text_lines
from rewardlab.data.sources import describe_episode
from rewardlab.data.video import copied_file

Row = dict[str, Any]
PROVENANCE, ORIGINAL_TASK = "provenance", "original_task"
REJECTED = "rejected.jsonl"
UNSTATED = "unstated"
STAGES_OF_ROWS = ("source", "rewrite", "counterfactual", "clip")
_KINDS = {"row": str, "source_episode": str, "stage": str, "history": list, "verdicts": list, "license": str}
SUCCESS = 5
CODE = "code"  # vouches for what is known without a look at the clip: a text that fits, progress that is recorded
# Writes every clip to its file, and returns those that could not be written, and why.
WriteVideos = Callable[[Sequence[tuple[Episode, Path]]], Mapping[Path, str]]


@dataclass(frozen=True, eq=False)
class DatasetRow:
    """One row of a dataset as its file has it, and the episode that it names."""

    row: Row
    episode: Episode
    video: Path | None = None  # the file in which an earlier stage wrote what the episode shows

    @property
    def provenance(self) -> Row:
        """Return where the row comes from."""
        found: Row = self.row[PROVENANCE]
        return found

    @property
    def original_task(self) -> str:
        """Return the task description of the source dataset."""
        return str(self.row[ORIGINAL_TASK])

    @property
    def is_source(self) -> bool:
        """Tell whether the row is an episode as it was recorded, its text maybe rewritten."""
        return self.provenance["stage"] in ("source", "rewrite")

    @property
    def unvalidated(self) -> bool:
        """Tell whether rules alone vouch for the level: no model that saw the video, no simulator and no person."""
        verdicts = self.provenance["verdicts"]  # a person who corrects a level states one
        agree = {entry["by"] for entry in verdicts if entry["verdict"] or entry.get("level") is not None}
        return RULES in agree and agree <= {RULES, CODE}

    def changed(self, columns: Row, provenance: Row) -> "DatasetRow":
        """Return the row with other columns, of which None takes one away, and other keys of its provenance."""
        row = {**self.row, **columns, PROVENANCE: {**self.provenance, **provenance}}
        return replace(self, row={key: value for key, value in row.items() if value is not None})

    def with_verdict(self, by: str, rationale: str, prompt_hash: str, *, verdict: bool) -> "DatasetRow":
        """Return the row with one more verdict; one by rule says how sure it is."""
        entry: Row = {"by": by, "verdict": verdict, "rationale": rationale, "prompt_hash": prompt_hash}
        if by == RULES:
            entry["certainty"] = stated_certainty(rationale)
        row = self.changed({}, {"verdicts": [*self.provenance["verdicts"], entry]})
        by_rule = any(each["by"] == RULES for each in row.provenance["verdicts"])
        return row.changed({}, {"unvalidated": row.unvalidated}) if by_rule else row

    def rejected(self, stage: str, reason: str) -> "DatasetRow":
        """Return the row as it is kept among the rejected ones."""
        return self.changed({}, {"rejected": reason, "rejected_at": stage})


def with_provenance(row: Row, episode: Episode) -> DatasetRow:
    """Return a row with its provenance: as it is where a stage made it, else that of a row as it came.

    People may have verified a row that no stage made; their verdicts stay.
    """
    if PROVENANCE in row and not _from_people_alone(row):
        require_provenance(row)
        return DatasetRow(row, episode)
    about = {
        "row": digest("source", episode.id, episode.instruction),
        "source_episode": episode.id,
        "stage": "source",
        "teacher": "",
        "prompt_hash": "",
        "attempt": 1,
        "history": [],
        "verdicts": [],
        "license": str(row.get("license") or UNSTATED),
    }
    level = {} if episode.label.level is None else {"reward": episode.label.level}
    made = {**row, **level, ORIGINAL_TASK: episode.instruction, PROVENANCE: about | row.get(PROVENANCE, {})}
    require_provenance(made)
    return DatasetRow(made, episode)


def _from_people_alone(row: Row) -> bool:
    """Tell whether no stage made a row, and people verified it."""
    known = row.get(PROVENANCE)
    return isinstance(known, dict) and "stage" not in known and "verdicts" in known


def require_provenance(row: Row) -> None:
    """Check what a stage needs of the provenance of a row that another stage made, or somebody else."""
    about, name = row[PROVENANCE], str(row.get("file_name"))[:80]
    if not isinstance(about, dict) or not isinstance(row.get(ORIGINAL_TASK), str):
        raise DataError(
            f"{name!r}: expected an object as {PROVENANCE} and a text as {ORIGINAL_TASK}; make the row anew"
        )
    for key, kind in _KINDS.items():
        if not isinstance(about.get(key), kind):
            raise DataError(f"{name!r}: {PROVENANCE} needs {key}, {kind.__name__}; make the row anew")
    sound = all(
        isinstance(entry, dict) and isinstance(entry.get("by"), str) and isinstance(entry.get("verdict"), bool)
        for entry in about["verdicts"]
    )
    if about["stage"] not in STAGES_OF_ROWS or not sound:
        known = ", ".join(STAGES_OF_ROWS)
        raise DataError(
            f"{name!r}: {PROVENANCE} needs a stage ({known}) and verdicts with by and verdict; make it anew"
        )


@dataclass(frozen=True)
class StageRows:
    """The result of a stage: the rows for the next stage, and those it rejected."""

    kept: tuple[DatasetRow, ...]
    rejected: tuple[DatasetRow, ...] = ()


def joined(parts: Iterable[StageRows]) -> StageRows:
    """Return the rows of several parts as those of one."""
    every = list(parts)
    return StageRows(
        tuple(row for part in every for row in part.kept), tuple(row for part in every for row in part.rejected)
    )


def made_row(source: DatasetRow, stage: str, level: int, history: Sequence[Attempt], columns: Row) -> DatasetRow:
    """Return a row that a stage made of a source: its level, its other columns, and the attempts at it.

    Whom people preferred they said of the source, so that goes, as why the source failed does.
    """
    last = next((each for each in reversed(history) if each.kind != "validate"), None)
    about = {
        "row": digest(str(source.provenance["row"]), stage, level, str(columns.get("file_name", ""))),
        "stage": stage,
        "teacher": last.teacher if last else "",
        "prompt_hash": last.prompt_hash if last else "",
        "attempt": last.attempt if last else 1,
        "history": [*source.provenance["history"], *(each.as_json() for each in history)],
        "verdicts": [],
    }
    without = dict.fromkeys(
        ("demonstration", "preference", "failure_cause", "failure_frame")
    )  # true of the source alone
    return source.changed({"reward": level, "success": level == SUCCESS, **without, **columns}, about)


def read_dataset(name: str, *, demonstrations: bool = False, skip_invalid: bool) -> list[DatasetRow]:
    """Return the rows of a dataset of any layout, each with its provenance; DataError where some are unsound."""
    found = _read(name, demonstrations=demonstrations)
    problems = [each for each in found if isinstance(each, Problem)]
    rows = [with_provenance(*each) for each in found if not isinstance(each, Problem)]
    if not skip_invalid:
        refuse_problems(name, problems)
    if not rows:
        raise DataError(f"{name} holds no usable episode; run `rewardlab data check {quote(name)}`")
    return rows


def read_rejected(name: str) -> list[Row]:
    """Return the rows that earlier stages rejected; a dataset that no stage made has none.

    Rows that no stage made and people rejected are none of them.
    """
    rows = _json_lines(dataset_folder(name) / REJECTED)
    found = [row for row in rows if not _from_people_alone(row)]
    for row in found:
        require_provenance({PROVENANCE: None, **row})
    return found


def write_dataset(folder: Path, rows: StageRows, rejected: Sequence[Row], write_videos: WriteVideos) -> StageRows:
    """Write a dataset: videos and records of simulations, then the rejected rows, then the others; none half written.

    Return the rows that were written; a row whose video crashed its worker twice is rejected.
    """
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        rows = _with_videos(folder, rows, write_videos)
        for row in rows.kept:
            world = row.row.get("world")
            if row.episode.sim_state is not None and isinstance(world, dict) and "file" in world:
                _link(Path(str(row.episode.sim_state["file"])), folder / str(world["file"]))
    _write_lines(folder / REJECTED, [*rejected, *(row.row for row in rows.rejected)])
    _write_lines(folder / METADATA, [row.row for row in rows.kept])
    return rows


def _with_videos(folder: Path, rows: StageRows, write_videos: WriteVideos) -> StageRows:
    """Put the missing videos of the rows below the folder: linked, or written by the workers.

    The returned rows name their video files, so that the next stage links them.
    """
    wanted: dict[Path, Episode] = {}
    targets = [folder / str(row.row["file_name"]) for row in rows.kept]
    for row, target in zip(rows.kept, targets, strict=True):
        if not target.exists() and target not in wanted:
            file = row.video or copied_file(row.episode.clip)
            if file is None:
                wanted[target] = row.episode
            else:
                _link(file, target)
    lost = write_videos([(episode, target) for target, episode in wanted.items()])
    placed = list(zip(rows.kept, targets, strict=True))
    kept = [replace(row, video=target) for row, target in placed if target not in lost]
    gone = [
        row.rejected(str(row.provenance["stage"]), f"its video could not be written: {lost[target]}")
        for row, target in placed
        if target in lost
    ]
    return StageRows(tuple(kept), (*rows.rejected, *gone))


def _read(name: str, *, demonstrations: bool) -> list[tuple[Row, Episode] | Problem]:
    folder = dataset_folder(name)
    if ROBOREWARD.recognises(folder) and not split_camera(name)[1]:
        sound, problems = read_rows(folder)
        first = (({key: row[key] for key in row if key != "views"}, replace(each, views={})) for row, each in sound)
        return [*(_described(*each, demonstrations=demonstrations) for each in first), *problems]
    contents = open_dataset(name, demonstrations=demonstrations)
    worded = [replace(episode, views={}) for episode in contents.episodes if episode.instruction.strip()]
    rollouts = grouped_rollouts(worded, joins=False) if worded else []
    rows = [
        ({**row_of(first, name), "episode_id": first.id}, replace(first, id=name))
        for first, name in ((rollout.first, f"{rollout.name}.mp4") for rollout in rollouts)
    ]
    return [*rows, *contents.problems]


def _described(row: Row, episode: Episode, *, demonstrations: bool) -> tuple[Row, Episode]:
    """Return a row and its episode, both successes where the episode is a demonstration that states no outcome."""
    described = describe_episode(episode, demonstrations=demonstrations)
    assumed = described.label != episode.label
    return (row | {"success": True, "demonstration": True} if assumed else row), described


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no such thing."""
    if not target.exists():
        link_or_copy(source, target)


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
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
