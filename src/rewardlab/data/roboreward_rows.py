"""One row of metadata.jsonl: checked, written, noted as odd, guessed by `data init`."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Annotated

from rewardlab.core.episode import (
    DONE,
    FAILURE_CAUSES,
    LEVELS,
    NOT_BEGUN,
    UNDER_WAY,
    Episode,
    FailureEvent,
    Label,
    Preference,
    Provenance,
    Stage,
)
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROW_BYTES
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.terminal import counted
from rewardlab.data.contract import Problem
from rewardlab.data.reading import bounded_text, task_in
from rewardlab.data.safe_files import few, path_inside, require_name, shown, video_names
from rewardlab.data.sources import is_demonstration

Row = dict[str, object]

METADATA = "metadata.jsonl"  # where the rows are
KEYS = (  # all that is read of a row
    *("file_name", "views", "task", "reward", "success", "progress", "stages", "preference", "failure_cause"),
    *("failure_frame", "fps", "task_id"),
    *("embodiment", "perspective", "camera", "license", "source", "demonstration"),
    *("world", "original_task", "provenance"),
)
_WRITTEN = {"original", "perturbation", "severity", "expectation"}  # by `data perturb`; not read
OTHER_WORDS = {  # what others call them
    **dict.fromkeys(("video", "video_path", "path", "file", "filename", "clip", "frames"), "file_name"),
    **dict.fromkeys(("instruction", "prompt", "language_instruction", "goal", "text", "description"), "task"),
    **dict.fromkeys(("label", "score", "level", "rating"), "reward"),
    **dict.fromkeys(("succeeded", "is_success", "done"), "success"),
}
_CLOSE = 0.75  # how alike a misspelt key must be
_UNSAFE = re.compile(r"[^\w.-]+")  # in the name of a file
_FASTEST = 10_000  # frames per second


def parse_row(text: str, parse: Callable[[str], object] | None = None) -> Row:
    """Return the object that a line holds; DataError says why it holds none.

    Who reads many lines gives a parser of JSON with unique keys, so that limits are looked up once.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError("not UTF-8 text; save the file in UTF-8") from None
    try:
        row = parse_json(text, unique_keys=True) if parse is None else parse(text)
    except ValueError as error:
        raise DataError(f"not JSON that can be used ({error}); expected one object per line") from None
    if not isinstance(row, dict):
        raise DataError(f"expected a JSON object, got {type(row).__name__}")
    return row


def parse_bounded_row(text: str, most_bytes: int | None = None, parse: Callable[[str], object] | None = None) -> Row:
    """Return the object that a line holds; DataError where there is none, or it is longer than a row may be."""
    if len(text) > (ROW_BYTES.value if most_bytes is None else most_bytes):
        raise DataError(f"a row of more than {ROW_BYTES.value:,} bytes, {ROW_BYTES.describe()}")
    return parse_row(text, parse)


def misnamed(row: Row) -> dict[str, str]:
    """Return the keys that are not read beside the key that each seems to stand for, where the row lacks that one."""
    pairs = ((key, _known_key(key)) for key in row if key not in KEYS and key not in _WRITTEN)
    return {key: meant for key, meant in pairs if meant is not None and meant not in row}


@lru_cache(maxsize=1 << 16)  # rows repeat their keys, and the comparison is slow
def _known_key(key: str) -> str | None:
    close = get_close_matches(key, KEYS, n=1, cutoff=_CLOSE)
    return OTHER_WORDS.get(key.lower()) or (close[0] if close else None)


def require(row: Row, key: str) -> None:
    """Raise DataError where a row lacks a key, with the key that was written in its place."""
    if key not in row:
        written = next((f"; rename its {other!r}" for other, meant in misnamed(row).items() if meant == key), "")
        raise DataError(f"{key} is missing{written}")


def instruction_of(name: str, row: Row) -> str:
    """Return what the robot was told to do."""
    require(row, "task")
    instruction = row["task"]
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError(f"{name}: task must be a non-empty text, got {shown(instruction)}")
    return bounded_text(instruction, f"{name}: task")


