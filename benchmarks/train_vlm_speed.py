"""How fast `rewardlab train vlm` trains, beside plain `transformers.Trainer` on the same examples in the same steps.

    python benchmarks/train_vlm_speed.py [--shape tiny|smol|qwen] [--model FOLDER] [--device cuda]

Both train the same model (vision tower frozen, AdamW on float32, bfloat16 inside on a GPU) with clipped gradients and
accumulation over 32 examples. Both prepare frames and text in as many worker processes (`--workers`). Trainer has
`bf16=True`, its fused AdamW, and the loss over the whole sequence's logits, as it comes. Ours computes in bfloat16
beside float32 masters, takes the features of the frozen tower from the pass over all clips that comes before the
first step, sorts each step by length, and computes logits of the answer's tokens alone. Frames are noise made in
memory, so that neither decodes a video; each clip comes under several instructions, as counterfactual relabelling has
it, and three epochs are counted, with the pass over all clips in them.

Shapes, all with random weights: `smol` is DINOv2 ViT-S/14 on SmolLM2-135M as a LLaVA with 64 tokens a frame; `qwen` is
the vision tower of Qwen3-VL-4B on a language model like Qwen3-0.6B; `tiny` is for a processor.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.models import tiny, tiny_vlms

from rewardlab.core.episode import episode_from_frames
from rewardlab.core.seeding import rng_for
from rewardlab.training.loop import WORK
from rewardlab.training.processes import Processes
from rewardlab.training.vlm import VlmTraining, vlm_settings
from rewardlab.training.vlm.base_model import BaseModel, Named, load_base, name_base
from rewardlab.training.vlm.examples import Example, show_as_is
from rewardlab.training.vlm.inputs import Sample, pad_left
from rewardlab.training.vlm.network import TrainedParts, set_training, training_dtype
from rewardlab.training.vlm.train import Trainer, TrainingData, make_trainer, optimizer_config

EPOCHS = 3
WARM_UP = 2  # steps that are not counted


@dataclass(frozen=True)
class Speed:
    seconds: float  # of all epochs
    clips: int
    tokens: int
    memory: float  # GB

    def row(self, name: str) -> str:
        rates = f"{self.clips / self.seconds:>10.1f}{self.tokens / self.seconds:>12,.0f}"
        return f"{name:<34}{rates}{self.memory:>11.1f}"


def save_qwen(folder: Path, text: dict[str, Any], vision: dict[str, Any], vocabulary: int, dtype: torch.dtype) -> None:
    from transformers import Qwen3VLForConditionalGeneration

    tokenizer = tiny.qwen_tokenizer()
    config = tiny.qwen3_config(tokenizer, text, vision)
    config.text_config.vocab_size = max(vocabulary, config.text_config.vocab_size)
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(config).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_smol(folder: Path, dtype: torch.dtype) -> None:
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tokenizer = tiny_vlms.tokenizer_with("<image>")
    text = {"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    text |= {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192}
    text |= {"tie_word_embeddings": True, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    vision = {"model_type": "dinov2", "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6}
    vision |= {"image_size": 112, "patch_size": 14}
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=image,
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )
    size = {"height": 112, "width": 112}
    images = CLIPImageProcessorPil(size={"shortest_edge": 112}, crop_size=size)
    named = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    torch.manual_seed(0)
    LlavaForConditionalGeneration(config).to(dtype).save_pretrained(folder)
    LlavaProcessor(images, tokenizer, chat_template=tiny_vlms.LLAVA_TEMPLATE, **named).save_pretrained(folder)


QWEN_TEXT = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
QWEN_TEXT |= {"num_key_value_heads": 8, "head_dim": 128}
QWEN_VISION = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 16}
QWEN_VISION |= {"num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17]}


def make_model(shape: str, folder: Path, dtype: torch.dtype) -> str:
    """Save a model of a shape and return its model string."""
    if shape == "smol":
        save_smol(folder, dtype)
        return str(folder)
    if shape == "qwen":
        save_qwen(folder, QWEN_TEXT, QWEN_VISION, 151936, dtype)
        return f"{folder}?pixels=65536"
    save_qwen(folder, tiny.TINY_TEXT, tiny.TINY_VISION_3, 0, torch.float32)
    return f"{folder}?pixels=5000"


def noise_examples(clips: int, size: int) -> tuple[Example, ...]:
    """Return clips of 8 to 16 frames, each under four instructions."""
    made = []
    for clip in range(clips):
        rng = rng_for(0, "training speed", clip)
        frames = rng.integers(0, 256, (int(rng.integers(8, 17)), size, size, 3), dtype=np.uint8)
        shown = episode_from_frames(frames, "", fps=2.0)
        for level, task in enumerate(("open the drawer", "push the green block left", "fold the towel", "close it")):
            text = " and then ".join([task] * int(rng.integers(1, 5)))
            made.append(Example(replace(shown, instruction=text), level + 1, "original"))
    return tuple(made)


def clock(device: str) -> float:
    """Return the time; on a processor its own, so that other work on the machine matters little."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak(device: str) -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if device != "cpu" else float("nan")


