"""Copies: exact by bytes, near by perceptual hash."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, FrameSource
from rewardlab.core.errors import DataError, RewardlabError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.storage import append_to_journal, read_journal, writable
from rewardlab.core.terminal import loading
from rewardlab.data.safe_files import digest_of_file, path_inside
from rewardlab.data.video import spread_evenly

FRAMES = 48  # compared, of each video
_SIDE = 16  # frequencies per direction
_WORDS = _SIDE * _SIDE // 64
_BITS = 64 * _WORDS
_THUMBNAIL = 32  # pixels per direction

Hashes = NDArray[np.uint64]  # (1 + frames, 4): that of the mean frame comes first
GreyFrames = NDArray[np.float32]


def compared_frames(source: FrameSource) -> Iterator[Frames]:
    """Yield the frames of a video that are compared, spread evenly; as many are decoded at once as memory may hold."""
    places = spread_evenly(source.count, FRAMES)
    together = max(1, CLIP_MB.in_bytes // max(source.read(places[:1]).nbytes, 1))
    for start in range(0, len(places), together):
        yield from source.read(places[start : start + together])


def frame_hashes(frames: Iterable[Frames]) -> Hashes:
    """Return the perceptual hash of the mean frame, then that of each frame."""
    import cv2  # here and below: it is slow to load, and exact copies are found without it

    grey = _small(frames, 4 * _SIDE)
    low = np.stack([cv2.dct(frame)[:_SIDE, :_SIDE].ravel() for frame in (grey.mean(axis=0), *grey)])
    bits = low > np.median(low, axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(np.uint64)


def video_distance(a: Hashes, b: Hashes) -> float:
    """Return the share of bits in which frames differ from the closest frame of the other video, from 0 to 1."""
    apart = hamming_distance(a[1:, None], b[None, 1:])
    return float(apart.min(axis=0).mean() + apart.min(axis=1).mean()) / 2


def hamming_distance(a: Hashes, b: Hashes) -> NDArray[np.float64]:
    """Return the share of bits in which hashes differ, from 0 to 1."""
    found: NDArray[np.float64] = np.bitwise_count(a ^ b).sum(axis=-1, dtype=np.int64) / _BITS
    return found


def motion_distance(a: Iterable[Frames], b: Iterable[Frames]) -> float:
    """Return how far what moves in two videos is apart, in units of how much moves; 0 for equal ones."""
    moving_a, moving_b = _foreground(a), _foreground(b)
    apart = np.sqrt(((moving_a[:, None] - moving_b[None]) ** 2).mean(axis=(2, 3)))
    scale = np.sqrt((moving_a**2).mean()) + np.sqrt((moving_b**2).mean())
    return float((apart.min(axis=0).mean() + apart.min(axis=1).mean()) / max(scale, 1e-6))


def _foreground(frames: Iterable[Frames]) -> GreyFrames:
    small = _small(frames, _THUMBNAIL)
    return small - np.median(small, axis=0).astype(np.float32)


def _small(frames: Iterable[Frames], side: int) -> GreyFrames:
    import cv2

    grey = (cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames)
    small = [cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in grey]
    return np.stack(small).astype(np.float32)


# They find all 740 copies of the shipped clips, and no other pair: results/duplicates/copies_found.py.
NEAR_DUPLICATE = 0.03  # share of bits up to which two videos are copies
MAYBE_DUPLICATE = 0.06  # up to which they are where what moves is alike as well
SAME_MOTION = 0.55
_SAME_SCENE = 0.25  # mean frames further apart than this are not compared frame by frame
_ROWS = 32  # videos compared with all others at a time

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
    known: dict[str, Hashes] = {}
    for entry in read_journal(path, ("video", "hashes")):
        with suppress(ValueError, TypeError):  # hashes that this version did not write are made anew
            known[entry["video"]] = np.frombuffer(bytes.fromhex(entry["hashes"]), np.uint64).reshape(-1, _WORDS)
    videos = {episode.clip.source.digest: episode.clip.source for episode in episodes}
    todo = [item for item in videos.items() if item[0] not in known]
    with writable(path), loading(f"hashing {len(todo):,} videos to find duplicates", quiet=not todo):
        for name, made in ordered_map(_hash_video, todo):
            if made is not None:
                known[name] = made
                append_to_journal(path, {"video": name, "hashes": made.tobytes().hex()}, durable=False)
    return {name: known[name] for name in videos if name in known}


def _hash_video(video: Video) -> HashedVideo:
    try:
        return video[0], frame_hashes(compared_frames(video[1]))
    except RewardlabError:
        return video[0], None


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
        mine = episode.clip.source.digest
        found = []
        for video, apart in near[mine].items():
            kind = "exact" if video == mine else "near"
            for other_place, other in shown[video]:
                if where == "training" or other_place < place:
                    same_instruction = episode.instruction == other.instruction
                    found.append(Duplicate(episode.id, other.id, where, kind, apart, same_instruction))
        copies += [min(found, key=lambda copy: (not copy.same_instruction, copy.kind, copy.distance))] if found else []
    return copies


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
            if name == other or apart > MAYBE_DUPLICATE:
                continue
            frames = map(compared_frames, (mine[name], theirs[other]))
            if apart <= NEAR_DUPLICATE or motion_distance(*frames) <= SAME_MOTION:
                found[name][other] = round(apart, 4)
    return found


# Videos that are copies of each other byte for byte: only files of the same size are opened.

_MOST_SAMPLED = 20_000  # files of equal size that are opened
_SAMPLE_BYTES = 512

VideoName = tuple[str, str]  # split, and the name of the file in it


@dataclass(frozen=True)
class ExactCopies:
    """Groups of videos with the same bytes, and how many files of equal size were too many to be opened."""

    groups: tuple[tuple[VideoName, ...], ...]
    unread: int


def exact_copies(folders: Mapping[str, Path], videos: Sequence[VideoName]) -> ExactCopies:
    """Return the groups of two videos or more that hold the same bytes; a file that cannot be read is in none."""
    roots = {split: f"{os.fspath(folder)}/" for split, folder in folders.items()}
    alike = _of_equal_size([roots[split] + name for split, name in videos], videos)
    samples: dict[tuple[int, bytes], list[VideoName]] = defaultdict(list)
    for size, (split, name) in alike[:_MOST_SAMPLED]:
        with suppress(OSError):
            samples[size, _sample(roots[split] + name, size)].append((split, name))
    contents: dict[str, list[VideoName]] = defaultdict(list)
    for split, name in (video for group in samples.values() if len(group) > 1 for video in group):
        with suppress(DataError):
            contents[digest_of_file(path_inside(folders[split], name, "file_name"))].append((split, name))
    groups = tuple(tuple(group) for group in contents.values() if len(group) > 1)
    return ExactCopies(groups, max(0, len(alike) - _MOST_SAMPLED))


def _of_equal_size(paths: Sequence[str], videos: Sequence[VideoName]) -> list[tuple[int, VideoName]]:
    """Return the videos whose size another one has too, with it, those of one size together."""
    sizes = np.fromiter(map(_size, paths), np.int64, len(paths))
    _, first, kind, count = np.unique(sizes, return_index=True, return_inverse=True, return_counts=True)
    shared = np.flatnonzero((count[kind] > 1) & (sizes >= 0))
    ordered = shared[np.lexsort((shared, first[kind[shared]]))]
    return [(size, videos[place]) for place, size in zip(ordered.tolist(), sizes[ordered].tolist(), strict=True)]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _sample(path: str, size: int) -> bytes:
    """Return a few bytes from inside a file: most that differ do so there, and need not be read to the end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe blocks nobody
    try:
        return os.pread(handle, _SAMPLE_BYTES, size // 4)
    finally:
        os.close(handle)
