"""How fast pocket scores: clips of 16 frames a second in batches, and milliseconds for one clip and for one frame.

    python benchmarks/pocket_speed.py [--threads 2] [--model pocket | --model FOLDER/VARIANT] [--device cuda]

Every clip is new, so no frame comes from the cache. Float32, int8 (where the model has that graph) and the same network
in torch take turns on the same clips with the same number of threads. Torch has no gradients, random weights and
frames of the network's size and number (needs rewardlab[train]). On a GPU there is float32 alone. A ratio is the time
of torch over that of ours.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--model", default="pocket")
parser.add_argument("--clips", type=int, default=64)
parser.add_argument("--device", default="cpu")
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from rewardlab.core.episode import Episode, episode_from_frames  # noqa: E402
from rewardlab.models.pocket import (  # noqa: E402
    WEIGHTS,
    WORD_VECTORS,
    choose_precision,
    int8_image_encoder,
)
from rewardlab.models.pocket.inference import PocketRewardModel, load_word_pieces, open_pocket  # noqa: E402
from rewardlab.training.encoders import WORD_VECTOR_WIDTH, Dinov2  # noqa: E402
from rewardlab.training.pocket.network import NetworkConfig, PocketNetwork, network_config  # noqa: E402

BATCH, ROUNDS = 16, 5
INSTRUCTION, LARGE_SIDE = "Open the drawer.", 168
Work = Callable[[list[Episode]], None]


def clips(seed: int) -> list[Episode]:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (arguments.clips, 16, 128, 128, 3), dtype=np.uint8)
    return [episode_from_frames(clip, INSTRUCTION) for clip in frames]


def batches(episodes: list[Episode]) -> list[list[Episode]]:
    return [episodes[start : start + BATCH] for start in range(0, len(episodes), BATCH)]


def scoring(model: PocketRewardModel) -> Work:
    def work(episodes: list[Episode]) -> None:
        for batch in batches(episodes):
            model.score(batch)

    return work


def torch_forward(size: int) -> Work:
    """Return the work of the network in torch: of the large one, if frames have its size."""
    torch.set_num_threads(arguments.threads)
    large = network_config("pocket-large", LARGE_SIDE)
    config = large if size == LARGE_SIDE else NetworkConfig(size)
    network = PocketNetwork(config, Dinov2() if config.dinov2 else None).eval().to(arguments.device)
    words = len(load_word_pieces(WORD_VECTORS).pieces(INSTRUCTION))

    def work(episodes: list[Episode]) -> None:
        for batch in batches(episodes):
            frames = torch.zeros((len(batch), config.frames, size, size, 3), dtype=torch.uint8)
            text = torch.zeros(len(batch), words, WORD_VECTOR_WIDTH), torch.ones(len(batch), words)
            with torch.inference_mode():
                network(*(each.to(arguments.device) for each in (frames, *text))).levels.cpu()

    return work


def seconds(work: Work, episodes: list[Episode]) -> float:
    started = time.perf_counter()
    work(episodes)
    return time.perf_counter() - started


def best_in_turns(works: dict[str, Work]) -> dict[str, float]:
    """Return the best time of each; they take turns, so that a busy moment of the machine meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS):
        episodes = clips(number)
        for name, work in works.items():
            found[name].append(seconds(work, episodes))
    return {name: min(times) for name, times in found.items()}


def latencies(model: PocketRewardModel) -> tuple[float, float]:
    """Return the milliseconds for one clip and for one frame more of a clip under way."""
    single = [seconds(scoring(model), [episode]) for episode in clips(7)[:24]]
    stream, frame = model.stream(INSTRUCTION), []
    for image in np.concatenate([episode.frames for episode in clips(8)[:3]]):
        started = time.perf_counter()
        stream.add_frame(image)
        frame.append(time.perf_counter() - started)
    return 1000 * statistics.median(single), 1000 * statistics.median(frame)


def open_in(stem: Path, forced: str) -> PocketRewardModel:
    os.environ["REWARDLAB_POCKET_INT8"] = forced
    model = open_pocket(stem)
    del os.environ["REWARDLAB_POCKET_INT8"]
    return model


def main() -> None:
    stem = Path(arguments.model) if "/" in arguments.model else WEIGHTS / arguments.model
    on_gpu = arguments.device != "cpu"
    chosen = "float32" if on_gpu else choose_precision(stem)
    models = {"float32": open_pocket(stem, "float32", arguments.device) if on_gpu else open_in(stem, "0")}
    if int8_image_encoder(stem).exists() and not on_gpu:
        models["int8"] = open_in(stem, "1")
    rival = torch_forward(models["float32"].settings.size)
    works = {name: scoring(model) for name, model in models.items()} | {"torch": rival}
    for work in works.values():
        work(clips(99)[:BATCH])
    times = best_in_turns(works)
    where = f"{arguments.device}, {arguments.threads} threads"
    print(f"{arguments.model}, {where}, {arguments.clips} clips of 16 frames, {BATCH} a batch")
    for name, found in times.items():
        print(f"{name}: {arguments.clips / found:.1f} clips/s, ratio to torch {times['torch'] / found:.2f}")
    for name, model in models.items():
        clip, frame = latencies(model)
        print(f"{name}: one clip {clip:.1f} ms, one frame more {frame:.1f} ms")
    print(f"chosen on this machine: {chosen}")
    print(f"ratio: {times['torch'] / times[chosen]:.2f}")


if __name__ == "__main__":
    main()
