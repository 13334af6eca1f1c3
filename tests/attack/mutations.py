"""Seeded mutations of rows and of videos: what becomes of each, counted by outcome.

Videos are tried in processes of their own, in batches, so that a decoder that crashes or hangs costs one outcome.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np

from rewardlab.core.episode import fingerprint_frames
from rewardlab.core.errors import DataError
from rewardlab.data.roboreward import read_folder
from rewardlab.data.roboreward_rows import METADATA, row_of
from rewardlab.data.video import VideoFile
from tests.attack.hostile_files import small_mp4
from tests.attack.peak_memory import peak_mb

BATCH = 50
BATCH_SECONDS = 120
PEAK_MB = 1500
ROWS = (
    '{"file_name": "a.mp4", "task": "put the red cup on the plate", "reward": 5}',
    '{"file_name": "a.mp4", "task": "öffne die Tür", "success": false, "fps": 12.5}',
    '{"file_name": "b.mp4", "task": "push", "reward": 3, "progress": [0, 0.25, 0.5, 0.75]}',
    '{"file_name": "b.mp4", "task": "x", "world": {"kind": "metaworld", "file": "b.npy"}, "source": "\\u00e9"}',
)
_SPLICED = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"[" * 500, b'{"a":' * 500, b"9" * 400, b"1e400", b"NaN", b'"',
    b"-", b"../", b"/etc/passwd", b"\n", b"null", b"true", b"\xef\xbb\xbf", b'"file_name": ""', b"\\u0000", b"]", b"}",
)  # fmt: skip


def mutate(data: bytes, rng: Random) -> bytes:
    """Return the bytes after one to three changes: flipped, cut, moved, repeated, zeroed or spliced."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if changed:
            rng.choice(_CHANGES)(changed, rng)
    return bytes(changed)


def mutated_rows(count: int, seed: int, folder: Path) -> Counter[str]:
    """Read so many mutated metadata files; every episode that comes out is hashed, printed and written as a row."""
    (folder / "a.mp4").write_bytes(small_mp4())
    (folder / "b.mp4").write_bytes(small_mp4(count=4))
    rng, outcomes = Random(seed), Counter[str]()
    for _ in range(count):
        (folder / METADATA).write_bytes(mutate("\n".join(ROWS).encode() + b"\n", rng))
        outcomes[_row_outcome(folder)] += 1
    return outcomes


def mutated_videos(count: int, seed: int, folder: Path) -> Counter[str]:
    """Decode so many mutated videos in processes of their own; `other pixels` is what no decoder can see."""
    sound, rng, outcomes = small_mp4(), Random(seed), Counter[str]()
    (folder / "sound.mp4").write_bytes(sound)
    for start in range(0, count, BATCH):
        names = [f"{number}.mp4" for number in range(start, min(start + BATCH, count))]
        for name in names:
            (folder / name).write_bytes(mutate(sound, rng))
        while names:
            done, ended = _run_batch(folder, names)
            outcomes.update(done)
            names = names[len(done) :]
            if names:
                outcomes[ended] += 1
                names = names[1:]
    return outcomes


def _row_outcome(folder: Path) -> str:
    try:
        contents = read_folder(folder)
        for episode in contents.episodes:
            json.dumps(row_of(episode, "x.mp4"), ensure_ascii=False).encode()
            f"{episode.hash} {episode.id} {episode.provenance}".encode()
        "\n".join(map(str, contents.problems)).encode()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "traceback"
    return "problem" if contents.problems else "sound"


def _run_batch(folder: Path, names: list[str]) -> tuple[list[str], str]:
    """Return the outcomes of the files that were finished, and how the process ended."""
    command = [sys.executable, "-m", "tests.attack.mutations", str(folder), *names]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root) as process:
        try:
            output, _ = process.communicate(timeout=BATCH_SECONDS)
            ended = "crash"
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            ended = "hang"
    return output.decode().splitlines(), ended


def _video_outcomes(folder: Path, names: list[str]) -> Iterator[str]:
    expected = _pixels(folder / "sound.mp4")
    for name in names:
        try:
            found = "sound" if _pixels(folder / name) == expected else "other pixels"
        except DataError:
            found = "problem"
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            found = "traceback"
        yield found if peak_mb() < PEAK_MB else "memory"


def _pixels(path: Path) -> str:
    video = VideoFile(path)
    video.check_frames()
    return fingerprint_frames(video.read(np.arange(video.count)))


def _flip(data: bytearray, rng: Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + 1 + rng.randrange(len(data) // 2 + 1)]


def _move(data: bytearray, rng: Random) -> None:
    start, length, place = rng.randrange(len(data)), rng.randint(1, 64), rng.randrange(len(data))
    piece = data[start : start + length]
    del data[start : start + length]
    data[place:place] = piece


def _repeat(data: bytearray, rng: Random) -> None:
    start, length = rng.randrange(len(data)), rng.randint(1, 400)
    data[start:start] = data[start : start + length]


def _extreme_number(data: bytearray, rng: Random) -> None:
    start = rng.randrange(len(data))
    data[start : start + 4] = rng.choice((bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"))


def _header_number(data: bytearray, rng: Random) -> None:
    """Change a number after the letters of a box, where there is one."""
    start = data.find(rng.choice((b"stsz", b"stts", b"stsc", b"stco", b"tkhd", b"mdhd", b"elst", b"avc1", b"avcC")))
    if start >= 0:
        place = min(start + rng.randrange(4, 60), len(data) - 1)
        data[place] = rng.randrange(256)


def _splice(data: bytearray, rng: Random) -> None:
    place = rng.randrange(len(data))
    data[place:place] = rng.choice(_SPLICED)


_CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip, _flip, _cut, _move, _repeat, _extreme_number, _header_number, _header_number, _splice,
)  # fmt: skip

if __name__ == "__main__":
    for outcome in _video_outcomes(Path(sys.argv[1]), sys.argv[2:]):
        print(outcome, flush=True)
