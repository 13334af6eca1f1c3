"""Which parts are trained; a batch in, logits of the answer out.

Rows are padded on the left, so that the answer stands at the end of each. What the frozen tower makes of a clip can be
computed once: it is recorded where it enters the parts that are trained.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models.backends.qwen_prompt import Family, FramePair, patchify
from rewardlab.training.lora import add_lora
from rewardlab.training.vlm import VlmSettings
from rewardlab.training.vlm.inputs import Tensors

_FUSION_IN_TOWER = "merger"  # Qwen-VL keeps what fuses vision and language inside its tower


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
        language = (model.get_decoder(), model.get_output_embeddings(), model.get_input_embeddings())
        frozen |= {id(p) for module in language for p in module.parameters()}
    adapted = add_lora(model, parts.lora, _language_layers(model), "--lora") if parts.lora else None
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) not in frozen)
    return adapted


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


def trained_parts(settings: VlmSettings) -> TrainedParts:
    """Return the parts that are trained."""
    return TrainedParts(not settings.captions, settings.lora)


def training_dtype(settings: VlmSettings, device: str) -> torch.dtype:
    """Return what is computed in; bfloat16 needs a GPU."""
    if settings.dtype == "bfloat16" and device == "cpu":
        raise PlanError("dtype bfloat16 was asked for, and torch sees no GPU here; use --dtype float32")
    plain = settings.dtype == "float32" or (settings.dtype == "auto" and device == "cpu")
    return torch.float32 if plain else torch.bfloat16


UNLEARNED = -100  # a label that counts for nothing, left of a shorter reply


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of equal kind as tensors; `features` stand in for pictures where the tower has seen them."""

    tokens: Tensors  # (rows, tokens, ...)
    mask: Tensor  # (rows, tokens): 0 at padding
    pictures: Tensors
    features: Tensor | None
    labels: Tensor  # (rows, reply), shorter ones filled up on the left
    weights: Tensor  # (rows,): what each counts for in the loss
    places: tuple[int, ...]  # of the examples

    def to(self, device: str) -> "Batch":
        """Return the batch on a device, without waiting for it; the network itself moves the pictures it needs."""

        def move(value: Tensor) -> Tensor:
            return value.to(device, non_blocking=True)

        return replace(
            self,
            tokens={name: move(value) for name, value in self.tokens.items()},
            mask=move(self.mask),
            features=None if self.features is None else move(self.features),
            labels=move(self.labels),
            weights=move(self.weights),
        )


def answer_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the weighted sum over rows of the mean cross-entropy of the answer's tokens."""
    return (answer_losses(logits, batch) * batch.weights).sum()


def answer_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Return for each row the mean cross-entropy of the answer's tokens."""
    flat = logits.flatten(0, 1).float()
    tokens = nn.functional.cross_entropy(flat, batch.labels.flatten(), reduction="none", ignore_index=UNLEARNED)
    return tokens.view_as(batch.labels).sum(dim=1) / (batch.labels != UNLEARNED).sum(dim=1)


