"""Which parts of a model are trained: the vision tower is frozen, what fuses it with language and language are not."""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.training.peft_adapters import loaded_peft
from rewardlab.training.vlm.plan import VlmPlan

_FUSION_IN_TOWER = "merger"  # Qwen-VL keeps what fuses vision and language inside its tower
_LORA_SCALE = 2  # alpha over rank


def vision_tower(model: Any) -> nn.Module:
    """Return the vision tower of an image-text-to-text model."""
    tower = model.get_encoder(modality="image")
    if tower is model or tower is model.base_model:
        raise ModelError(f"{type(model).__name__} has no vision tower of its own, which the recipe freezes")
    assert isinstance(tower, nn.Module)
    return tower


@dataclass(frozen=True)
class TrainedParts:
    """What is trained beside the fusion: language layers in full, through adapters of a rank, or not at all."""

    language: bool = True
    lora: int = 0


def choose_trained(model: Any, parts: TrainedParts) -> Any:
    """Freeze the vision tower, and the language layers where they are not trained in full; return adapters, if any."""
    frozen = {id(p) for name, p in vision_tower(model).named_parameters() if _FUSION_IN_TOWER not in name}
    if parts.lora or not parts.language:
        frozen |= {id(p) for module in _language_modules(model) for p in module.parameters()}
    adapted = _with_adapters(model, parts.lora) if parts.lora else None
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) not in frozen)
    return adapted


def _language_modules(model: Any) -> list[nn.Module]:
    return [model.get_decoder(), model.get_output_embeddings(), model.get_input_embeddings()]


def _with_adapters(model: Any, rank: int) -> Any:
    with loaded_peft("--lora needs peft") as peft:
        config = peft.LoraConfig(r=rank, lora_alpha=_LORA_SCALE * rank, target_modules=_language_layers(model))
        return peft.get_peft_model(model, config)


def _language_layers(model: Any) -> str:
    """Return a pattern of the language layers' names: the last words alone may also be those of a vision tower."""
    decoder = model.get_decoder()
    place = next(name for name, module in model.named_modules() if module is decoder)
    linear = [name for name, module in decoder.named_modules() if isinstance(module, nn.Linear)]
    return rf"{re.escape(place)}\.(.*\.)?({'|'.join(sorted({name.rpartition('.')[2] for name in linear}))})"


def set_training(model: Any) -> None:
    """Put the trained parts into training mode; nothing is dropped in the frozen tower."""
    model.train()
    vision_tower(model).eval()


def trained_parts(plan: VlmPlan) -> TrainedParts:
    """Return the parts that a plan trains."""
    return TrainedParts(not plan.captions, plan.lora)


def training_dtype(plan: VlmPlan, device: str) -> torch.dtype:
    """Return what is computed in; bfloat16 needs a GPU."""
    if plan.dtype == "bfloat16" and device == "cpu":
        raise PlanError("dtype bfloat16 was asked for, and torch sees no GPU here; use --dtype float32")
    if plan.dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    return torch.bfloat16 if plan.dtype == "bfloat16" else torch.float32
