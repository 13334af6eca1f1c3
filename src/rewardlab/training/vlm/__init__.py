"""`train_vlm` and `assemble_vlm`: settings, recipes, mixtures, one training after the other; imports nothing heavy."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.storage import atomic_write, csv_text
from rewardlab.core.terminal import one_line
from rewardlab.training.lora import require_adapter

if TYPE_CHECKING:
    from rewardlab.training.processes import Processes
    from rewardlab.training.vlm.examples import EpisodeSplit, Example
    from rewardlab.training.vlm.result import Trained
    from rewardlab.training.vlm.train import TrainingData


ORIGINAL, COUNTERFACTUAL, CLIPPED, PERTURBED, REPEATED, CAPTIONED = (
    "original",
    "counterfactual",
    "clipped",
    "perturbed",
    "repeated",
    "captioned",
)


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training that a paper states."""

    lr: float  # the highest learning rate
    epochs: int = 3
    warmup: float = 0.05  # fraction of the steps
    weight_decay: float = 0.05
    batch: int = 32  # examples behind one step
    learns: Literal["levels", "captions"] = "levels"  # captions by the fusion alone, language frozen too


RECIPES = {
    "roboreward-4b": Recipe(3e-6),
    "roboreward-8b": Recipe(5e-6),
    # The first stage of LLaVA-1.5 (Liu et al., 2024), which aligns a new projector.
    "llava-projector": Recipe(1e-3, epochs=1, warmup=0.03, weight_decay=0.0, batch=256, learns="captions"),
}

# Which examples each mixture trains on. The first three are the rows of RoboReward's Table 3. `perturbed` adds a
# perturbed copy of every example, and `clean` adds a plain one, so that both take equally many steps.
MIXTURES: dict[str, tuple[str, ...]] = {
    "full": (ORIGINAL, COUNTERFACTUAL, CLIPPED),
    "no-negatives": (ORIGINAL,),
    "no-clipping": (ORIGINAL, COUNTERFACTUAL),
    "clean": (ORIGINAL, COUNTERFACTUAL, CLIPPED, REPEATED),
    "perturbed": (ORIGINAL, COUNTERFACTUAL, CLIPPED, PERTURBED),
}


# The settings of `rewardlab train vlm`.

ALL_MIXTURES = "all"


@dataclass(frozen=True)
class VlmPlan:
    """What a vision-language model is fine-tuned from, on, and how."""

    model: str = setting(
        "what hf: loads: a checkpoint folder or hub id, with hf: and ?options or without", positional=True
    )
    data: tuple[str, ...] = setting("dataset folders; NAME@CAMERA for one camera", positional=True)
    out: Path = setting("folder of the trained model; of several, one below it for each", Path("runs/vlm"))
    recipe: str = setting(f"numbers of the training: {', '.join(RECIPES)}", "roboreward-4b")
    mixture: tuple[str, ...] = setting(f"examples to train on: {', '.join(MIXTURES)}, or all of these", ("full",))
    seeds: tuple[int, ...] = setting("seeds, one training each", (0,))
    validation: str = setting("dataset to choose the checkpoint by; empty holds out tasks of the data", "")
    holdout: float = setting("share of the tasks held out for validation", 0.1)
    limit: int | None = setting("use only the first N episodes of each dataset", None)
    frames: str = setting("frames shown to the model: uniform:N, fps:X or all", "uniform:16")
    lora: int = setting("rank of LoRA adapters in the language layers; 0 trains these layers in full", 0)
    rate: float | None = setting("highest learning rate in place of the recipe's", None)
    epochs: int | None = setting("epochs in place of the recipe's", None)
    batch: int | None = setting("examples behind one step in place of the recipe's", None)
    micro: int = setting("examples in one forward pass; steps accumulate over the recipe's batch", 4)
    check_every: int = setting("steps between validations and checkpoints; 0 takes a tenth of the training", 0)
    checkpointing: bool = setting("recompute activations in the backward pass, which saves memory", True)
    cache_gb: float = setting("most GiB for features of the frozen vision tower; 0 computes them at each step", 8.0)
    compile: bool = setting("compile the language layers first, which pays in long trainings on a GPU", False)
    dtype: str = setting("auto (bfloat16 on a GPU, float32 without), bfloat16 or float32", "auto")
    device: str = setting("auto, cpu, cuda or cuda:N", "auto")
    workers: int = setting("processes that decode and perturb; 0 does it in this one", 4)

    def __post_init__(self) -> None:
        find(RECIPES, self.recipe, "recipe")
        for name in self.mixture:
            find({**MIXTURES, ALL_MIXTURES: ()}, name, "mixture")
        if not (self.data and self.mixture and self.seeds):
            raise PlanError("train vlm needs at least one dataset, one mixture and one seed")
        if not 0 < self.holdout < 1:
            raise PlanError(f"holdout is a share between 0 and 1, got {self.holdout}")
        if self.micro < 1 or min(self.lora, self.check_every, self.workers, self.cache_gb) < 0:
            raise PlanError("micro must be at least 1; lora, check_every, workers and cache_gb at least 0")
        counts = [count for count in (self.epochs, self.batch) if count is not None]
        if (self.rate is not None and self.rate <= 0) or min(counts, default=1) < 1:
            raise PlanError("rate must be above 0, epochs and batch at least 1")
        if self.captions and (self.lora or self.mixture != ("full",)):
            raise PlanError(f"recipe {self.recipe} trains the fusion alone on captions; leave out --lora and --mixture")
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"limit must be at least 1, got {self.limit}")
        if self.dtype not in ("auto", "bfloat16", "float32"):
            raise PlanError(f"dtype must be auto, bfloat16 or float32, got {self.dtype!r}")

    @property
    def captions(self) -> bool:
        """Return whether captions are learned, by the fusion alone, and not levels."""
        return RECIPES[self.recipe].learns == "captions"

    @property
    def numbers(self) -> Recipe:
        """Return the recipe with what the plan says otherwise."""
        stated = RECIPES[self.recipe]
        epochs, batch = self.epochs or stated.epochs, self.batch or stated.batch
        return replace(stated, lr=self.rate or stated.lr, epochs=epochs, batch=batch)

    @property
    def trainings(self) -> "tuple[VlmTraining, ...]":
        """Return the trainings of this plan: each mixture with each seed."""
        names = tuple(MIXTURES) if ALL_MIXTURES in self.mixture else tuple(dict.fromkeys(self.mixture))
        seeds = tuple(dict.fromkeys(self.seeds))
        several = len(names) * len(seeds) > 1
        return tuple(
            VlmTraining(self, name, seed, self.out / f"{name}-seed{seed}" if several else self.out)
            for name in names
            for seed in seeds
        )


