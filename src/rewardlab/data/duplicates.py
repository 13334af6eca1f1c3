"""Duplicate videos: the same bytes, or nearly the same frames (re-encoded, resized, trimmed a little)."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Episode, FrameSource
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import writable
from rewardlab.data.perceptual_hash import (
    Hashes,
    compared_frames,
    frame_hashes,
    hamming_distance,
    motion_distance,
    video_distance,
)

# They find all 740 copies of the shipped clips, and no other pair: results/duplicates/copies_found.py.
NEAR_DUPLICATE = 0.03  # share of bits up to which two videos are copies
MAYBE_DUPLICATE = 0.06  # up to which they are where what moves is alike as well
SAME_MOTION = 0.55
_SAME_SCENE = 0.25  # mean frames further apart than this are not compared frame by frame
_ROWS = 32  # videos compared with all others at a time
_SAY_SECONDS = 10.0

Video = tuple[str, FrameSource]  # its digest, and its frames
HashedVideo = tuple[str, Hashes | None]
# A map that keeps the order, such as one over threads.
OrderedMap = Callable[[Callable[[Video], HashedVideo], Sequence[Video]], Iterable[HashedVideo]]


@dataclass(frozen=True)
class Duplicate:
    """An evaluated episode whose video is there already: before it in the test set, or in the training set."""

    episode: str
    other: str
    where: str  # "test" or "training"
    kind: str  # "exact" or "near"
    distance: float
    same_instruction: bool


def find_duplicates(
    test: Sequence[Episode], training: Sequence[Episode] | None, folder: Path, ordered_map: OrderedMap
) -> dict[str, Any]:
    """Return the duplicates as plain data; hashes are kept in the folder, so that none is made again."""
    everything = (*test, *(training or ()))
    hashes = video_hashes(everything, folder / "signatures.jsonl", ordered_map)
    duplicates = [*_duplicates(test, test, "test", hashes), *_duplicates(test, training or (), "training", hashes)]
    return {
        "episodes": len(test),
        "training_episodes": None if training is None else len(training),
        "not_decoded": sorted({e.id for e in everything if e.clip.source.digest not in hashes}),
        "copies": [asdict(duplicate) for duplicate in duplicates],
    }


def episodes_to_leave_out(copies: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the episodes to leave out: those in the training set, and repeated questions of the test set."""
    return {str(copy["episode"]) for copy in copies if copy["where"] == "training" or copy["same_instruction"]}


def video_hashes(episodes: Sequence[Episode], path: Path, ordered_map: OrderedMap) -> dict[str, Hashes]:
    """Return the hashes of each video by its digest; those in the file are not made again, broken videos have none."""
    known = _read(path)
    videos = {episode.clip.source.digest: episode.clip.source for episode in episodes}
    todo = [item for item in videos.items() if item[0] not in known]
    said = time.monotonic()
    with writable(path), path.open("a", encoding="utf-8") as file:
        for number, (name, made) in enumerate(ordered_map(_hash_video, todo), start=1):
            if made is not None:
                known[name] = made
                file.write(json.dumps({"video": name, "hashes": made.tobytes().hex()}) + "\n")
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                print(f"hashed {number:,} of {len(todo):,} videos for duplicates", file=sys.stderr)
    return {name: known[name] for name in videos if name in known}


def _hash_video(video: Video) -> HashedVideo:
    try:
        return video[0], frame_hashes(compared_frames(video[1]))
    except RewardlabError:
        return video[0], None


def _read(path: Path) -> dict[str, Hashes]:
    known: dict[str, Hashes] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            known[row["video"]] = np.frombuffer(bytes.fromhex(row["hashes"]), np.uint64).reshape(-1, 4)
        except (ValueError, LookupError, TypeError):  # the line that was being written when the run was killed
            continue
    return known


def _duplicates(
    test: Sequence[Episode], others: Sequence[Episode], where: str, hashes: Mapping[str, Hashes]
) -> list[Duplicate]:
    """Return, for each evaluated episode, the other that is most like it; in the test set, among those before it."""
    near = _near(test, others, hashes)
    shown: dict[str, list[tuple[int, Episode]]] = {}
    for place, other in enumerate(others):
        shown.setdefault(other.clip.source.digest, []).append((place, other))
    copies = []
    for place, episode in enumerate(test):
        found = [
            _duplicate(episode, other, where, apart)
            for video, apart in near[episode.clip.source.digest].items()
            for other_place, other in shown[video]
            if where == "training" or other_place < place
        ]
        copies += [min(found, key=lambda copy: (not copy.same_instruction, copy.kind, copy.distance))] if found else []
    return copies


def _duplicate(episode: Episode, other: Episode, where: str, apart: float) -> Duplicate:
    kind = "exact" if episode.clip.source.digest == other.clip.source.digest else "near"
    return Duplicate(episode.id, other.id, where, kind, apart, episode.instruction == other.instruction)


def _near(
    test: Iterable[Episode], others: Iterable[Episode], hashes: Mapping[str, Hashes]
) -> dict[str, dict[str, float]]:
    """Return, for each video of the test set, the others that it is or is near to, and how far they are."""
    mine, theirs = ({e.clip.source.digest: e.clip.source for e in episodes} for episodes in (test, others))
    found: dict[str, dict[str, float]] = {name: ({name: 0.0} if name in theirs else {}) for name in mine}
    a, b = ([name for name in names if name in hashes] for names in (mine, theirs))
    if not a or not b:
        return found
    means_a, means_b = (np.stack([hashes[name][0] for name in names]) for names in (a, b))
    for start in range(0, len(a), _ROWS):
        same_scene = hamming_distance(means_a[start : start + _ROWS, None], means_b[None]) <= _SAME_SCENE
        for row, column in np.argwhere(same_scene).tolist():
            name, other = a[start + row], b[column]
            apart = video_distance(hashes[name], hashes[other])
            if name != other and apart <= MAYBE_DUPLICATE and _is_duplicate(apart, mine[name], theirs[other]):
                found[name][other] = round(apart, 4)
    return found


def _is_duplicate(apart: float, a: FrameSource, b: FrameSource) -> bool:
    return apart <= NEAR_DUPLICATE or motion_distance(compared_frames(a), compared_frames(b)) <= SAME_MOTION