def label_of(name: str, row: Row, count: int) -> Label:
    """Return what the row says of the truth; `count` is how many frames the video has."""
    level, success, progress = row.get("reward"), row.get("success"), row.get("progress")
    if level is not None and (isinstance(level, bool) or level not in LEVELS):
        raise DataError(f"{name}: reward must be 1, 2, 3, 4 or 5, got {shown(level)}")
    if success is not None and not isinstance(success, bool):
        raise DataError(f"{name}: success must be true or false, got {shown(success)}")
    level = int(level) if isinstance(level, int | float) else None
    if level is not None and success is not None and success != (level == 5):
        raise DataError(f"{name}: success is {success} but reward is {level}; only reward 5 is a success")
    if success is None and level is not None:
        success = level == 5
    stages = stages_of(name, row["stages"], count) if row.get("stages") is not None else ()
    failure = failure_of(name, row, count, succeeded=bool(success))
    level = 5 if success else level
    return Label(level, success, _progress(name, progress, count), stages, _preference(name, row), failure)


def views_of(name: str, row: Row) -> dict[str, str]:
    """Return the videos of further cameras of the rollout by the name of the camera; of a list, view2 and so on."""
    stated = row.get("views")
    if isinstance(stated, list):
        stated = {f"view{number}": place for number, place in enumerate(stated, start=2)}
    if stated is None:
        return {}
    if not isinstance(stated, dict) or not all(isinstance(key, str) and key.strip() for key in stated):
        wanted = 'the videos of further cameras, such as {"wrist": "a/wrist.mp4"} or ["a/wrist.mp4"]'
        raise DataError(f"{name}: views must be {wanted}, got {shown(row['views'])}")
    there = {key: place for key, place in stated.items() if place is not None}  # a table has every camera in every row
    return {bounded_text(key, f"{name}: views"): require_name(place, "views") for key, place in there.items()}


def view_file(file_name: str, camera: str) -> str:
    """Return the name of the video of a further camera beside that of the first."""
    path = PurePosixPath(file_name)
    return path.with_name(f"{path.stem}@{_UNSAFE.sub('-', camera)}{path.suffix}").as_posix()


def fps_of(name: str, row: Row) -> float | None:
    """Return the rate that the row states: its frames come evenly then, whatever times the file has."""
    return None if row.get("fps") is None else valid_fps(name, row["fps"])


def valid_fps(name: str, fps: object) -> float:
    """Return a frame rate that makes sense."""
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < _FASTEST:
        raise DataError(f"{name}: fps must be a number above 0 and below {_FASTEST:,}, got {shown(fps)}")
    return float(fps)


def provenance_of(name: str, row: Row) -> Provenance:
    """Return where the episode comes from."""
    parts = PurePosixPath(name).parts
    keys = ("embodiment", "perspective", "camera", "license", "source")
    words = {key: bounded_text(str(row.get(key) or ""), f"{name}: {key}") for key in keys}
    task = bounded_text(str(row.get("task_id") or row.get("original_task") or row["task"]), f"{name}: task_id")
    found = row.get("provenance")
    made = found if isinstance(found, dict) else {}
    for key, theirs in (("stage", "stage"), ("rollout", "source_episode")):
        words[key] = bounded_text(str(made.get(theirs) or ""), f"{name}: provenance")
    subset = parts[0] if len(parts) > 1 else ""
    return Provenance(subset=subset, task=task, demonstration=demonstration_of(name, row), **words)


def demonstration_of(name: str, row: Row) -> bool | None:
    """Return whether the row says that its episode is a demonstration; None where it does not say."""
    stated = row.get("demonstration")
    if stated is not None and not isinstance(stated, bool):
        raise DataError(f"{name}: demonstration must be true or false, got {shown(stated)}")
    return stated


