"""How fast RLDS episodes are read without TensorFlow: against tensorflow-datasets, and against the bare bytes.

    python benchmarks/rlds_speed.py [--rival-venv FOLDER] [--episodes N]

Writes N episodes of 50 frames, 256 x 256 JPEG, with a reward and an instruction, and reads them one way after another:
`open` finds every episode, both checksums checked and no frame decoded, `16 frames` decodes what a stress test
shows, `all frames` decodes everything. tensorflow-datasets runs in an environment of its own that has it
(`pip install tensorflow-cpu tensorflow-datasets`); it decodes whole episodes, or with `SkipDecoding` none.
Without that environment only the limit is measured: reading the file,
and reading it with its checksums. The last line is `ratio: X`, frames per second of processor time over the rival's.
"""

import argparse
import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.data.tfrecord_writer import example

from rewardlab.data import open_dataset
from rewardlab.data.tfrecord import masked_crc, read_records
from rewardlab.data.video import frame_policy, sample_frames

STEPS, SIZE, ROUNDS = 50, 256, 3
CLASSES = "tensorflow_datasets.core.features"
RIVAL = """
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(sys.argv[1])
image = {"steps": {"observation": {"image": tfds.decode.SkipDecoding()}}}
def read(decoders):
    frames = 0
    for episode in builder.as_dataset(split="train", decoders=decoders):
        frames += sum(1 for _ in tfds.as_numpy(episode["steps"]))
    return frames
for name, decoders in (("no frames", image), ("all frames", None)):
    read(decoders)
    for _ in range(int(sys.argv[2])):
        wall, cpu = time.perf_counter(), time.process_time()
        frames = read(decoders)
        print(json.dumps([name, frames, time.perf_counter() - wall, time.process_time() - cpu]))
"""


def write_dataset(folder: Path, episodes: int) -> Path:
    """Write the episodes as tensorflow-datasets stores them, and return the file of records."""
    place = folder / "speed" / "1.0.0"
    place.mkdir(parents=True)
    file = place / "speed-train.tfrecord-00000-of-00001"
    rng = np.random.default_rng(0)
    with file.open("wb") as out:
        for number in range(episodes):
            data = example(one_episode(number, rng))
            length = struct.pack("<Q", len(data))
            out.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
    (place / "features.json").write_text(json.dumps(features()))
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    split = {"name": "train", "filepathTemplate": template, "shardLengths": [str(episodes)]}
    split["numBytes"] = str(file.stat().st_size)
    info = {"name": "speed", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [split]}
    (place / "dataset_info.json").write_text(json.dumps(info))
    return file


def one_episode(number: int, rng: np.random.Generator) -> dict[str, list]:
    base = cv2.resize(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8), (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    frames = [np.roll(base, step * 3, axis=1) for step in range(STEPS)]
    return {
        "steps/observation/image": [cv2.imencode(".jpg", frame)[1].tobytes() for frame in frames],
        "steps/language_instruction": [f"push block {number}".encode()] * STEPS,
        "steps/reward": [0.0] * (STEPS - 1) + [1.0],
    }


def features() -> dict:
    """Return a features.json that both readers take."""
    image = {"shape": {"dimensions": [str(SIZE), str(SIZE), "3"]}, "dtype": "uint8", "encodingFormat": "jpeg"}
    steps = {
        "observation": group({"image": {"pythonClassName": f"{CLASSES}.image_feature.Image", "image": image}}),
        "language_instruction": {"pythonClassName": f"{CLASSES}.text_feature.Text", "text": {}},
        "reward": {
            "pythonClassName": f"{CLASSES}.scalar.Scalar",
            "tensor": {"shape": {}, "dtype": "float32", "encoding": "none"},
        },
    }
    sequence = {"feature": group(steps), "length": "-1"}
    return group({"steps": {"pythonClassName": f"{CLASSES}.dataset_feature.Dataset", "sequence": sequence}})


def group(members: dict) -> dict:
    return {"pythonClassName": f"{CLASSES}.features_dict.FeaturesDict", "featuresDict": {"features": members}}


def timed(work: Callable[[], int]) -> tuple[int, float, float]:
    """Return how many frames, and the best wall clock and processor seconds of a few rounds."""
    work()
    rounds = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        frames = work()
        rounds.append((time.perf_counter() - wall, time.process_time() - cpu))
    return frames, min(each[0] for each in rounds), min(each[1] for each in rounds)


def ours(file: Path, frames: str) -> int:
    """Read the dataset with so many frames of each episode, and return how many that are."""
    episodes = open_dataset(str(file.parent)).episodes
    if not frames:
        return sum(len(episode.clip) for episode in episodes)
    return sum(len(sample_frames(episode, frame_policy(frames)).frames) for episode in episodes)


def rival(python: Path, file: Path) -> dict[str, tuple[int, float, float]]:
    command = [str(python), "-c", RIVAL, str(file.parent), str(ROUNDS)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, tuple[int, float, float]] = {}
    for name, frames, wall, cpu in (json.loads(line) for line in lines if line.startswith("[")):
        before = found.get(name, (frames, wall, cpu))
        found[name] = (frames, min(wall, before[1]), min(cpu, before[2]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival-venv", type=Path, help="an environment with tensorflow-datasets")
    parser.add_argument("--episodes", type=int, default=100)
    settings = parser.parse_args()
    with TemporaryDirectory() as folder:
        file = write_dataset(Path(folder), settings.episodes)
        megabytes = file.stat().st_size / 1e6
        print(f"{settings.episodes} episodes of {STEPS} frames, {SIZE} x {SIZE} JPEG, {megabytes:.1f} MB")
        rows = {
            "bytes alone": timed(lambda: len(file.read_bytes()) and settings.episodes * STEPS),
            "bytes with checksums": timed(lambda: sum(STEPS for _ in read_records(file))),
            "rewardlab, open": timed(lambda: ours(file, "")),
            "rewardlab, 16 frames": timed(lambda: ours(file, "uniform:16")),
            "rewardlab, all frames": timed(lambda: ours(file, "all")),
        }
        if settings.rival_venv is not None:
            for name, measured in rival(settings.rival_venv / "bin" / "python", file).items():
                rows[f"tensorflow-datasets, {name}"] = measured
    print(f"{'':32}{'wall, s':>9}{'processor, s':>14}{'frames/s of processor':>23}{'MB/s':>8}")
    for name, (frames, wall, cpu) in rows.items():
        print(f"{name:32}{wall:9.3f}{cpu:14.3f}{frames / cpu:23,.0f}{megabytes / wall:8,.0f}")
    against = "tensorflow-datasets, all frames" if settings.rival_venv is not None else "bytes with checksums"
    (mine, _, my_cpu), (theirs, _, their_cpu) = rows["rewardlab, all frames"], rows[against]
    print(f"ratio: {(mine / my_cpu) / (theirs / their_cpu):.2f} (to {against})")


if __name__ == "__main__":
    main()
