"""The settings of `rewardlab train vlm`."""

from dataclasses import dataclass, replace
from pathlib import Path

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.training.vlm.recipes import MIXTURES, RECIPES, Recipe

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
        return replace(stated, rate=self.rate or stated.rate, epochs=epochs, batch=batch)

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
