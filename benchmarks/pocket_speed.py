"""How fast pocket scores: clips of 16 frames a second in batches, and milliseconds for one clip and for one frame.

    python benchmarks/pocket_speed.py [--threads 2] [--model pocket]

Every clip is new, so no frame comes from the cache. The rival is the same network in torch, without gradients, on the
same clips with the same number of threads, cut to size instead of resized (needs rewardlab[train]); the last line is
its time over ours for the batch.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--model", default="pocket")
parser.add_argument("--clips", type=int, default=64)
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from rewardlab.core.episode import Episode, episode_from_frames  # noqa: E402
from rewardlab.models.pocket import WEIGHTS  # noqa: E402
from rewardlab.models.pocket.inference import open_pocket  # noqa: E402
from rewardlab.training.pocket.network import NETWORK_CONFIGS, PocketNetwork  # noqa: E402

BATCH, ROUNDS = 16, 3


def clips(seed: int) -> list[Episode]:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (arguments.clips, 16, 128, 128, 3), dtype=np.uint8)
    return [episode_from_frames(clip, "Open the drawer.") for clip in frames]


def best_of_rounds(work: Callable[[list[Episode]], None], rounds: int = ROUNDS) -> float:
    found = []
    for number in range(rounds):
        episodes = clips(number)
        started = time.perf_counter()
        work(episodes)
        found.append(time.perf_counter() - started)
    return min(found)


def main() -> None:
    model = open_pocket(WEIGHTS / arguments.model)
    model.score(clips(99)[:2])

    def ours(episodes: list[Episode]) -> None:
        for start in range(0, len(episodes), BATCH):
            model.score(episodes[start : start + BATCH])

    network = PocketNetwork(NETWORK_CONFIGS[arguments.model]).eval()
    torch.set_num_threads(arguments.threads)

    def theirs(episodes: list[Episode]) -> None:
        words, known = torch.zeros(BATCH, 48, 128), torch.ones(BATCH, 48)
        for start in range(0, len(episodes), BATCH):
            frames = np.stack([episode.frames[:, :112, :112] for episode in episodes[start : start + BATCH]])
            with torch.inference_mode():
                network(torch.from_numpy(frames), words[: len(frames)], known[: len(frames)])

    batch, rival = best_of_rounds(ours), best_of_rounds(theirs)
    single = []
    for episode in clips(7)[:24]:
        started = time.perf_counter()
        model.score([episode])
        single.append(time.perf_counter() - started)
    frame = []
    stream = model.stream("Open the drawer.")
    for image in np.concatenate([episode.frames for episode in clips(8)[:3]]):
        started = time.perf_counter()
        stream.add_frame(image)
        frame.append(time.perf_counter() - started)
    print(f"{arguments.model}, {arguments.threads} threads, {arguments.clips} clips of 16 frames at 128 px")
    print(f"in batches of {BATCH}: {arguments.clips / batch:.1f} clips/s; torch {arguments.clips / rival:.1f} clips/s")
    print(
        f"one clip: {1000 * statistics.median(single):.1f} ms; one frame more: {1000 * statistics.median(frame):.1f} ms"
    )
    print(f"ratio: {rival / batch:.2f}")


if __name__ == "__main__":
    main()