def sim_state_of(folder: Path, name: str, row: Row) -> Row | None:
    """Return the simulator's record; a `file` in it is a path below the folder, made absolute here."""
    world = row.get("world")
    if world is None:
        return None
    if not isinstance(world, dict) or not isinstance(world.get("kind"), str):
        raise DataError(f"{name}: world must be an object with a kind, got {shown(world)}")
    return world | {"file": str(path_inside(folder, world["file"], "world.file"))} if "file" in world else world


def row_of(episode: Episode, file_name: str) -> Row:
    """Return the row of an episode; frames that come at their own times have these in the video, and no fps here."""
    label, provenance, clip = episode.label, episode.provenance, episode.clip
    row: Row = {
        "file_name": file_name,
        "views": {camera: view_file(file_name, camera) for camera in episode.views} or None,
        "task": episode.instruction,
        "reward": label.level,
        "success": label.success,
        "progress": list(label.progress) if label.progress is not None else None,
        "stages": [stage_row(stage) for stage in label.stages] or None,
        "preference": None if label.preference is None else _without_blanks(asdict(label.preference)),
        "failure_cause": None if label.failure is None else label.failure.cause,
        "failure_frame": None if label.failure is None else label.failure.frame,
        "fps": clip.fps if clip.is_even else None,
        "task_id": provenance.task if provenance.task != episode.instruction else None,
        "embodiment": provenance.embodiment,
        "perspective": provenance.perspective,
        "camera": provenance.camera,
        "license": provenance.license,
        "source": provenance.source,
        "demonstration": provenance.demonstration,
    }
    if provenance.stage:  # the row that `data augment` made or took
        row |= {"original_task": provenance.task, "provenance": _provenance_row(episode)}
    return _without_blanks(row)


def _without_blanks(row: Row) -> Row:
    return {key: value for key, value in row.items() if value not in (None, "")}


def _provenance_row(episode: Episode) -> Row:
    """Return how a row was made and of which episode, as `data augment` reads it; verdicts stay with its own files."""
    about = episode.provenance
    return {
        "row": digest(about.stage, about.rollout, episode.instruction),
        "source_episode": about.rollout or episode.id,
        "stage": about.stage,
        "history": [],
        "verdicts": [],
        "license": about.license or "unstated",
    }


# Stages: a list of {instruction, start, end, undone}. The last three are frames: where it begins, the first at which it
# is done, and the first at which it is undone again; null for never.


def stages_of(name: str, stages: object, count: int) -> tuple[Stage, ...]:
    """Return the stages of a long task from its row; `count` is how many frames the video has."""
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise DataError(f"{name}: stages must be a list of {{instruction, start, end, undone}}, got {shown(stages)}")
    found = []
    for stage in stages:
        text = stage.get("instruction")
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{name}: a stage needs an instruction, a non-empty text, got {shown(text)}")
        frames = [stage.get(key) for key in ("start", "end", "undone")]
        if not all(frame is None or (type(frame) is int and 0 <= frame < count) for frame in frames):
            raise DataError(f"{name}: start, end and undone of a stage must be frames from 0 to {count - 1}, or null")
        known = [frame for frame in frames if frame is not None]
        if known != sorted(known) or (frames[2] is not None and frames[1] in (None, frames[2])):
            raise DataError(f"{name}: a stage starts before it ends, and ends before it is undone, got {shown(stage)}")
        found.append(Stage(bounded_text(text, f"{name}: stages"), _reached(frames[0], frames[1], frames[2], count)))
    return tuple(found)


def _reached(start: int | None, end: int | None, undone: int | None, count: int) -> tuple[int, ...]:
    begins = count if start is None and end is None else end if start is None else start
    ends, undoing = (count if frame is None else frame for frame in (end, undone))
    states = ((NOT_BEGUN if frame < (begins or 0) else UNDER_WAY) for frame in range(count))
    return tuple(DONE if ends <= frame < undoing else state for frame, state in enumerate(states))


