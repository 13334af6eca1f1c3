"""RoboArena dumps: graded rollouts, preferences, their YAML."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rewardlab.core.episode import Episode, Label, Preference, Provenance, level_of_progress
from rewardlab.core.errors import DataError, require_packages
from rewardlab.core.limits import JSON_DEPTH, ROW_BYTES
from rewardlab.data.contract import Contents, Found, Problem, Reader, bounded_contents
from rewardlab.data.reading import ALL_CAMERAS, bounded_text, camera_note, choose_cameras, episode_id
from rewardlab.data.safe_files import open_regular, require_inside, shown
from rewardlab.data.video import VideoFile

SESSIONS, METADATA = "evaluation_sessions", "metadata.yaml"
CAMERAS = ("left", "right", "wrist")
_PERCENT = 100.0
_SHOULDER = "_shoulder"  # newer dumps call the first two left_shoulder and right_shoulder


@dataclass(frozen=True)
class Rollout:
    """What a session says of one policy, and the folder with its videos."""

    folder: Path
    instruction: str
    about: Mapping[str, Any]
    preference: Preference | None  # of a person who saw the policies A and B, by the name of the session


def recognises(folder: Path) -> bool:
    """Tell whether the folder holds evaluation sessions."""
    return (folder / SESSIONS).is_dir()


def read_camera(folder: Path, wanted: str) -> Contents:
    """Read every rollout as the named camera saw it, as all did, or as one that is chosen."""
    if wanted not in ("", ALL_CAMERAS):
        choose_cameras(CAMERAS, wanted.removesuffix(_SHOULDER))
    return bounded_contents(_found(folder, wanted.removesuffix(_SHOULDER)), "rollout")


def notes(folder: Path) -> tuple[Problem, ...]:
    """Say which camera is read where the first rollout has several."""
    for session in _sessions(folder):
        try:
            return camera_note(list(_videos(_rollouts(folder, session)[0].folder)))
        except (DataError, IndexError):  # told as a problem
            continue
    return ()


def _found(folder: Path, wanted: str) -> Iterator[Found[Episode]]:
    """Yield the place of every episode and what makes it; for a session that cannot be read, why."""
    full = _full_grade(folder)
    for session in _sessions(folder):
        try:
            for rollout in _rollouts(folder, session):
                place = f"{session.name}/{rollout.folder.name}"
                videos = _videos(rollout.folder)
                for camera in choose_cameras(list(videos), wanted) if videos else ("",):
                    yield episode_id(place, camera, list(videos)), partial(_episode, folder, rollout, camera, full)
        except DataError as error:
            yield session.name, error


def _full_grade(folder: Path) -> float:
    """Return the highest grade of a dump: 1, or 100 where any rollout of it has more than 1."""
    for session in _sessions(folder):
        with suppress(DataError):
            for rollout in _rollouts(folder, session):
                grade = rollout.about.get("partial_success")
                if isinstance(grade, int | float) and 1 < grade <= _PERCENT:
                    return _PERCENT
    return 1.0


def _sessions(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / SESSIONS).iterdir() if path.is_dir() and path.name[0] != ".")


def _rollouts(folder: Path, session: Path) -> list[Rollout]:
    """Return what a session says of each of its policies; a folder is found by the letter of the policy."""
    stated = read_yaml(folder, session / METADATA)
    instruction, policies = stated.get("language_instruction"), stated.get("policies")
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError(f"language_instruction must be a text, got {shown(instruction)}")
    if not isinstance(policies, dict) or not all(isinstance(about, dict) for about in policies.values()):
        raise DataError(f"policies must be a mapping of mappings, got {shown(policies)}")
    task = bounded_text(instruction.strip())
    return [
        Rollout(_policy_folder(session, str(letter)), task, about, _preference(session.name, str(letter), stated))
        for letter, about in policies.items()
    ]


def _preference(session: str, letter: str, stated: Mapping[str, Any]) -> Preference | None:
    """Return what was said of the policies A and B; nothing of others, and where nothing usable was said."""
    said, own = (str(word).strip().casefold() for word in (stated.get("preference"), letter))
    if said not in ("a", "b", "tie") or own not in ("a", "b"):
        return None
    feedback = bounded_text(str(stated.get("longform_feedback") or "").strip(), "longform_feedback")
    return Preference(session, "tie" if said == "tie" else "this" if said == own else "other", feedback)


def _policy_folder(session: Path, letter: str) -> Path:
    found = sorted(path for path in session.iterdir() if path.name.startswith(f"{letter}_") and path.is_dir())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DataError(f"expected one folder {shown(letter + '_...')} with videos, got {names}")
    return found[0]


def _videos(folder: Path) -> dict[str, Path]:
    """Return the video of each camera; older dumps have more in front of the name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.mp4")):
        name = path.stem.removesuffix(_SHOULDER)
        camera = next((camera for camera in CAMERAS if name == camera or name.endswith(f"_{camera}")), None)
        if camera is not None:
            found.setdefault(camera, path)
    return {camera: found[camera] for camera in CAMERAS if camera in found}


