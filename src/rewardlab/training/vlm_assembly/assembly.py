"""Putting a vision-language model together: LLaVA or Aya Vision of transformers around two models.

Frames are resized to few patches. In LLaVA each becomes one token; in Aya Vision a square of patches does, side by side
as one long feature. A two-layer projector, new and random, takes features into the space of word embeddings. Everything
else is as it was.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.training.vlm.answer_network import recorded_inputs
from rewardlab.training.vlm_assembly.image_slots import with_image_slots
from rewardlab.training.vlm_assembly.language_model import LanguageModel, load_language_model
from rewardlab.training.vlm_assembly.model_card import model_card
from rewardlab.training.vlm_assembly.plan import AssemblePlan
from rewardlab.training.vlm_assembly.trained_adapter import with_adapter
from rewardlab.training.vlm_assembly.vision_tower import VisionTower, load_vision_tower

_FEATURE_LAYER = -2  # of the tower, as in LLaVA: the last is bent to the tower's own training
_PROBES = 8  # images by which the projector's scale is set


def assemble(plan: AssemblePlan) -> Path:
    """Write the folder of the assembled model and return it."""
    tower = load_vision_tower(plan.vision, plan.side * plan.pool)
    language = load_language_model(plan.language)
    model = _join(tower, language, plan)
    if plan.adapter is not None:
        model = with_adapter(model, plan.adapter)
    processor = _processor(tower, language, plan.pool)
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=plan.out.parent, prefix=plan.out.name + ".") as folder:
        made = Path(folder) / "model"  # a folder that is stopped half-way must not look whole
        model.save_pretrained(made)
        processor.save_pretrained(made)
        (made / "README.md").write_text(model_card(tower.upstream, language.upstream, plan), encoding="utf-8")
        made.rename(plan.out)
    return plan.out


def _join(tower: VisionTower, language: LanguageModel, plan: AssemblePlan) -> Any:
    from transformers import GenerationConfig

    for part in (tower, language):
        part.model.config._name_or_path = part.upstream.name  # else the path on this machine would be saved
    family, config = _family(tower, language, plan)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(plan.seed)
        model = family(config).eval()
        model.model.vision_tower.load_state_dict(tower.model.state_dict())
        model.model.language_model.load_state_dict(language.model.base_model.state_dict())
        model.lm_head.load_state_dict(language.model.get_output_embeddings().state_dict())
        _initialise_projector(model, tower)
    ends = language.model.generation_config
    model.generation_config = GenerationConfig(
        bos_token_id=ends.bos_token_id, eos_token_id=ends.eos_token_id, pad_token_id=language.tokenizer.pad_token_id
    )
    return model


def _family(tower: VisionTower, language: LanguageModel, plan: AssemblePlan) -> tuple[Any, Any]:
    """Return the class of the assembled model and its config."""
    import transformers

    shared = {
        "vision_config": tower.model.config,
        "text_config": language.model.config,
        "image_token_index": language.image_token_id,
        "vision_feature_layer": _FEATURE_LAYER,
        "vision_feature_select_strategy": "default" if tower.has_class_token else "full",
        "tie_word_embeddings": language.model.config.tie_word_embeddings,
    }
    if plan.pool == 1:
        config = transformers.LlavaConfig(image_seq_length=plan.tokens, **shared)
        return transformers.LlavaForConditionalGeneration, config
    inner = 2 * language.model.config.hidden_size  # of the projector; half of it gates the other half
    config = transformers.AyaVisionConfig(downsample_factor=plan.pool, alignment_intermediate_size=inner, **shared)
    return transformers.AyaVisionForConditionalGeneration, config


@torch.no_grad()
def _initialise_projector(model: Any, tower: VisionTower) -> None:
    """Draw the projector so that images come out as large as words, whatever the scale of the tower's features."""
    projector, see = model.model.multi_modal_projector, partial(model.get_image_features, _smooth_images(tower))
    _draw(projector.linear_1, see, 1.0)
    _draw(projector.linear_2, see, float(_size(model.get_input_embeddings().weight)))


def _draw(layer: nn.Linear, see: Callable[[], Any], size: float) -> None:
    """Draw a layer's weights so that its outputs have this size while the model sees something."""
    (inputs,) = recorded_inputs([layer], see)
    nn.init.normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    layer.weight.mul_(size / _size(layer(inputs)))


def _size(values: Tensor) -> Tensor:
    return values.square().mean().sqrt()


def _smooth_images(tower: VisionTower) -> Tensor:
    """Return smooth random images as the tower takes them."""
    colours = torch.rand(_PROBES, 3, 4, 4)
    images = nn.functional.interpolate(colours, size=tower.pixels, mode="bicubic").clamp(0, 1)
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (tower.mean, tower.std))
    return (images - mean) / std


def _processor(tower: VisionTower, language: LanguageModel, pool: int) -> Any:
    """Return the processor: frames are squeezed to a square, so that nothing at their sides is cut off."""
    from transformers import LlavaProcessor, SiglipImageProcessorPil

    images = SiglipImageProcessorPil(
        size={"height": tower.pixels, "width": tower.pixels}, image_mean=list(tower.mean), image_std=list(tower.std)
    )
    return LlavaProcessor(
        images,
        language.tokenizer,
        patch_size=tower.model.config.patch_size * pool,  # what one token shows
        vision_feature_select_strategy="default" if tower.has_class_token else "full",
        num_additional_image_tokens=int(tower.has_class_token),
        chat_template=with_image_slots(language.tokenizer.chat_template),
    )