def stage_row(stage: Stage) -> Row:
    """Return a stage as its row has it; of one that was done again after it was undone, only the last time counts."""
    begun = [frame for frame, state in enumerate(stage.reached) if state != NOT_BEGUN]
    done = [frame for frame, state in enumerate(stage.reached) if state == DONE]
    row: Row = {"instruction": stage.instruction, "start": begun[0] if begun else None, "end": None}
    if done:
        row["end"] = next(frame for frame in reversed(done) if frame - 1 not in done)
        if done[-1] + 1 < len(stage.reached):
            row["undone"] = done[-1] + 1
    return row


def _progress(name: str, progress: object, count: int) -> tuple[float, ...] | None:
    if progress is None:
        return None
    if not isinstance(progress, list) or len(progress) != count:
        got = f"{len(progress)} values" if isinstance(progress, list) else type(progress).__name__
        raise DataError(f"{name}: progress must have one number per frame ({count}), got {got}")
    if not all(isinstance(value, int | float) and 0 <= value <= 1 for value in progress):
        raise DataError(f"{name}: progress must be numbers from 0 to 1, got {shown(progress[:5])}")
    return tuple(float(value) for value in progress)


def _preference(name: str, row: Row) -> Preference | None:
    """Return which of two rollouts a person preferred, as the row of one of them says."""
    stated = row.get("preference")
    if stated is None:
        return None
    said: Row = stated if isinstance(stated, dict) else {}
    pair, preferred = said.get("pair"), said.get("preferred")
    if not isinstance(pair, str) or not pair or preferred not in ("this", "other", "tie"):
        wanted = 'an object such as {"pair": "session 7", "preferred": "this"} (or "other", "tie")'
        raise DataError(f"{name}: preference must be {wanted}, got {shown(stated)}")
    texts = (bounded_text(str(said.get(key) or ""), f"{name}: preference") for key in ("pair", "feedback"))
    pair, feedback = texts
    return Preference(pair, preferred, feedback)


def failure_of(name: str, row: Row, count: int, *, succeeded: bool) -> FailureEvent | None:
    """Return why the rollout failed and at which frame of the video, as the row says."""
    cause, frame = row.get("failure_cause"), row.get("failure_frame")
    if cause is None and frame is None:
        return None
    known = next((each for each in FAILURE_CAUSES if each == cause), None)
    if known is None:
        raise DataError(f"{name}: failure_cause must be one of {', '.join(FAILURE_CAUSES)}, got {shown(cause)}")
    if succeeded:
        raise DataError(f"{name}: failure_cause is {known} but the row is a success; remove one of them")
    at = int(frame) if isinstance(frame, float) and frame.is_integer() else frame
    if at is not None and not (type(at) is int and 0 <= at < count):
        raise DataError(f"{name}: failure_frame must be a frame from 0 to {count - 1}, got {shown(frame)}")
    return FailureEvent(known, at if isinstance(at, int) else None)


# What is odd in rows of metadata and stops no run: misspelt keys, rows twice, labels missing, videos left out.

Numbered = tuple[int, Row]


def notes_of_rows(folder: Path, numbered: Iterator[Numbered]) -> tuple[Problem, ...]:
    """Return what is odd in the rows of a folder."""
    rows = []
    for number, row in numbered:  # a list, such as progress, is kept by what identifies it
        long = (key for key, value in row.items() if isinstance(value, list | dict) and key != "views")
        slim = {**row, **{key: digest(repr(row[key])) for key in long}}
        rows.append((number, slim))
    return (*_misnamed_keys(rows), *_repeated(rows), *_lacking(folder, rows))


def _misnamed_keys(rows: Sequence[Numbered]) -> Iterator[Problem]:
    found: dict[tuple[str, str], list[int]] = {}
    for number, row in rows:
        for pair in misnamed(row).items():
            found.setdefault(pair, []).append(number)
    for (key, meant), numbers in found.items():
        yield Problem(_lines(numbers), f"{shown(key)} is not read; did you mean {meant}?")


