"""How much faster a vision-language model answers when it shares work between the cells of a stress test.

    python benchmarks/feature_reuse.py [--shape small|2b|tiny] [--clips N]
    python benchmarks/feature_reuse.py --frames random --device cuda --shape 4b

One model judges one clip (or N) under the changes of the catalogue: through `hf:` with reuse, in the runner's batches,
and by the library's plain forward pass, each cell alone and in batches as large, on the same weights in the same run.
The plain pass gets its patches from the same code on the same device. On a processor it is processor time that is
counted, so that other work on the machine matters little. Weights are random: they change what is answered, not what it
costs, and both ways must answer alike.

`--frames catalogue` shows shipped clips of median length under all instruction and temporal changes, at all
severities. `--frames random` needs neither a codec nor the catalogue: noise for frames, and as many cells of each kind
as `rewardlab stress MODEL DATA --perturbations all` makes of a shipped clip: the clean clip, 172 with new frames (156
visual changes and 16 of the scene), 72 other instructions, 84 other orders of the same frames. So half of the cells
show frames that no cell before has shown; in `quick`, the default of `stress`, it is half of them too (16 of 33).

Shapes: `small` is the vision tower of Qwen3-VL-2B and -4B on a language model like Qwen3-0.6B, both at half their
depth and an eighth of their width, so that vision takes most of a lone cell; `2b` is Qwen3-VL-2B cut down alike;
`4b` is Qwen3-VL-4B in full but for its vocabulary, in bfloat16 on a GPU. The last line is `ratio: X`, the time of
every cell alone in the plain pass over the time with reuse.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.models import tiny

from rewardlab.core.episode import Episode, episode_from_frames, rearrange, with_frames
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score
from rewardlab.models.backends.checkpoint import HfOptions, choose_dtype
from rewardlab.models.backends.hf import QwenVL
from rewardlab.models.backends.qwen_prompt import FAMILIES, FramePair, PromptBuilder, VisualInput, frame_size, patchify
from rewardlab.models.protocols import ANSWER, Rubric, roboreward_prompt

BATCH = 8  # the runner's default
NEW_FRAMES = 172  # cells whose frames no other cell shows
STREAM = 45  # frames of an invented clip, chosen so that as many pairs of frames come again as in the shipped clips
Cells = list[tuple[str, Episode]]  # the category of each change, and the episode as it shows it


def text_shape(width: int, inner: int, layers: int, heads: int, head: int) -> dict[str, int]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
    return dict(zip(names, (width, inner, layers, heads, head), strict=True)) | {
        "num_key_value_heads": max(1, heads // 4)
    }


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
    from rewardlab.api import stress_plan
    from rewardlab.evaluation.evaluate import load_episodes, scoring_context
    from rewardlab.evaluation.plan import plan_trials as plan_cells
    from rewardlab.evaluation.scoring import perturb_trials as perturb_cells
    from rewardlab.perturbations.contract import PerturbedEpisode

    plan = stress_plan(
        {"models": "constant", "data": "sample", "perturbations": ("semantic", "temporal"), "controls": False}
    )
    contents = load_episodes(plan)
    context = scoring_context(plan, contents.episodes)
    parts = sorted(plan_cells(contents.episodes, context, plan.severities), key=lambda part: len(part.episode.clip))
    parts = [parts[len(parts) * (2 * i + 1) // (2 * clips)] for i in range(clips)]
    print("clips of", " and ".join(str(len(part.episode.clip)) for part in parts), "frames, 16 shown")
    made = [variant for part in parts for variant in perturb_cells(part, context)]
    return [(each.category, each.outcome.episode) for each in made if isinstance(each.outcome, PerturbedEpisode)]


def invented(clips: int, new_frames: int, height: int) -> Cells:
    """Return noise under as many changes of each kind as the catalogue has."""
    cells: Cells = []
    for clip in range(clips):
        rng = rng_for(0, "feature reuse", clip)
        shape = STREAM, height, height * 4 // 3, 3
        noise = episode_from_frames(rng.integers(0, 256, shape, dtype=np.uint8), "open the drawer")
        clean = shown(noise, np.arange(STREAM))
        pixels = clean.frames
        cells += [("clean", clean)]
        cells += [("new frames", with_frames(clean, pixels + np.uint8(1 + i))) for i in range(new_frames)]
        for number in range(72):
            text = f"put cup {number} on the plate and {'open' if number % 2 else 'close'} the drawer"
            cells.append(("semantic", replace(clean, instruction=text)))
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


def plain_answers(
    model: Any, builder: PromptBuilder, digits: Sequence[int], episodes: Sequence[Episode]
) -> list[float]:
    """Return the levels by the library's own forward pass over all of each prompt, padded on the left."""
    visual = [unhashed(builder, episode) for episode in episodes]
    prompts = [
        builder.chat([shown, roboreward_prompt(episode.instruction)], (), ANSWER.opening + ANSWER.choices[0])
        for shown, episode in zip(visual, episodes, strict=True)
    ]
    length = max(map(len, prompts)) - 1  # the last token, a choice, is not read
    ids, kinds, mask = (np.zeros((len(prompts), length), np.int64) for _ in range(3))
    for row, prompt in enumerate(prompts):
        ids[row, length + 1 - len(prompt) :] = prompt.ids[:-1]
        kinds[row, length + 1 - len(prompt) :] = prompt.kinds[:-1]
        mask[row, length + 1 - len(prompt) :] = 1
    pairs = [pair for shown in visual for pair in shown.pairs]
    size = [side // builder.family.patch_size for side in pairs[0].size]
    with torch.inference_mode():
        logits = model(
            input_ids=torch.from_numpy(ids).to(model.device),
            mm_token_type_ids=torch.from_numpy(kinds).to(model.device),
            attention_mask=torch.from_numpy(mask).to(model.device),
            pixel_values_videos=patchify(pairs, builder.family, model.device).to(model.dtype),
            video_grid_thw=torch.tensor([[len(shown.pairs), *size] for shown in visual], device=model.device),
            logits_to_keep=1,
            use_cache=False,
        ).logits[:, -1]
    return (logits[:, digits].float().softmax(dim=-1).cpu() @ torch.arange(1.0, 6.0)).tolist()


def unhashed(builder: PromptBuilder, episode: Episode) -> VisualInput:
    """Return the frames in pairs without their hashes, which a plain pass does not need."""
    frames = episode.frames
    size = frame_size(*frames.shape[1:3], builder.family, builder.max_pixels)
    pairs = frames if len(frames) % 2 == 0 else np.concatenate([frames, frames[-1:]])
    pairs = pairs.reshape(-1, 2, *frames.shape[1:])
    return VisualInput(tuple(FramePair("0", pair, size) for pair in pairs), episode.times)


def now(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(
    answer: Callable[[Sequence[Episode]], list[float]], cells: Cells, batch: int, device: str
) -> tuple[list[float], dict[str, float]]:
    """Return the levels, and the seconds spent on each kind of change."""
    levels: list[float] = []
    seconds: dict[str, float] = {}
    for group in portions(cells, batch):
        started = now(device)
        levels += answer([episode for _, episode in group])
        name = group[0][0]
        seconds[name] = seconds.get(name, 0.0) + now(device) - started
    return levels, seconds


def portions(cells: Cells, batch: int) -> Iterable[Cells]:
    """Yield batches of one kind of change each, as the runner's are but at the seams."""
    group: Cells = []
    for cell in cells:
        if group and (len(group) == batch or group[0][0] != cell[0]):
            yield group
            group = []
        group.append(cell)
    if group:
        yield group


def new_pairs(builder: PromptBuilder, cells: Cells) -> float:
    """Return the share of pairs of frames in temporal changes that no earlier one has shown."""
    shows = [builder.visual_input(e.frames, e.times).pairs for category, e in cells if category == "temporal"]
    keys = [pair.key for pairs in shows for pair in pairs]
    return len(set(keys)) / len(keys)


def report(cells: Cells, alone: dict[str, float], together: dict[str, float], reused: dict[str, float]) -> None:
    """Print seconds per cell of the plain pass, alone and in batches, and with reuse."""
    print(f"\n{'change':<12}{'cells':>6}{'plain, s/cell':>15}{f'plain by {BATCH}':>12}{'reuse':>10}{'ratio':>8}")
    for name in alone:
        count = sum(category == name for category, _ in cells)
        row = [times[name] / count for times in (alone, together, reused)]
        print(f"{name:<12}{count:>6}{row[0]:>15.4f}{row[1]:>12.4f}{row[2]:>10.4f}{row[0] / row[2]:>8.1f}")


def run_reuse(model: Any, tokenizer: Any) -> Callable[[Sequence[Episode]], list[float]]:
    rubric = Rubric(QwenVL(model, tokenizer, HfOptions(reuse_gb=16)), "logits")
    return lambda episodes: [score.level for score in rubric.score(episodes) if isinstance(score, Score)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frames", choices=("catalogue", "random"), default="catalogue")
    parser.add_argument("--clips", type=int, default=1)
    parser.add_argument("--new-frames", type=int, default=NEW_FRAMES, help="cells with new frames of a random clip")
    parser.add_argument("--height", type=int, default=480, help="pixels of a random frame")
    options = parser.parse_args()
    started = time.perf_counter()
    model, tokenizer = build(options.shape, options.device)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.shape}: {size / 1e6:,.0f} M random weights, built in {time.perf_counter() - started:.1f} s")
    if options.frames == "catalogue":
        cells = catalogue(options.clips)
    else:
        cells = invented(options.clips, options.new_frames, options.height)
    builder = PromptBuilder(tokenizer, FAMILIES["qwen3_vl"], 0, 0.0)
    print(f"of the pairs of frames in temporal changes {new_pairs(builder, cells):.0%} come for the first time")
    digits = [int(builder.chat((), (), ANSWER.opening + choice).ids[-1]) for choice in ANSWER.choices]
    plain = partial(plain_answers, model.eval(), builder, digits)
    plain([cells[0][1]])  # the first pass chooses kernels
    by_one, alone = timed(plain, cells, 1, options.device)
    _, together = timed(plain, cells, BATCH, options.device)
    run_reuse(model, tokenizer)([episode for _, episode in cells[:BATCH]])
    by_reuse, reused = timed(run_reuse(model, tokenizer), cells, BATCH, options.device)
    report(cells, alone, together, reused)
    gap, spread = np.abs(np.array(by_reuse) - by_one).max(), np.std(by_one)
    print(f"largest difference of a level with reuse and in the plain pass: {gap:.1g} (levels spread by {spread:.2g})")
    print(f"ratio to the plain pass in batches of {BATCH}: {sum(together.values()) / sum(reused.values()):.1f}")
    known = [name for name in alone if name in ("semantic", "temporal")]
    print(f"ratio where no frame is new: {sum(map(alone.get, known)) / sum(map(reused.get, known)):.1f}")
    print(f"ratio: {sum(alone.values()) / sum(reused.values()):.1f}")


if __name__ == "__main__":
    main()
