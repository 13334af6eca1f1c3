"""The RoboReward layout: `metadata.jsonl` beside the videos, one row per episode; read, checked and written."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rewardlab.core.episode import LEVELS, Episode, Origin, Truth, whole_clip
from rewardlab.core.errors import DataError
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.video_decoding import VideoFile
from rewardlab.h264_encoding import encode

METADATA = "metadata.jsonl"


def recognises(folder: Path) -> bool:
    """Tell whether the folder has rows of metadata."""
    return (folder / METADATA).is_file()


def read_folder(folder: Path) -> Contents:
    """Read and check every row and every video's container; frames are decoded later, when asked for."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    seen: Counter[str] = Counter()
    for line, text in _lines(folder):
        try:
            episodes.append(_episode(folder, _row(text), seen))
        except DataError as error:
            problems.append(Problem(f"line {line}", str(error)))
    return Contents(tuple(episodes), tuple(problems))


def write_episode(folder: Path, episode: Episode, file_name: str, extra: dict[str, object] | None = None) -> None:
    """Write an episode's frames and append its row; the row comes last, so that a row always has its video."""
    target = folder / file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    encode(episode.frames, target, episode.clip.fps)
    row = _row_of(episode, file_name) | (extra or {})
    with (folder / METADATA).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def _lines(folder: Path) -> Iterator[tuple[int, str]]:
    with (folder / METADATA).open(encoding="utf-8-sig", errors="surrogateescape") as handle:
        for number, text in enumerate(handle, start=1):
            if text.strip():
                yield number, text


def _row(text: str) -> dict[str, object]:
    if not _is_encodable(text):
        raise DataError("not UTF-8 text; save the file in UTF-8")
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON ({error.msg} at column {error.colno}); expected one object per line") from None
    if not isinstance(row, dict):
        raise DataError(f"expected a JSON object, got {type(row).__name__}")
    return row


def _episode(folder: Path, row: dict[str, object], seen: Counter[str]) -> Episode:
    name = _inside(row.get("file_name"))
    instruction = row.get("task")
    if not isinstance(instruction, str) or not instruction.strip() or not _is_encodable(instruction):
        raise DataError(f"{name}: task must be a non-empty text, got {instruction!r}")
    video = VideoFile(folder / name)
    truth = _truth(name, row, video.info.count)
    fps = _fps(name, row, video.info.fps)
    seen[name] += 1
    identity = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return Episode(identity, instruction, whole_clip(video, fps), truth, _origin(name, row), _world(folder, name, row))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise DataError(f"file_name must be a path below the folder, got {name!r}")
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise DataError(f"file_name must stay below the folder, got {name!r}")
    return name


def _truth(name: str, row: dict[str, object], count: int) -> Truth:
    level, success, progress = row.get("reward"), row.get("success"), row.get("progress")
    if level is not None and (isinstance(level, bool) or level not in LEVELS):
        raise DataError(f"{name}: reward must be 1, 2, 3, 4 or 5, got {level!r}")
    if success is not None and not isinstance(success, bool):
        raise DataError(f"{name}: success must be true or false, got {success!r}")
    level = int(level) if isinstance(level, int | float) else None
    if level is not None and success is not None and success != (level == 5):
        raise DataError(f"{name}: success is {success} but reward is {level}; only reward 5 is a success")
    if success is None and level is not None:
        success = level == 5
    return Truth(5 if success else level, success, _progress(name, progress, count))


def _progress(name: str, progress: object, count: int) -> tuple[float, ...] | None:
    if progress is None:
        return None
    if not isinstance(progress, list) or len(progress) != count:
        raise DataError(f"{name}: progress must have one number per frame ({count}), got {_size(progress)}")
    if not all(isinstance(value, int | float) and 0 <= value <= 1 for value in progress):
        raise DataError(f"{name}: progress must be numbers from 0 to 1, got {progress[:5]}...")
    return tuple(float(value) for value in progress)


def _size(value: object) -> str:
    return f"{len(value)} values" if isinstance(value, list) else type(value).__name__


def _fps(name: str, row: dict[str, object], stated: float) -> float:
    fps = stated if row.get("fps") is None else row["fps"]
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 10_000:
        raise DataError(f"{name}: fps must be a number above 0, got {fps!r}")
    return float(fps)


def _origin(name: str, row: dict[str, object]) -> Origin:
    parts = PurePosixPath(name).parts
    words = {key: str(row.get(key) or "") for key in ("embodiment", "camera", "license", "source")}
    return Origin(subset=parts[0] if len(parts) > 1 else "", task=str(row.get("task_id") or row["task"]), **words)


def _world(folder: Path, name: str, row: dict[str, object]) -> dict[str, object] | None:
    """Return the simulator's record; a `file` in it is a path below the folder, made absolute here."""
    world = row.get("world")
    if world is None:
        return None
    if not isinstance(world, dict) or not isinstance(world.get("kind"), str):
        raise DataError(f"{name}: world must be an object with a kind, got {world!r}")
    return world | {"file": str(folder / _inside(world["file"]))} if "file" in world else world


def _row_of(episode: Episode, file_name: str) -> dict[str, object]:
    truth, origin = episode.truth, episode.origin
    row: dict[str, object] = {
        "file_name": file_name,
        "task": episode.instruction,
        "reward": truth.level,
        "success": truth.success,
        "progress": list(truth.progress) if truth.progress is not None else None,
        "fps": episode.clip.fps,
        "task_id": origin.task if origin.task != episode.instruction else None,
        "embodiment": origin.embodiment,
        "camera": origin.camera,
        "license": origin.license,
        "source": origin.source,
    }
    return {key: value for key, value in row.items() if value not in (None, "")}


ROBOREWARD = Reader(
    "roboreward",
    "the RoboReward layout: metadata.jsonl beside the videos, one JSON row per episode (file_name, task, reward)",
    "a metadata.jsonl with one row per video",
    recognises,
    read_folder,
)