def _repeated(rows: Sequence[Numbered]) -> Iterator[Problem]:
    first: dict[tuple[str, str], Numbered] = {}
    for number, row in rows:
        key = str(row.get("file_name")), str(row.get("task"))
        earlier, before = first.setdefault(key, (number, row))
        if earlier == number:
            continue
        if row == before:
            yield Problem(f"line {number}", f"the same row as line {earlier}: the episode counts twice")
        elif any(row.get(label) != before.get(label) for label in ("reward", "success")):
            yield Problem(f"line {number}", f"the video and task of line {earlier}, with another reward or success")


def _lacking(folder: Path, rows: Sequence[Numbered]) -> Iterator[Problem]:
    """Yield rows without a label, keys that are not read, and videos without a row."""
    labels = ("reward", "success", "progress")
    without = [number for number, row in rows if all(row.get(key) is None for key in labels) and not _shown(row)]
    if without:
        yield Problem(_lines(without), "neither reward (1 to 5) nor success (true or false): nothing is measured")
    unknown = {key for _, row in rows for key in row.keys() - misnamed(row).keys() - set(KEYS)}
    if unknown:
        yield Problem("keys that are not read", few(sorted(unknown)))
    named = {name for _, row in rows for name in _videos(row)}
    missed = [name for name in video_names(folder) if name not in named]
    if missed:
        yield Problem(f"{len(missed)} videos that no row mentions", few(missed))


def _videos(row: Row) -> Iterator[str]:
    """Yield the videos that a row names."""
    yield str(row.get("file_name"))
    with suppress(DataError):  # told as a problem
        yield from views_of("", row).values()


def _shown(row: Row) -> bool:
    """Tell whether the row, or the source that it states, says that it is a demonstration."""
    stated = row.get("demonstration")
    return is_demonstration(stated if isinstance(stated, bool) else None, str(row.get("source")))


def _lines(numbers: Sequence[int]) -> str:
    return f"line{'s' * (len(numbers) > 1)} {few([str(number) for number in numbers])}"


# A metadata.jsonl for videos that have none: one row each, the task guessed from names where they say it.


@dataclass(frozen=True)
class Skeleton:
    """What was written: the file, the task of every row, empty where no name says it."""

    path: Path
    tasks: tuple[str, ...]


def data_init(folder: Annotated[Path | str, Help("a folder with videos")]) -> Skeleton:
    """Write metadata.jsonl for the videos in a folder: one row per video, to be filled in.

    An existing file is not changed.

    Examples:
        rewardlab data init my_videos
        rewardlab data check my_videos
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"no folder at {str(folder)!r}; name the folder that holds your videos")
    names = video_names(folder)
    if not names:
        raise DataError(f"{folder} holds no video (.mp4, .mov, .avi, .mkv, .webm, .m4v); put yours there first")
    tasks = tuple(task_in(name) for name in names)
    rows = [{"file_name": name, "task": task, "reward": None} for name, task in zip(names, tasks, strict=True)]
    try:
        with (folder / METADATA).open("x", encoding="utf-8") as handle:
            handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except FileExistsError:
        what = f"is there already and was left as it is; `rewardlab data check {folder}` says what it lacks"
        raise DataError(f"{folder / METADATA} {what}") from None
    return Skeleton(folder / METADATA, tasks)


def skeleton_lines(skeleton: Skeleton) -> Sequence[str]:
    """Return what was written and what is left to do, one line each."""
    empty = [number for number, task in enumerate(skeleton.tasks, start=1) if not task]
    guessed = len(skeleton.tasks) - len(empty)
    lines = [f"{skeleton.path}: {counted(len(skeleton.tasks), 'row')}, one per video"]
    if guessed:
        lines.append(f"read and correct what was guessed from names: {counted(guessed, 'task')}")
    if empty:
        lines.append(f"fill in task, what the robot was asked to do: line {few(list(map(str, empty)))}")
    lines.append("fill in reward, 1 (nothing done) to 5 (done), or success, true or false: every line")
    return [*lines, f"then: rewardlab data check {quote(str(skeleton.path.parent))}"]