class QwenAnswerNetwork(nn.Module):
    """Qwen-VL by the fast path's own layout of tokens and positions."""

    def __init__(self, model: Any, family: Family) -> None:
        super().__init__()
        self.model, self.family = model, family

    @property
    def fusion(self) -> list[nn.Module]:
        """Return the modules that turn features of the tower into tokens: of its end, and of inner layers."""
        tower = self.model.model.visual
        return [tower.merger, *(tower.deepstack_merger_list if self.family.deepstack else [])]

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits (rows, reply, vocabulary)."""
        shown = self._see(batch.pictures) if batch.features is None else self._fuse(batch.features)
        visual = batch.tokens["visual"]
        embedded = self.model.get_input_embeddings()(batch.tokens["input_ids"])
        embedded = embedded.masked_scatter(visual[..., None], shown[0].to(embedded.dtype))
        deepstack = {"visual_pos_masks": visual, "deepstack_visual_embeds": shown[1:]} if len(shown) > 1 else {}
        output = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=batch.tokens["position_ids"].permute(2, 0, 1),
            attention_mask=batch.mask,
            use_cache=False,
            **deepstack,
        )
        logits: Tensor = self.model.lm_head(output.last_hidden_state[:, -batch.labels.shape[1] :])
        return logits

    def _see(self, pictures: Tensors) -> list[Tensor]:
        output = self._run_tower(pictures)
        return [output.pooler_output, *(output.deepstack_features if self.family.deepstack else [])]

    def _fuse(self, features: Tensor) -> list[Tensor]:
        return [module(features[:, place].contiguous()) for place, module in enumerate(self.fusion)]

    def encode(self, pictures: Tensors) -> Tensor:
        """Return what the tower makes of a clip, (patches, layers, size), as it enters the fusion."""
        return torch.stack(recorded_inputs(self.fusion, lambda: self._run_tower(pictures)), dim=1)

    @torch.no_grad()
    def can_fuse(self, pictures: Tensors) -> bool:
        """Tell whether recorded features give the very tokens that the model makes itself."""
        return _same(self._see(pictures), self._fuse(self.encode(pictures)))

    def _run_tower(self, pictures: Tensors) -> Any:
        tower, device = self.model.model.visual, self.model.device
        sizes = pictures["sizes"].tolist()
        pairs = [
            FramePair("", frames.numpy(), tuple(size)) for frames, size in zip(pictures["frames"], sizes, strict=True)
        ]
        patches = torch.cat([patchify([pair], self.family, device) for pair in pairs])
        grid = torch.tensor([[1, *(side // self.family.patch_size for side in size)] for size in sizes], device=device)
        return tower(patches.to(tower.dtype), grid_thw=grid)


class ProcessorAnswerNetwork(nn.Module):
    """Any other image-text-to-text model, by its own forward pass."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        rope = model.config.get_text_config().to_dict().get("rope_parameters") or {}
        self.counts_positions = "mrope_section" not in rope  # else the model itself knows where images stand

    @property
    def projector(self) -> nn.Module | None:
        """Return the module between tower and language model, where it goes by the usual name."""
        return dict(self.model.base_model.named_children()).get("multi_modal_projector")

    def forward(self, batch: Batch) -> Tensor:
        read = {**batch.tokens, "attention_mask": batch.mask, "use_cache": False}
        if self.counts_positions:
            read["position_ids"] = (batch.mask.cumsum(dim=1) - 1).clamp(min=0)
        if batch.features is not None:
            assert self.projector is not None
            ids = read.pop("input_ids")  # what the projector makes of features stands where images do
            words = self.model.get_input_embeddings()(ids)
            images = (ids == self.model.config.image_token_id)[..., None]
            read["inputs_embeds"] = words.masked_scatter(images, self.projector(batch.features).to(words.dtype))
        else:
            read |= {name: self._cast(value) for name, value in batch.pictures.items()}
        logits: Tensor = self.model(**read, logits_to_keep=batch.labels.shape[1]).logits
        return logits

    def encode(self, pictures: Tensors) -> Tensor:
        """Return what the tower makes of a clip, (images, tokens, size), as it enters the projector."""
        assert self.projector is not None
        (features,) = recorded_inputs([self.projector], lambda: self._see(pictures))
        return features

    @torch.no_grad()
    def can_fuse(self, pictures: Tensors) -> bool:
        if self.projector is None or "pixel_values" not in pictures:
            return False
        own = torch.cat([image.flatten() for image in self._see(pictures)])
        return _same([own], [self.projector(self.encode(pictures)).flatten()])  # some projectors keep rows and columns

    def _see(self, pictures: Tensors) -> Any:
        moved = {name: self._cast(value) for name, value in pictures.items()}
        return self.model.get_image_features(**moved).pooler_output

    def _cast(self, value: Tensor) -> Tensor:
        dtype = next(vision_tower(self.model).parameters()).dtype if value.is_floating_point() else value.dtype
        return value.to(self.model.device, dtype, non_blocking=True)


def _same(own: list[Tensor], fused: list[Tensor]) -> bool:
    alike = lambda a, b: a.shape == b.shape and torch.allclose(a, b, atol=1e-4)
    return len(own) == len(fused) and all(map(alike, own, fused))


AnswerNetwork = QwenAnswerNetwork | ProcessorAnswerNetwork


def recorded_inputs(modules: list[nn.Module], run: Any) -> list[Tensor]:
    """Return the first input that each of the modules is given while something runs."""
    seen: dict[int, Tensor] = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, given: seen.__setitem__(id(module), given[0].detach()))
        for module in modules
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return [seen[id(module)] for module in modules]