def fresh(named: Named, device: str, dtype: torch.dtype) -> BaseModel:
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return load_base(named, TrainedParts(), device, dtype)


def ours(training: VlmTraining, named: Named, data: TrainingData, steps: int, device: str) -> tuple[Speed, float]:
    """Return our speed over all epochs, and the seconds of the pass over all clips."""
    base = fresh(named, device, training_dtype(training.settings, device))
    started = clock(device)
    trainer = make_trainer(training, base, data, Processes(device))
    encoded = clock(device) - started
    assert trainer.store is not None
    tokens, seconds = timed_steps(trainer, steps, device)
    whole = seconds * trainer.order.steps / steps + encoded
    clips = len(data.examples) * EPOCHS
    return Speed(whole, clips, tokens * trainer.order.steps // steps, peak(device)), encoded


def timed_steps(trainer: Trainer, steps: int, device: str) -> tuple[int, float]:
    batches, tokens, started = trainer.batches(0), 0, 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            started, tokens = clock(device), 0
        passes = next(batches)
        trainer.step(step, passes)
        tokens += sum(int(batch.mask.sum()) for batch in passes)
    return tokens, clock(device) - started


class Prepared(torch.utils.data.Dataset[Sample]):
    """Examples in the order of our steps, each prepared when it is asked for."""

    def __init__(self, examples: Sequence[Example], order: Sequence[int], base: BaseModel) -> None:
        self.examples, self.order, self.base = examples, order, base

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> Sample:
        example = self.examples[self.order[place]]
        return with_patches(self.base.inputs.sample(example.episode, example.answer), self.base)


def trainer_inputs(samples: Sequence[Sample], reply: int) -> dict[str, torch.Tensor]:
    """Return a batch as the model's own forward pass takes it, with labels where the answer stands."""
    ids = pad_left([sample.tokens["input_ids"] for sample in samples], 0)
    mask = pad_left([torch.ones(len(s.tokens["input_ids"]), dtype=torch.long) for s in samples], 0)
    labels = torch.full_like(ids, -100)
    labels[:, -reply + 1 :] = ids[:, -reply + 1 :]  # the end of the turn has no place of its own here
    made = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    if "visual" not in samples[0].tokens:
        return made | {n: torch.cat([s.pictures[n] for s in samples]) for n in samples[0].pictures}
    made["position_ids"] = pad_left([s.tokens["position_ids"] for s in samples], 0).permute(2, 0, 1)
    made["mm_token_type_ids"] = pad_left([2 * s.tokens["visual"].long() for s in samples], 0)
    made["pixel_values_videos"] = torch.cat([s.pictures["patches"] for s in samples])
    made["video_grid_thw"] = torch.cat([s.pictures["grid"] for s in samples])
    return made


def with_patches(sample: Sample, base: BaseModel) -> Sample:
    """Return the sample with its frames cut into patches, as a processor would have done beforehand."""
    if "frames" not in sample.pictures:
        return sample
    from rewardlab.models.backends.qwen_prompt import FramePair, patchify

    family, sizes = base.network.family, sample.pictures["sizes"].tolist()
    pairs = [
        FramePair("", frames.numpy(), tuple(size))
        for frames, size in zip(sample.pictures["frames"], sizes, strict=True)
    ]
    patches = torch.cat([patchify([pair], family, torch.device("cpu")) for pair in pairs]).to(torch.bfloat16)
    grid = torch.tensor([[1, *(side // family.patch_size for side in size)] for size in sizes])
    return Sample(sample.tokens, {"patches": patches, "grid": grid}, sample.labels)


def plain(training: VlmTraining, named: Named, data: TrainingData, steps: int, device: str) -> Speed:
    """Return the speed of transformers.Trainer over all epochs."""
    from transformers import Trainer as PlainTrainer
    from transformers import TrainerCallback, TrainingArguments

    base, settings = fresh(named, device, torch.float32), training.settings
    count = len(data.examples)
    order = [int(i) for epoch in range(EPOCHS) for i in rng_for(0, "epoch", epoch).permutation(count)]
    prepared = Prepared(data.examples, order, base)
    marks: list[float] = []

    class Marks(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append(clock(device) if len(marks) in (WARM_UP - 1, WARM_UP + steps - 1) else 0.0)

    class Frozen(PlainTrainer):
        def training_step(self, model: Any, *given: Any, **named: Any) -> Any:
            set_training(self.accelerator.unwrap_model(model))
            return super().training_step(model, *given, **named)

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=str(training.out / "trainer"),
        per_device_train_batch_size=settings.micro_batch_size,
        gradient_accumulation_steps=settings.hyperparameters.batch_size // settings.micro_batch_size,
        max_steps=WARM_UP + steps,
        learning_rate=settings.hyperparameters.lr,
        weight_decay=settings.hyperparameters.weight_decay,
        lr_scheduler_type="cosine",
        bf16=device != "cpu",
        use_cpu=device == "cpu",
        gradient_checkpointing=settings.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_grad_norm=optimizer_config(settings.hyperparameters).max_norm,
        save_strategy="no",
        report_to=[],
        logging_steps=10,
        remove_unused_columns=False,
        disable_tqdm=True,
        torch_compile=settings.compile,
        dataloader_num_workers=settings.workers,
    )
    trainer = Frozen(
        model=base.model,
        args=arguments,
        train_dataset=prepared,
        data_collator=lambda some: trainer_inputs(some, len(base.inputs.reply.labels(1))),
        callbacks=[Marks()],
    )
    trainer.train()
    seconds = marks[WARM_UP + steps - 1] - marks[WARM_UP - 1]
    batch = settings.hyperparameters.batch_size
    counted = range(WARM_UP * batch, (WARM_UP + steps) * batch)
    tokens = sum(len(prepared[place].tokens["input_ids"]) for place in counted)
    share = len(order) / len(counted)
    return Speed(seconds * share, len(order), int(tokens * share), peak(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("tiny", "smol", "qwen"), default="tiny")
    parser.add_argument("--model", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clips", type=int, default=0, help="different clips, each under four instructions")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare examples, for both")
    parser.add_argument("--size", type=int, default=224, help="side of a frame in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-gradient-checkpointing", action="store_true")
    parser.add_argument("--compile", action="store_true", help="compile the language layers, on both sides")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        compare(options, folder)
    finally:
        shutil.rmtree(folder)


def compare(options: argparse.Namespace, folder: Path) -> None:
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    model = options.model or make_model(options.shape, folder / "model", dtype)
    clips = options.clips or max(16, (options.steps + WARM_UP) * 8)
    examples = noise_examples(clips, options.size)
    settings = vlm_settings(
        model=model,
        data="noise",
        micro_batch_size=options.micro_batch_size,
        gradient_checkpointing=not options.no_gradient_checkpointing,
        compile=options.compile,
        cache_gb=64.0,
        workers=options.workers,
        device=options.device,
    )
    training = VlmTraining(settings, "full", 0, folder / "ours")
    data, named = TrainingData(examples, examples[:1], show_as_is, "noise"), name_base(model)
    size = sum(p.numel() for p in load_base(named, TrainedParts(), "cpu").model.parameters())
    print(f"{model if options.model else options.shape}: {size / 1e6:,.0f} M parameters, {len(examples)} examples of")
    print(
        f"{clips} clips, {EPOCHS} epochs from {options.steps} timed steps of 32 in passes of {options.micro_batch_size}"
    )
    print(f"\n{'':<34}{'clips/s':>10}{'tokens/s':>12}{'peak, GB':>11}")
    ratios = []
    for number in range(options.rounds):
        (folder / "ours" / WORK).mkdir(parents=True, exist_ok=True)
        slow = plain(training, named, data, options.steps, options.device)
        fast, encoded = ours(training, named, data, options.steps, options.device)
        shutil.rmtree(folder / "ours")
        print(slow.row(f"round {number + 1}: transformers.Trainer"))
        print(fast.row("         rewardlab train vlm"))
        print(f"         of which the pass over all clips {encoded / fast.seconds:.0%}", flush=True)
        ratios.append((fast.clips / fast.seconds) / (slow.clips / slow.seconds))
    print(f"ratio: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