def _episode(folder: Path, rollout: Rollout, camera: str, full: float) -> Episode:
    videos = _videos(rollout.folder)
    if camera not in videos:
        held = ", ".join(sorted(path.name for path in rollout.folder.iterdir())[:6]) or "nothing"
        raise DataError(f"no video called left, right or wrist; the folder holds {held}; copy the dump again")
    require_inside(folder, videos[camera])
    policy = str(rollout.about.get("policy_name") or "")[:100]
    provenance = Provenance("robo_arena", rollout.instruction, "droid", camera, source=policy)
    name = episode_id(f"{rollout.folder.parent.name}/{rollout.folder.name}", camera, list(videos))
    label, stated = _label(rollout, full), rollout.preference
    if stated is not None:  # a pair for each camera
        label = replace(label, preference=replace(stated, pair=f"{stated.pair}@{camera}"))
    return Episode(name, rollout.instruction, VideoFile(videos[camera]).clip(), label, provenance)


def _label(rollout: Rollout, full: float) -> Label:
    """Return level and success of a grade, from 0 to the full one, by the progress at which levels begin."""
    grade = rollout.about.get("partial_success")
    if grade is None:
        return Label()
    if isinstance(grade, bool) or not isinstance(grade, int | float) or not 0 <= grade <= full:
        raise DataError(f"partial_success must be a number from 0 to 1, or to 100 in all the dump, got {shown(grade)}")
    return Label(level_of_progress(grade / full), grade == full)


# YAML from strangers: bounded in size and depth, without aliases.


def read_yaml(folder: Path, path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file below the folder holds; DataError says what is wrong with it."""
    require_packages(str(path), "yaml", extra="roboarena", error=DataError)
    import yaml

    require_inside(folder, path)
    try:
        with open_regular(path) as file:
            data = file.read(ROW_BYTES.value + 1)
        if len(data) > ROW_BYTES.value:
            raise ValueError(f"more than {ROW_BYTES.value:,} bytes, {ROW_BYTES.describe()}")
        text = data.decode()
        _require_plain(path, yaml.parse(text, yaml.SafeLoader))
        found = yaml.safe_load(text)
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; copy the dataset again") from None
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        what = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not YAML that can be used ({what}); copy the file again") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a mapping, got {type(found).__name__}; copy the file again")
    return {str(key): value for key, value in found.items()}


def _require_plain(path: Path, events: Any) -> None:
    """Raise DataError for aliases and for nesting without end, before anything is built."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if kind == "AliasEvent":
            raise DataError(f"{path}: line {event.start_mark.line + 1} has an alias; write the values out")
        if depth > JSON_DEPTH.value:
            raise DataError(f"{path}: too many values inside each other, {JSON_DEPTH.describe()}")


ROBOARENA = Reader(
    "roboarena",
    "dumps of RoboArena, old and new: graded rollouts in evaluation_sessions; several cameras; extra roboarena",
    "evaluation_sessions of a RoboArena dump",
    recognises,
    partial(read_camera, wanted=""),
    notes,
    read_camera,
)
