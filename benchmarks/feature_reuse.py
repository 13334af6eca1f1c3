"""How much faster a vision-language model answers when it keeps what it has worked out for a clip.

    python benchmarks/feature_reuse.py [--shape small|2b|tiny] [--clips N]
    python benchmarks/feature_reuse.py --frames random --device cuda --shape 4b

One model judges every instruction and temporal change of the catalogue, at all four severities, on the shipped clip of
median length (or on N clips spread over the lengths): in the runner's batches with reuse on, then each cell alone with
reuse off. On a processor it is processor time that is counted, so that other work on the machine matters little.
Weights are random: they change what is answered, not what it costs, and both ways must answer alike. `--frames random`
needs neither a codec nor OpenCV: noise for frames, instructions and frame orders from lists, no catalogue.

Shapes: `small` is the vision tower of Qwen3-VL-2B and -4B on a language model like Qwen3-0.6B, both at half their
depth and an eighth of their width, so that vision takes most of a lone cell; `2b` is Qwen3-VL-2B cut down alike;
`4b` is Qwen3-VL-4B in full but for its vocabulary, in bfloat16 on a GPU. The last line is `ratio: X`, the time of
every cell alone over the time with reuse.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.models import tiny

from rewardlab.core.episode import Episode, episode_from_frames, rearrange
from rewardlab.core.seeding import rng_for
from rewardlab.models.backends.checkpoint import choose_dtype
from rewardlab.models.backends.hf_options import HfOptions
from rewardlab.models.backends.lru_cache import LRUCache
from rewardlab.models.backends.qwen_vlm import QwenVL
from rewardlab.models.protocols.rubric import Rubric, RubricOptions

BATCH = 8  # the runner's default
STREAM = 45  # frames of an invented clip, chosen so that as many pairs of frames come again as in the shipped clips
Cells = list[tuple[str, Episode]]  # the category of each change, and the episode as it shows it


def text_shape(width: int, inner: int, layers: int, heads: int, head: int) -> dict[str, int]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
    return dict(zip(names, (width, inner, layers, heads, head))) | {"num_key_value_heads": max(1, heads // 4)}


def tower_shape(width: int, depth: int) -> dict[str, Any]:
    shape = {"depth": depth, "hidden_size": width, "intermediate_size": 4 * width, "num_heads": max(2, width // 64)}
    return shape | {
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [depth * i // 4 - 1 for i in (1, 2, 3)],
    }


SHAPES = {
    "tiny": (tiny.TINY_TEXT, tiny.TINY_VISION_3),
    "small": (text_shape(128, 384, 14, 4, 32), tower_shape(128, 12)),
    "2b": (text_shape(256, 768, 14, 4, 64), tower_shape(128, 12)),
    "4b": (text_shape(2560, 9728, 36, 32, 128), tower_shape(1024, 24)),
}


def build(shape: str, device: str) -> tuple[Any, Any]:
    """Return a Qwen3-VL of this shape with random weights, made on the device itself, and a tokenizer for it."""
    tokenizer = tiny.qwen_tokenizer()
    config = tiny.qwen3_config(tokenizer, *SHAPES[shape])
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=choose_dtype("auto", device))
    tiny.loud(model)
    return model, tokenizer


def catalogue(clips: int) -> Cells:
    """Return real clips under every instruction and temporal change of the catalogue, clip by clip."""
    from rewardlab.perturbations.contract import PerturbedEpisode
    from rewardlab.runner.cell_planning import plan_cells
    from rewardlab.runner.cell_scoring import perturb_cells
    from rewardlab.runner.stress import StressPlan, load_episodes, scoring_context

    plan = StressPlan(("constant",), "sample", ("semantic", "temporal"), controls=False)
    contents = load_episodes(plan)
    context = scoring_context(plan, contents.episodes)
    parts = sorted(plan_cells(contents.episodes, context, plan.severities), key=lambda part: len(part.episode.clip))
    parts = [parts[len(parts) * (2 * i + 1) // (2 * clips)] for i in range(clips)]
    print("clips of", " and ".join(str(len(part.episode.clip)) for part in parts), "frames, 16 shown")
    made = [variant for part in parts for variant in perturb_cells(part, context)]
    return [(each.category, each.outcome.episode) for each in made if isinstance(each.outcome, PerturbedEpisode)]


def invented(clips: int) -> Cells:
    """Return noise under as many instructions and changes of order as the catalogue has."""
    cells: Cells = []
    for clip in range(clips):
        rng = rng_for(0, "feature reuse", clip)
        noise = episode_from_frames(rng.integers(0, 256, (STREAM, 480, 640, 3), dtype=np.uint8), "")
        for number in range(72):
            text = f"put cup {number} on the plate and {'open' if number % 2 else 'close'} the drawer"
            cells.append(("semantic", replace(shown(noise, np.arange(STREAM)), instruction=text)))
        cells += [("temporal", shown(noise, order)) for order in orders(rng)]
    return cells


def shown(episode: Episode, order: Any) -> Episode:
    """Return sixteen frames, evenly spread, of the stream that this order makes."""
    return rearrange(episode, order[np.unique(np.linspace(0, len(order) - 1, 16).round().astype(int))])


def orders(rng: np.random.Generator) -> Iterator[Any]:
    """Yield 84 orders of the stream: cut, held, frozen, repeated, thinned out and shuffled ones."""
    every = np.arange(STREAM)
    for kept in (STREAM * share // 10 for share in (9, 7, 5, 3)):
        yield from (every[:kept], every[-kept:], np.minimum(every, kept), np.maximum(every, STREAM - kept), every[::-1])
        yield from (np.repeat(every, 2)[: 2 * kept], np.tile(every, 2), np.where(every // kept == 1, kept - 1, every))
        yield from (np.sort(rng.choice(STREAM, kept, replace=False)) for _ in range(9))
        yield from (np.argsort(every + rng.uniform(0, (STREAM - kept) / 4, STREAM)) for _ in range(4))


def rubric(model: Any, tokenizer: Any, options: HfOptions) -> Rubric:
    return Rubric(QwenVL(model, tokenizer, options), RubricOptions("logits"))


def network(model: Rubric) -> Any:
    assert isinstance(model.vlm, QwenVL)
    return model.vlm.network


def now(model: Rubric) -> float:
    if network(model).device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(model: Rubric, cells: Cells, batch: int) -> tuple[list[Any], dict[str, float]]:
    """Return the answers, and the seconds spent on each category."""
    answers: list[Any] = []
    seconds: dict[str, float] = {}
    for group in portions(cells, batch):
        started = now(model)
        answers += model.score([episode for _, episode in group])
        name = group[0][0]
        seconds[name] = seconds.get(name, 0.0) + now(model) - started
    return answers, seconds


def portions(cells: Cells, batch: int) -> Iterable[Cells]:
    """Yield batches of one category each, as the runner's are but at the seams."""
    group: Cells = []
    for cell in cells:
        if group and (len(group) == batch or group[0][0] != cell[0]):
            yield group
            group = []
        group.append(cell)
    if group:
        yield group


