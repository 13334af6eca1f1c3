"""The folder for `hf:`, scored as it will be used, with its model card."""

import gc
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rewardlab.core import __version__
from rewardlab.core.errors import ModelError, RunError
from rewardlab.core.old_settings import as_command, flat_settings
from rewardlab.core.records import read_json
from rewardlab.core.seeding import digest
from rewardlab.core.storage import atomic_write
from rewardlab.core.trial import Failure
from rewardlab.models import name_model
from rewardlab.training.loop import BEST, Progress, load_trainable
from rewardlab.training.vlm import VlmTraining
from rewardlab.training.vlm.base_model import Named, load_base, other_files
from rewardlab.training.vlm.examples import Example, ShowFrames
from rewardlab.training.vlm.network import trained_parts
from rewardlab.training.vlm.train import (
    WORK,
    TrainingData,
    ValidationErrors,
    caption_errors,
    constant_error,
    level_errors,
)

_MEASURES = {"mae": "mean absolute error of the level", "loss": "cross-entropy of the caption, per token"}


@dataclass(frozen=True)
class ModelCard:
    """What a reader must know of a model that was trained."""

    training: VlmTraining
    data: TrainingData
    progress: Progress
    errors: ValidationErrors
    constant: tuple[float, float] | None  # the level that sees nothing, and its error; none for captions

    def text(self, model: str) -> str:
        """Return the card, in Markdown, of the model with this string."""
        plan = self.training.plan
        return f"""# {self.training.out.name}: {self._title(model)}

- **Data**: {", ".join(plan.data)}; {self._examples()}.
- **Validation**: {len(self.data.validation)} examples ({self.data.rule}), by which the checkpoint was chosen.
- **Recipe** `{plan.recipe}`: {self._recipe()}; frames `{plan.frames}`, seed {self.training.seed}.
- **Steps**: {self.progress.step}; kept is the checkpoint of step {self.progress.best_step}.

| validation examples | {_MEASURES[self.errors.measure]} |
|---|---|
{self._rows()}

Trained with

    {self._command()}

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""

    def _title(self, model: str) -> str:
        made = f"{self.training.plan.model}, trained with rewardlab {__version__}"
        if self.training.plan.captions:
            return f"""a vision-language model whose projector has learned captions

{made} to describe clips; the next stage teaches it levels: `rewardlab train vlm {model.removeprefix("hf:")} DATA`."""
        return f"""a reward model that answers 1 to 5

