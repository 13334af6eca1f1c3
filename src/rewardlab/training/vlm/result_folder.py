"""The result: an ordinary folder for `hf:` with the best parameters, the files of its checkpoint, and a model card."""

import gc
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rewardlab.core.bounded_json import read_json
from rewardlab.core.command_settings import flat_settings
from rewardlab.core.errors import ModelError, RunError
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Failure
from rewardlab.core.version import __version__
from rewardlab.models import name_model
from rewardlab.training.training_state import BEST, Progress, put_trained
from rewardlab.training.vlm.base_model import Named, load_base, other_files
from rewardlab.training.vlm.example import Example, ShowFrames
from rewardlab.training.vlm.model_card import ModelCard
from rewardlab.training.vlm.plan import VlmTraining
from rewardlab.training.vlm.trained_parts import trained_parts
from rewardlab.training.vlm.training_loop import WORK, TrainingData
from rewardlab.training.vlm.validation import ValidationErrors, caption_errors, constant_error, level_errors

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
        put_trained(base.network, best)
        write_adapter(base.adapted, best, named, training.out / ADAPTER)
        model = base.adapted.merge_and_unload().to(stored)
    else:
        put_trained(base.network, best)
    model.save_pretrained(training.out)
    for path in other_files(named):
        shutil.copyfile(path, training.out / path.name)


def _base_name(named: Named) -> str:
    """Return the name of the checkpoint, without the folders of this machine."""
    place = Path(named.spec.checkpoint).expanduser()
    return place.name if place.is_dir() else named.spec.checkpoint


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