def vision_share(model: Rubric, episode: Episode) -> float:
    """Return the share of a lone cell's time that its frames take, by asking again with their features known."""
    model.score([episode])
    times = []
    for forget in (True, False):
        if forget:
            network(model).features = LRUCache(network(model).features.max_bytes)
        network(model).prefixes = LRUCache(network(model).prefixes.max_bytes)
        started = now(model)
        model.score([episode])
        times.append(now(model) - started)
    return 1 - times[1] / times[0]


def new_pairs(model: Rubric, cells: Cells) -> float:
    """Return the share of pairs of frames in temporal changes that no earlier one has shown."""
    assert isinstance(model.vlm, QwenVL)
    builder = model.vlm.builder
    shows = [builder.visual_input(e.frames, e.times).pairs for category, e in cells if category == "temporal"]
    keys = [pair.key for pairs in shows for pair in pairs]
    return len(set(keys)) / len(keys)


def report(cells: Cells, alone: dict[str, float], reused: dict[str, float]) -> None:
    print(f"\n{'change':<10}{'cells':>7}{'alone, s/cell':>15}{'reuse, s/cell':>15}{'ratio':>8}")
    for name in alone:
        count = sum(category == name for category, _ in cells)
        row = (alone[name] / count, reused[name] / count)
        print(f"{name:<10}{count:>7}{row[0]:>15.4f}{row[1]:>15.4f}{row[0] / row[1]:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frames", choices=("catalogue", "random"), default="catalogue")
    parser.add_argument("--clips", type=int, default=1)
    options = parser.parse_args()
    started = time.perf_counter()
    model, tokenizer = build(options.shape, options.device)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.shape}: {size / 1e6:,.0f} M random weights, built in {time.perf_counter() - started:.1f} s")
    cells = catalogue(options.clips) if options.frames == "catalogue" else invented(options.clips)
    plain = rubric(model, tokenizer, HfOptions(reuse=False))
    first, keeping = (rubric(model, tokenizer, HfOptions(reuse_gb=16)) for _ in range(2))
    print(f"frames take {vision_share(first, cells[0][1]):.0%} of a lone cell")
    print(f"of the pairs of frames in temporal changes {new_pairs(plain, cells):.0%} come for the first time")
    with_reuse, reused = timed(keeping, cells, BATCH)
    without, alone = timed(plain, cells, 1)
    report(cells, alone, reused)
    gap = max(abs(a.level - b.level) for a, b in zip(with_reuse, without))
    spread = np.std([answer.level for answer in without])
    print(f"largest difference of a level with and without reuse: {gap:.1g} (levels spread by {spread:.2g})")
    print(f"ratio: {sum(alone.values()) / sum(reused.values()):.1f}")


if __name__ == "__main__":
    main()