{made} to answer the RoboReward prompt. Use it as `{model}`."""

    def _examples(self) -> str:
        examples = self.data.examples
        if self.training.plan.captions:
            return f"{len(examples)} clips with a caption"
        sources = Counter(example.source for example in examples).items()
        levels = sorted(Counter(example.level for example in examples).items())
        by_source = ", ".join(f"{count} {source}" for source, count in sources)
        by_level = ", ".join(f"{count} of level {level}" for level, count in levels)
        return f"mixture `{self.training.mixture}`: {by_source} examples ({by_level})"

    def _recipe(self) -> str:
        plan, numbers = self.training.plan, self.training.plan.numbers
        adapters = f"LoRA of rank {plan.lora} in the language layers and fusion"
        in_full = "the fusion alone" if plan.captions else "fusion and language layers"
        trained = adapters if plan.lora else in_full
        return (
            f"vision tower frozen, {trained} trained; {numbers.epochs} epochs, learning rate {numbers.rate:g} with a "
            f"warm-up of {numbers.warm_up} and a cosine decay, weight decay {numbers.weight_decay}, gradients clipped "
            f"at {numbers.max_norm}, {numbers.batch} examples a step"
        )

    def _rows(self) -> str:
        rows = [f"| {name} | {value:.3f} |" for name, value in self.errors.by_source.items()]
        if self.constant is not None:
            level, error = self.constant
            rows.append(f"| all, by the constant {level:g} that sees nothing | {error:.3f} |")
        return "\n".join(rows)

    def _command(self) -> str:
        training = self.training
        plan = replace(training.plan, mixture=(training.mixture,), seeds=(training.seed,), out=training.out)
        return as_command("train-vlm", plan).replace("train-vlm", "train vlm", 1)


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
    begun = {"plan": _planned(training), "model": named.identity, "data": _digest(data)}
    if path.exists() and read_json(path) != begun:
        raise RunError(
            f"{training.out} holds a training that was begun with other settings, another model or other data; "
            "choose another --out or remove that folder"
        )
    if not path.exists() and (training.out / "config.json").exists():
        raise RunError(f"{training.out} holds a checkpoint already, which would be overwritten; choose another --out")
    (training.out / WORK).mkdir(parents=True, exist_ok=True)
    _write(path, json.dumps(begun) + "\n")


def _digest(data: TrainingData) -> str:
    """Identify every example, its clip, words and label."""
    examples = (*data.examples, *data.validation)
    return digest(*(part for e in examples for part in (e.clip_key, e.episode.instruction, e.answer, e.source)))


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
    settings = flat_settings(training.plan)
    left_out = ("out", "mixture", "seeds", "workers")
    kept = {name: str(value) for name, value in settings.items() if name not in left_out}
    return {**kept, "mixture": training.mixture, "seed": training.seed}


def write_result(training: VlmTraining, named: Named, data: TrainingData, progress: Progress) -> None:
    """Write the folder, score the validation examples through `hf:` with it, and write the card."""
    gc.collect()  # a network that was trained on a GPU makes room for the one that is scored
    torch.cuda.empty_cache()
    _write_model(training, named)
    found = caption_errors([progress.best_error]) if training.plan.captions else _scored(training, named, data)
    constant = None if training.plan.captions else constant_error(data.examples, data.validation)
    card = ModelCard(training, data, progress, found, constant)
    _write(training.out / CARD, card.text(named.scoring_string(training.out)))
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
    _write(training.out / RECORD, json.dumps(record, indent=2) + "\n")
    shutil.rmtree(training.out / WORK)


def _scored(training: VlmTraining, named: Named, data: TrainingData) -> ValidationErrors:
    """Return the errors of the finished folder as `hf:` answers, and write every answer down."""
    levels = scored_levels(named.scoring_string(training.out), data.validation, data.show, training.plan.device)
    _write(training.out / "validation.jsonl", _validation_lines(data.validation, levels))
    return level_errors(data.validation, levels)


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _write_model(training: VlmTraining, named: Named) -> None:
    """Write weights in the numbers of the checkpoint; what was frozen is written as it was read."""
    from safetensors.torch import load_file

    base, best = load_base(named, trained_parts(training.plan), "cpu"), load_file(training.out / WORK / BEST)
    model, stored = base.model, base.model.dtype
    if base.adapted is not None:
        base.adapted.float()  # adapters are merged in full numbers
        load_trainable(base.network, best)
        write_adapter(base.adapted, best, named, training.out / ADAPTER)
        model = base.adapted.merge_and_unload().to(stored)
    else:
        load_trainable(base.network, best)
    model.save_pretrained(training.out)
    for path in other_files(named):
        shutil.copyfile(path, training.out / path.name)


def _base_name(named: Named) -> str:
    """Return the name of the checkpoint, without the folders of this machine."""
    place = Path(named.checkpoint).expanduser()
    return place.name if place.is_dir() else named.checkpoint


def write_adapter(adapted: Any, best: dict[str, torch.Tensor], named: Named, folder: Path) -> None:
    """Write the adapters as peft reads them, and beside them the fusion, which is trained in full."""
    from safetensors.torch import save_file

    adapted.peft_config["default"].base_model_name_or_path = _base_name(named)
    adapted.save_pretrained(str(folder), save_embedding_layers=False)  # else it asks a hub whether they grew
    (folder / CARD).unlink(missing_ok=True)  # a form that nobody filled in
    save_file({n.removeprefix("model."): v for n, v in best.items() if "lora_" not in n}, folder / "fusion.safetensors")


def scored_levels(model: str, examples: Sequence[Example], show: ShowFrames, device: str) -> list[float]:
    """Return the level that a model of the catalog gives to each example."""
    asked = model if device == "auto" else f"{model}{'&' if '?' in model else '?'}device={device}"
    judge, levels = name_model(asked).build(), []
    for start in range(0, len(examples), _SCORED_AT_ONCE):
        episodes = [show(example, 0) for example in examples[start : start + _SCORED_AT_ONCE]]
        for answer in judge.score(episodes):
            if isinstance(answer, Failure):
                raise ModelError(f"{model} gives no answer after its training: {answer.reason}")
            levels.append(answer.level)
    return levels


def _validation_lines(examples: Sequence[Example], levels: Sequence[float]) -> str:
    rows = [
        {
            "episode": e.episode.id,
            "instruction": e.episode.instruction,
            "source": e.source,
            "level": e.level,
            "said": said,
        }
        for e, said in zip(examples, levels)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)
