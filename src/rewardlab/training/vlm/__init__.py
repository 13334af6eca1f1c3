"""`train_vlm` and `train_assemble`: settings, recipes, mixtures, the order of work; imports nothing heavy."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.settings import Demonstrations, Help, settings_of, several
from rewardlab.core.storage import csv_text, write_file
from rewardlab.core.terminal import one_line
from rewardlab.training.lora import require_adapter

if TYPE_CHECKING:
    from rewardlab.training.processes import Processes
    from rewardlab.training.vlm.examples import EpisodeSplit, Example
    from rewardlab.training.vlm.result import Trained
    from rewardlab.training.vlm.train import TrainingData


ORIGINAL, COUNTERFACTUAL, CLIPPED = "original", "counterfactual", "clipped"
PERTURBED, REPEATED, CAPTIONED = "perturbed", "repeated", "captioned"


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training that a paper states."""

    lr: float  # the highest learning rate
    epochs: int = 3
    warmup: float = 0.05  # fraction of the steps
    weight_decay: float = 0.05
    batch_size: int = 32  # examples in one step
    frames: str = "fps:1"  # and the last frame, as teachers and RoboRewardBench show a clip
    learns: Literal["levels", "captions"] = "levels"  # captions by the fusion alone, language frozen too


RECIPES = {
    "roboreward-4b": Recipe(3e-6),
    "roboreward-8b": Recipe(5e-6),
    # The first stage of LLaVA-1.5 (Liu et al., 2024), which aligns a new projector.
    "llava-projector": Recipe(
        1e-3, epochs=1, warmup=0.03, weight_decay=0.0, batch_size=256, frames="uniform:16", learns="captions"
    ),
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


ALL_MIXTURES = "all"


def train_vlm(
    model: Annotated[str, Help("a checkpoint folder or hub id, as `hf:` takes it, with ?options or without")],
    data: Annotated[str | Path | Sequence[str | Path], Help("dataset folders; NAME@CAMERA for one camera")],
    *,
    out: Annotated[Path | str, Help("folder of the trained model; with several, one below it for each")] = Path(
        "runs/vlm"
    ),
    recipe: Annotated[str, Help(f"hyperparameters: {', '.join(RECIPES)}", metavar="NAME")] = "roboreward-4b",
    mixture: Annotated[
        str | Sequence[str], Help(f"training examples: {', '.join(MIXTURES)}, or all", metavar="NAME")
    ] = ("full",),
    seeds: Annotated[int | Sequence[int], Help("seeds, one training each")] = (0,),
    validation: Annotated[
        str | Path, Help("dataset that chooses the checkpoint; default: held-out tasks of the data", metavar="DATA")
    ] = "",
    holdout: Annotated[float, Help("fraction of the tasks held out for validation", more=True)] = 0.1,
    limit: Annotated[int | None, Help("use only N episodes of each dataset, drawn over tasks and levels")] = None,
    demonstrations: Demonstrations = False,
    frames: Annotated[
        str | None, Help("frames shown to the model: uniform:N, fps:X or all; default: the recipe's", metavar="POLICY")
    ] = None,
    lora: Annotated[int, Help("rank of LoRA adapters in the language layers; 0 trains these layers in full")] = 0,
    lr: Annotated[float | None, Help("highest learning rate; default: the recipe's")] = None,
    epochs: Annotated[int | None, Help("epochs; default: the recipe's")] = None,
    batch_size: Annotated[int | None, Help("examples in one step; default: the recipe's", more=True)] = None,
    micro_batch_size: Annotated[
        int, Help("examples in one forward pass; a step accumulates over the batch size", more=True)
    ] = 4,
    eval_every: Annotated[
        int, Help("steps between validations and checkpoints; 0 takes a tenth of the training", more=True)
    ] = 0,
    gradient_checkpointing: Annotated[
        bool, Help("keep activations instead of recomputing them: faster, more memory", more=True)
    ] = True,
    cache_gb: Annotated[
        float, Help("GiB for features of the frozen vision tower; 0 computes them at each step", more=True)
    ] = 8.0,
    compile: Annotated[bool, Help("compile the language layers first, for long trainings on a GPU", more=True)] = False,
    dtype: Annotated[
        Literal["auto", "bfloat16", "float32"], Help("auto is bfloat16 on a GPU and float32 without", more=True)
    ] = "auto",
    device: Annotated[str, Help("auto, cpu, cuda or cuda:N")] = "auto",
    workers: Annotated[int, Help("processes that decode and perturb; 0 does it in this one", more=True)] = 4,
) -> tuple[str, ...]:
    """Fine-tune a vision-language model to answer the 1-5 prompt; return the model string of every result, for `hf:`.

    Needs torch and transformers, from the extra `vlm-train`.

    Examples:
        rewardlab train vlm Qwen/Qwen3-VL-4B-Instruct DATA --out reward-4b --dry-run
        rewardlab train vlm FOLDER DATA --lora 16 --lr 1e-4
    """
    settings = vlm_settings(**locals())
    require_libraries(settings)
    from rewardlab.training.processes import open_processes
    from rewardlab.training.vlm.examples import split_episodes

    processes, split = open_processes(settings.device), split_episodes(settings)
    if processes.first:
        _say(split.notes)
    results = [train_one(each, split, processes) for each in settings.trainings]
    if len(settings.trainings) > 1 and processes.first and not settings.captions:
        _write_table(settings, results)
    return tuple(trained.model for trained in results) if processes.first else ()


@dataclass(frozen=True)
class VlmSettings:
    """The settings of `train_vlm`, checked."""

    model: str
    data: tuple[str, ...]
    out: Path
    recipe: str
    mixture: tuple[str, ...]
    seeds: tuple[int, ...]
    validation: str
    holdout: float
    limit: int | None
    demonstrations: bool
    frames: str | None
    lora: int
    lr: float | None
    epochs: int | None
    batch_size: int | None
    micro_batch_size: int
    eval_every: int
    gradient_checkpointing: bool
    cache_gb: float
    compile: bool
    dtype: str
    device: str
    workers: int

    @property
    def captions(self) -> bool:
        """Return whether captions are learned, by the fusion alone, and not levels."""
        return RECIPES[self.recipe].learns == "captions"

    @property
    def hyperparameters(self) -> Recipe:
        """Return the recipe with what the settings say otherwise."""
        stated = RECIPES[self.recipe]
        epochs, batch_size = self.epochs or stated.epochs, self.batch_size or stated.batch_size
        frames = self.frames or stated.frames
        return replace(stated, lr=self.lr or stated.lr, epochs=epochs, batch_size=batch_size, frames=frames)

    @property
    def trainings(self) -> "tuple[VlmTraining, ...]":
        """Return the trainings: each mixture with each seed."""
        names = tuple(MIXTURES) if ALL_MIXTURES in self.mixture else tuple(dict.fromkeys(self.mixture))
        seeds = tuple(dict.fromkeys(self.seeds))
        many = len(names) * len(seeds) > 1
        return tuple(
            VlmTraining(self, name, seed, self.out / f"{name}-seed{seed}" if many else self.out)
            for name in names
            for seed in seeds
        )


def vlm_settings(**given: Any) -> VlmSettings:
    """Return checked settings of `train_vlm`; what is not given has its default."""
    values = {setting.name: setting.default for setting in settings_of(train_vlm)} | given
    values |= {name: several(values[name]) for name in ("data", "mixture", "seeds")}
    values |= {"data": tuple(map(str, values["data"])), "validation": str(values["validation"])}
    settings = VlmSettings(**values | {"out": Path(values["out"])})
    find(RECIPES, settings.recipe, "recipe")
    for name in settings.mixture:
        find({**MIXTURES, ALL_MIXTURES: ()}, name, "mixture")
    if not (settings.data and settings.mixture and settings.seeds):
        raise PlanError("train vlm needs at least one dataset, one mixture and one seed")
    if not 0 < settings.holdout < 1:
        raise PlanError(f"holdout is a fraction between 0 and 1, got {settings.holdout}")
    least = {"micro_batch_size": 1, "lora": 0, "eval_every": 0, "workers": 0, "cache_gb": 0}
    least |= {"epochs": 1, "batch_size": 1, "limit": 1}
    given = {name: value for name, value in vars(settings).items() if value is not None}
    wrong = [f"{name} must be at least {count}" for name, count in least.items() if given.get(name, count) < count]
    if settings.lr is not None and settings.lr <= 0:
        wrong.append("lr must be above 0")
    if wrong:
        raise PlanError("; ".join(wrong))
    if settings.captions and (settings.lora or settings.mixture != ("full",)):
        raise PlanError(f"recipe {settings.recipe} trains the fusion alone on captions; leave out --lora and --mixture")
    if settings.dtype not in ("auto", "bfloat16", "float32"):
        raise PlanError(f"dtype must be auto, bfloat16 or float32, got {settings.dtype!r}")
    return settings


@dataclass(frozen=True)
class VlmTraining:
    """One model to be trained: a mixture, a seed, and the folder it goes to."""

    settings: VlmSettings
    mixture: str
    seed: int
    out: Path


def train_one(training: VlmTraining, split: "EpisodeSplit", processes: "Processes") -> "Trained":
    """Train one model and return what came out; one that is there is not made again."""
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.result import finished, start_folder, write_result
    from rewardlab.training.vlm.train import fit

    named = name_base(training.settings.model)
    done = finished(training, named)
    if done is not None:
        return done
    found = training_data(training, split)
    if processes.first:
        _say([] if training.settings.captions else lacking(training.mixture, found.examples))
    start_folder(training, named, found)
    progress = fit(training, named, found, processes)
    if processes.first:
        write_result(training, named, found, progress)
    processes.wait()
    done = finished(training, named)
    assert done is not None
    return done


def forecast_vlm(**given: Any) -> list[str]:
    """Return what `train_vlm` would take with these arguments, in sentences, having measured the first training."""
    settings = vlm_settings(**given)
    require_libraries(settings)
    from rewardlab.training.processes import open_processes
    from rewardlab.training.vlm.base_model import name_base
    from rewardlab.training.vlm.examples import split_episodes
    from rewardlab.training.vlm.train import estimate

    named, first = name_base(settings.model), settings.trainings[0]
    data = training_data(first, split_episodes(settings))
    _say([] if settings.captions else lacking(first.mixture, data.examples))
    lines = estimate(first, named, data, open_processes(settings.device))
    more = len(settings.trainings) - 1
    return [*lines, *([f"and {more} trainings more, each with its own mixture or seed"] if more else [])]


def require_libraries(settings: VlmSettings) -> None:
    """Say what is not installed before anything is read."""
    needed = ("torch", "transformers", "PIL", *(("peft",) if settings.lora else ()))
    require_packages("train vlm", *needed, extra="vlm-train")


def training_data(training: VlmTraining, split: "EpisodeSplit") -> "TrainingData":
    """Return the training and validation examples."""
    from rewardlab.training.vlm.examples import FrameSampling, captioned_examples, mixture_examples, validation_examples
    from rewardlab.training.vlm.train import TrainingData

    sampling = FrameSampling(training.settings.hyperparameters.frames, training.seed)
    if training.settings.captions:
        train, validation = (captioned_examples(part, split.captions) for part in (split.train, split.validation))
        return TrainingData(train, validation, sampling, split.rule)
    examples = mixture_examples(split.train, training.mixture, training.seed)
    return TrainingData(examples, validation_examples(split), sampling, split.rule)


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


def _write_table(settings: VlmSettings, results: "Sequence[Trained]") -> None:
    """Write the error of every mixture over all seeds: on all validation examples, and on the original ones."""
    rows: list[tuple[object, ...]] = [
        ("mixture", "seeds", "mae", "mae_least", "mae_most", "mae_original", "mae_constant")
    ]
    for mixture in dict.fromkeys(training.mixture for training in settings.trainings):
        found = [r for t, r in zip(settings.trainings, results, strict=True) if t.mixture == mixture]
        overall = [r.errors.overall for r in found]
        originals = np.mean([r.errors.by_source.get(ORIGINAL, np.nan) for r in found])
        values = (np.mean(overall), min(overall), max(overall), originals, np.mean([r.constant for r in found]))
        rows.append((mixture, len(found), *(f"{value:.4f}" for value in values)))
    write_file(settings.out / "mixtures.csv", csv_text(rows))


def train_assemble(
    *,
    vision: Annotated[
        str | Path, Help("folder of Dinov2, CLIP or SigLIP, or DINOv2 ViT-S/14 as .onnx or .npz", metavar="PATH")
    ],
    language: Annotated[str | Path, Help("folder of a causal language model, or a .gguf file", metavar="PATH")],
    out: Annotated[Path | str, Help("folder to write, which must not exist")] = Path("vlm"),
    tokens: Annotated[int, Help("tokens of a frame, a square number: 64 are 8 x 8")] = 64,
    pool: Annotated[
        int, Help("side in patches of the square that becomes one token; above 1 the model is an Aya Vision")
    ] = 1,
    adapter: Annotated[
        Path | str | None, Help("adapters that `train vlm --lora` wrote for these two models, merged in")
    ] = None,
    seed: Annotated[int, Help("seed of the projector between the two")] = 0,
) -> str:
    """Join a vision tower and a language model as a folder, and return its model string, for `hf:`.

    Needs torch and transformers, from the extra `assemble`.

    Examples:
        rewardlab train assemble --vision DINOV2 --language SMOLLM2 --out smol
        rewardlab train assemble --vision dinov2_vits14.onnx --language SmolLM2.gguf --tokens 16 --pool 2
    """
    settings = _assemble_settings(**locals())
    from rewardlab.training.vlm.assembly import assemble

    return f"hf:{assemble(settings)}"


@dataclass(frozen=True)
class AssembleSettings:
    """The settings of `train_assemble`."""

    vision: str
    language: str
    out: Path
    tokens: int
    pool: int
    adapter: Path | None
    seed: int

    @property
    def side(self) -> int:
        """Return how many tokens a frame is high and wide."""
        return isqrt(self.tokens)


def forecast_assembly(**given: Any) -> list[str]:
    """Return what `train_assemble` would write with these arguments, in a sentence; no model is loaded."""
    settings = _assemble_settings(**given)
    what = f"{settings.vision} and {settings.language} joined, {settings.tokens} tokens a frame"
    return [f"{settings.out}: {what}; its projector is drawn by seed {settings.seed} and has to be trained"]


def _assemble_settings(**given: Any) -> AssembleSettings:
    """Return checked settings of `train_assemble`."""
    values = {setting.name: setting.default for setting in settings_of(train_assemble)} | given
    adapter = values["adapter"]
    paths = {"out": Path(values["out"]), "adapter": None if adapter is None else Path(adapter)}
    settings = AssembleSettings(**values | paths | {name: str(values[name]) for name in ("vision", "language")})
    for name in ("vision", "language"):
        if not vars(settings)[name]:
            raise PlanError(f"name both models by their paths, as --vision PATH --language PATH; {name} is missing")
    if settings.tokens < 1 or settings.side**2 != settings.tokens:
        raise PlanError(f"tokens must be a square number such as 16, 64 or 256, got {settings.tokens}")
    if settings.pool < 1:
        raise PlanError(f"pool must be 1, for a token per patch, or more, got {settings.pool}")
    require_packages("train assemble", "torch", "transformers", extra="assemble")
    if settings.adapter is not None:
        require_adapter(settings.adapter)
    if settings.out.exists():
        raise PlanError(f"{settings.out} is there already; name another folder as --out, or remove it")
    return settings
