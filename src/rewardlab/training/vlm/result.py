"""The folder for `hf:`, scored as it will be used, with its model card."""

import gc
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rewardlab.core import __version__
from rewardlab.core.errors import ModelError, RunError
from rewardlab.core.records import read_json
from rewardlab.core.run import claim_folder
from rewardlab.core.seeding import digest
from rewardlab.core.settings import as_command
from rewardlab.core.storage import write_file
from rewardlab.core.trial import Failure
from rewardlab.models import name_model
from rewardlab.training.loop import BEST, WORK, Progress, load_trainable
from rewardlab.training.vlm import VlmSettings, VlmTraining, train_vlm
from rewardlab.training.vlm.base_model import Named, load_base, other_files
from rewardlab.training.vlm.examples import Example, ShowFrames
from rewardlab.training.vlm.network import trained_parts
from rewardlab.training.vlm.train import (
    TrainingData,
    ValidationErrors,
    caption_errors,
    constant_error,
    label_errors,
    optimizer_config,
    predicted_label,
)

_MEASURES = {"mae": "mean absolute error of the predicted label", "loss": "cross-entropy of the caption, per token"}


def _card(
    training: VlmTraining,
    data: TrainingData,
    progress: Progress,
    errors: ValidationErrors,
    constant: tuple[float, float] | None,
    model: str,
) -> str:
    """Return what a reader must know of a trained model, in Markdown; `model` is its string.

    `constant` is the level that sees nothing, and its error; none for captions.
    """
    settings, shown = training.settings, training.settings.hyperparameters.frames
    made = f"{settings.model}, trained with rewardlab {__version__}"
    if settings.captions:
        title = f"""a vision-language model whose projector has learned captions

{made} to describe clips; the next stage teaches it levels: `rewardlab train vlm {model.removeprefix("hf:")} DATA`."""
    else:
        title = f"""a reward model that answers 1 to 5

{made} to answer the RoboReward prompt. Use it as `{model}` with the frames it was trained on:
`rewardlab bench {model} DATA --frames {shown}`."""
    rows = "\n".join(f"| {name} | {value:.3f} |" for name, value in errors.by_source.items())
    if constant is not None:
        rows += f"\n| all, by the constant {constant[0]:g} that sees nothing | {constant[1]:.3f} |"
    own = {"mixture": (training.mixture,), "seeds": (training.seed,), "out": training.out}
    return f"""# {training.out.name}: {title}

- **Data**: {", ".join(settings.data)}; {_described_examples(training, data)}.
- **Validation**: {len(data.validation)} examples ({data.rule}), by which the checkpoint was chosen.
- **Recipe** `{settings.recipe}`: {_described_recipe(settings)}; frames `{shown}`, seed {training.seed}.
- **Steps**: {progress.step}; kept is the checkpoint of step {progress.best_step}.

| validation examples | {_MEASURES[errors.measure]} |
|---|---|
{rows}

Trained with

    {as_command("train vlm", train_vlm, vars(settings) | own)}

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""


def _described_examples(training: VlmTraining, data: TrainingData) -> str:
    if training.settings.captions:
        return f"{len(data.examples)} clips with a caption"
    sources = Counter(example.source for example in data.examples).items()
    levels = sorted(Counter(example.level for example in data.examples).items())
    by_source = ", ".join(f"{count} {source}" for source, count in sources)
    by_level = ", ".join(f"{count} of level {level}" for level, count in levels)
    return f"mixture `{training.mixture}`: {by_source} examples ({by_level})"


def _described_recipe(settings: VlmSettings) -> str:
    recipe = settings.hyperparameters
    config = optimizer_config(recipe)
    adapters = f"LoRA of rank {settings.lora} in the language layers and fusion"
    in_full = "the fusion alone" if settings.captions else "fusion and language layers"
    return (
        f"vision tower frozen, {adapters if settings.lora else in_full} trained; {recipe.epochs} epochs, learning rate "
        f"{config.lr:g} with a warm-up of {config.warmup} and a cosine decay, weight decay {config.weight_decay}, "
        f"gradients clipped at {config.max_norm}, {recipe.batch_size} examples a step"
    )


RECORD, CARD, ADAPTER = "training.json", "README.md", "adapter"
_SCORED_AT_ONCE = 8


@dataclass(frozen=True)
class Trained:
    """A finished training: its model string, and the errors of that model on the validation examples."""

    model: str
    errors: ValidationErrors
    constant: float | None  # the error of the best constant; none where captions were learned


def start_folder(training: VlmTraining, named: Named, data: TrainingData) -> None:
    """Make the folder of a training, or reopen it if it was begun with the same settings, model and data."""
    path = training.out / WORK / "begun.json"
    if not path.exists() and (training.out / "config.json").exists():
        raise RunError(f"{training.out} holds a checkpoint already, which would be overwritten; choose another --out")
    examples = (*data.examples, *data.validation)
    parts = (part for e in examples for part in (e.clip_key, e.episode.instruction, e.answer, e.source))
    begun = {**_planned(training), "content of the model": named.identity, "examples": digest(*parts)}
    claim_folder(path, begun, where=str(training.out))


def finished(training: VlmTraining, named: Named) -> Trained | None:
    """Return what a training has come to, if it is done; one with other settings is refused."""
    if not (training.out / RECORD).exists():
        return None
    record = read_json(training.out / RECORD)
    if record["plan"] != _planned(training):
        raise RunError(
            f"{training.out} holds a training with other settings; choose another --out or remove that folder"
        )
    errors = ValidationErrors(**record["validation"])
    return Trained(named.scoring_string(training.out), errors, record["constant_mae"])


def _planned(training: VlmTraining) -> dict[str, Any]:
    """Return the settings that decide what comes out: where it runs and goes to is not among them."""
    left_out = ("out", "mixture", "seeds", "workers")
    kept = {name: str(value) for name, value in vars(training.settings).items() if name not in left_out}
    return {**kept, "mixture": training.mixture, "seed": training.seed}


def write_result(training: VlmTraining, named: Named, data: TrainingData, progress: Progress) -> None:
    """Write the folder, score the validation examples through `hf:` with it, and write the card."""
    gc.collect()  # a network that was trained on a GPU makes room for the one that is scored
    torch.cuda.empty_cache()
    _write_model(training, named)
    model = named.scoring_string(training.out)
    constant = None if training.settings.captions else constant_error(data.examples, data.validation)
    if training.settings.captions:
        found = caption_errors([progress.best_error])
    else:  # as `hf:` answers with the finished folder
        levels, labels = scored_levels(model, data.validation, data.show, training.settings.device)
        rows = [
            {"episode": e.episode.id, "instruction": e.episode.instruction, "source": e.source, "level": e.level}
            | {"said": said, "predicted": label}
            for e, said, label in zip(data.validation, levels, labels, strict=True)
        ]
        write_file(training.out / "validation.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        found = label_errors(data.validation, labels)
    write_file(training.out / CARD, _card(training, data, progress, found, constant, model))
    record = {
        "plan": _planned(training),
        "version": __version__,
        "best_step": progress.best_step,
        "steps": progress.step,
        "validation_while_training": progress.best_error,
        "validation": vars(found),
        "constant_mae": None if constant is None else constant[1],
        "validation_rule": data.rule,
        "examples": dict(Counter(example.source for example in data.examples)),
    }
    write_file(training.out / RECORD, json.dumps(record, indent=2) + "\n")
    shutil.rmtree(training.out / WORK)


def _write_model(training: VlmTraining, named: Named) -> None:
    """Write weights in the dtype of the checkpoint; what was frozen is written as it was read."""
    from safetensors.torch import load_file

    base, best = load_base(named, trained_parts(training.settings), "cpu"), load_file(training.out / WORK / BEST)
    model, stored = base.model, base.model.dtype
    if base.adapted is not None:
        base.adapted.float()  # adapters are merged in float32
        load_trainable(base.network, best)
        write_adapter(base.adapted, best, named, training.out / ADAPTER)
        model = base.adapted.merge_and_unload().to(stored)
    else:
        load_trainable(base.network, best)
    model.save_pretrained(training.out)
    for path in other_files(named):
        shutil.copyfile(path, training.out / path.name)


def write_adapter(adapted: Any, best: dict[str, torch.Tensor], named: Named, folder: Path) -> None:
    """Write the adapters as peft reads them, and beside them the fusion, which is trained in full."""
    from safetensors.torch import save_file

    place = Path(named.checkpoint).expanduser()  # its folders are those of this machine and are left out
    adapted.peft_config["default"].base_model_name_or_path = place.name if place.is_dir() else named.checkpoint
    adapted.save_pretrained(str(folder), save_embedding_layers=False)  # else it asks a hub whether they grew
    (folder / CARD).unlink(missing_ok=True)  # a form that nobody filled in
    save_file({n.removeprefix("model."): v for n, v in best.items() if "lora_" not in n}, folder / "fusion.safetensors")


def scored_levels(
    model: str, examples: Sequence[Example], show: ShowFrames, device: str
) -> tuple[list[float], list[float]]:
    """Return the level that a model of the catalog gives to each example, and the label it predicts."""
    asked = model if device == "auto" else f"{model}{'&' if '?' in model else '?'}device={device}"
    scorer, levels, labels = name_model(asked).build(), [], []
    for start in range(0, len(examples), _SCORED_AT_ONCE):
        episodes = [show(example, 0) for example in examples[start : start + _SCORED_AT_ONCE]]
        for answer in scorer.score(episodes):
            if isinstance(answer, Failure):
                raise ModelError(f"{model} gives no answer after its training: {answer.reason}")
            assert answer.probabilities is not None  # no model is trained with answer=generate
            levels.append(answer.level)
            labels.append(predicted_label(answer.probabilities))
    return levels, labels