@dataclass(frozen=True)
class TrainVlmCommand:
    """Fine-tune a vision-language model to answer the 1-5 prompt; the result is a folder for `hf:`."""

    plan: VlmPlan
    dry_run: bool = setting("say how long and how much memory it would take, and train nothing", False)


@dataclass(frozen=True)
class VlmTraining:
    """One model to be trained: a mixture, a seed, and the folder it goes to."""

    plan: VlmPlan
    mixture: str
    seed: int
    out: Path


# `rewardlab train vlm`: one training for each mixture and seed, and a table where there are several.

TABLE = "mixtures.csv"


def train_vlm(plan: VlmPlan) -> tuple[str, ...]:
    """Train every mixture and seed of a plan, and return the model strings; what is already there is not made again."""
    require_libraries(plan)
    from rewardlab.training.processes import open_processes
    from rewardlab.training.vlm.examples import split_episodes

    processes, split = open_processes(plan.device), split_episodes(plan)
    if processes.first:
        _say(split.notes)
    results = [train_one(each, partial(training_data, each, split), processes) for each in plan.trainings]
    if len(plan.trainings) > 1 and processes.first and not plan.captions:
        _write_table(plan, results)
    return tuple(trained.model for trained in results) if processes.first else ()


def train_one(training: VlmTraining, data: "Callable[[], TrainingData]", processes: "Processes") -> "Trained":
    """Train one model on examples of any origin and return what came out; one that is there is not made again."""
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.result import finished, start_folder, write_result
    from rewardlab.training.vlm.train import fit

    named = name_base(training.plan.model)
    done = finished(training, named)
    if done is not None:
        return done
    found = data()
    if processes.first:
        _say([] if training.plan.captions else lacking(training.mixture, found.examples))
    start_folder(training, named, found)
    progress = fit(training, named, found, processes)
    if processes.first:
        write_result(training, named, found, progress)
    processes.wait()
    done = finished(training, named)
    assert done is not None
    return done


def forecast_vlm(plan: VlmPlan) -> list[str]:
    """Return what the trainings of a plan would take, in sentences, having measured the first."""
    require_libraries(plan)
    from rewardlab.training.processes import open_processes
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.examples import split_episodes
    from rewardlab.training.vlm.train import estimate

    named, first = name_base(plan.model), plan.trainings[0]
    data = training_data(first, split_episodes(plan))
    _say([] if plan.captions else lacking(first.mixture, data.examples))
    lines = estimate(first, named, data, open_processes(plan.device)).lines
    more = len(plan.trainings) - 1
    return [*lines, *([f"and {more} trainings more, each with its own mixture or seed"] if more else [])]


