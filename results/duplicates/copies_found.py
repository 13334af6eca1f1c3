"""Copy every clip of some datasets in five ways and count how many copies are found, and how many pairs wrongly.

python results/duplicates/copies_found.py sample sample-sim > results/duplicates/copies_found.txt
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.duplicates import find_duplicates
from rewardlab.data.roboreward import read_folder


def changed(frames: Frames) -> Iterator[tuple[str, Frames, int]]:
    """Yield the name of each change, the frames after it, and the quality to encode them with."""
    cut = max(1, min(3, len(frames) // 6))
    height, width = frames.shape[1:3]
    size = (width * 6 // 20 * 2, height * 6 // 20 * 2)
    yield "CRF 36", frames, 36
    yield "60 % of its size", np.stack([cv2.resize(f, size, interpolation=cv2.INTER_AREA) for f in frames]), 23
    yield "first frames cut", frames[cut:], 23
    yield "last frames cut", frames[:-cut], 23
    yield "both ends cut, CRF 30", frames[1:-2], 30


def write_copies(episodes: tuple[Episode, ...], folder: Path) -> None:
    """Write the copies of every clip as a dataset; the task of a copy is the id of its original."""
    rows = []
    for number, episode in enumerate(episodes):
        for name, frames, quality in changed(episode.frames):
            encode(frames, folder / f"{number}-{name}.mp4", episode.clip.fps, crf=quality)
            rows.append(f'{{"file_name": "{number}-{name}.mp4", "task": "{episode.id}", "reward": 1}}')
    (folder / "metadata.jsonl").write_text("\n".join(rows) + "\n")


def main(data: str) -> None:
    """Print, per change, how many copies were found, and how many pairs of different clips were taken for copies."""
    episodes = open_dataset(data).episodes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = find_duplicates(episodes, None, folder, ordered_map=map)["copies"]
        write_copies(episodes, folder)
        copies = read_folder(folder).episodes
        found = find_duplicates(copies, episodes, folder, ordered_map=map)["copies"]
    original = {copy.id: copy.instruction for copy in copies}
    right = [c["episode"] for c in found if c["where"] == "training" and c["other"] == original[c["episode"]]]
    print(f"{data}: {len(episodes)} clips, {len(wrong)} pairs of different clips taken for copies")
    for change, _, _ in changed(episodes[0].frames):
        print(f"  {change}: {sum(change in name for name in right)} of {len(episodes)} copies found")
    print(f"  {sum(c['where'] == 'training' for c in found) - len(right)} copies taken for that of another clip")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