def require_libraries(plan: VlmPlan) -> None:
    """Say what is not installed before anything is read."""
    needed = ("torch", "transformers", "PIL", *(("peft",) if plan.lora else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise PlanError(f"train vlm needs {', '.join(missing)}; install with pip install 'rewardlab[vlm-train]'")


def training_data(training: VlmTraining, split: "EpisodeSplit") -> "TrainingData":
    """Return the examples of a training, and those it is judged by."""
    from rewardlab.training.vlm.examples import (
        FrameSampling,
        captioned_examples,
        training_examples,
        validation_examples,
    )
    from rewardlab.training.vlm.train import TrainingData

    sampling = FrameSampling(training.plan.frames, training.seed)
    if training.plan.captions:
        train, validation = (captioned_examples(part, split.captions) for part in (split.train, split.validation))
        return TrainingData(train, validation, sampling, split.rule)
    return TrainingData(training_examples(split, training), validation_examples(split), sampling, split.rule)


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        print(one_line(note), file=sys.stderr)


def lacking(mixture: str, examples: "Sequence[Example]") -> list[str]:
    """Return a sentence for each kind of negative that a mixture should hold and for the levels nobody shows."""
    sources, levels = {example.source for example in examples}, {example.level for example in examples}
    why = {
        COUNTERFACTUAL: "no success has an instruction that a rule can turn into another",
        CLIPPED: "no success has progress for every frame, which tells how much a shorter clip deserves",
    }
    notes = [
        f"mixture {mixture} holds no {part} examples: {why[part]}"
        for part in MIXTURES[mixture]
        if part in why and part not in sources
    ]
    absent = [str(level) for level in LEVELS if level not in levels]
    if absent:
        notes.append(f"no training example deserves level {' or '.join(absent)}, so the model cannot learn to say so")
    return notes


def _write_table(plan: VlmPlan, results: "Sequence[Trained]") -> None:
    """Write the error of every mixture over all seeds: on all validation examples, and on the original ones."""
    rows: list[tuple[object, ...]] = [
        ("mixture", "seeds", "mae", "mae_least", "mae_most", "mae_original", "mae_constant")
    ]
    for mixture in dict.fromkeys(training.mixture for training in plan.trainings):
        found = [r for t, r in zip(plan.trainings, results) if t.mixture == mixture]
        overall = [r.errors.overall for r in found]
        originals = np.mean([r.errors.by_source[ORIGINAL] for r in found])
        numbers = (np.mean(overall), min(overall), max(overall), originals, np.mean([r.constant for r in found]))
        rows.append((mixture, len(found), *(f"{number:.4f}" for number in numbers)))
    with atomic_write(plan.out / TABLE) as partial:
        partial.write_text(csv_text(rows), encoding="utf-8")


# The settings of `rewardlab train assemble`.


@dataclass(frozen=True)
class AssemblePlan:
    """Put a vision-language model together from a vision tower and a language model, as a folder for hf:."""

    vision: str = setting("folder of Dinov2, CLIP or SigLIP, or DINOv2 ViT-S/14 as .onnx or .npz", "")
    language: str = setting("folder of a causal language model, or a .gguf file", "")
    out: Path = setting("folder to write, which must not exist", Path("vlm"))
    tokens: int = setting("tokens of a frame, a square number: 64 are 8 x 8", 64)
    pool: int = setting("patches on a side of the square that becomes one token; above 1 the model is an Aya Vision", 1)
    adapter: Path | None = setting(
        "folder of adapters that train vlm --lora wrote for these two models, merged in", None
    )
    seed: int = setting("seed of the projector between the two", 0)

    def __post_init__(self) -> None:
        for name, value in (("vision", self.vision), ("language", self.language)):
            if not value:
                raise PlanError(f"name both models by their paths, as --vision PATH --language PATH; {name} is missing")
        if self.tokens < 1 or isqrt(self.tokens) ** 2 != self.tokens:
            raise PlanError(f"tokens must be a square number such as 16, 64 or 256, got {self.tokens}")
        if self.pool < 1:
            raise PlanError(f"pool must be 1, for a token per patch, or more, got {self.pool}")
        for package in ("torch", "transformers"):
            if find_spec(package) is None:
                raise PlanError(f"assemble-vlm needs {package}; install it with pip install 'rewardlab[assemble]'")
        if self.adapter is not None:
            require_adapter(self.adapter)
        if self.out.exists():
            raise PlanError(f"{self.out} is there already; name another folder as --out, or remove it")

    @property
    def side(self) -> int:
        """Return how many tokens a frame is high and wide."""
        return isqrt(self.tokens)
