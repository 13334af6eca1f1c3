"""A model put together from a vision tower and a language model: load both, join, template, card.

Frames are resized to few patches. In LLaVA each becomes one token; in Aya Vision a square of patches does, side by side
as one long feature. A two-layer projector, new and random, takes features into the space of word embeddings. Everything
else is as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.records import read_json
from rewardlab.models.backends.checkpoint import check_weights, load_checkpoint
from rewardlab.training.encoders import DINOV2, Upstream, folder_upstream, gguf_upstream, write_dinov2_folder
from rewardlab.training.lora import with_adapter
from rewardlab.training.vlm import AssembleSettings
from rewardlab.training.vlm.network import recorded_inputs

IMAGE_TOKEN = "<image>"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A loaded causal language model whose vocabulary has the image token."""

    model: Any
    tokenizer: Any
    upstream: Upstream


def load_language_model(place: str) -> LanguageModel:
    """Return the language model in a folder of transformers or a GGUF file; PlanError where it is none."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    path = Path(place).expanduser()
    if path.is_dir():
        upstream = folder_upstream(path)
        if upstream.kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            got = f"{upstream.kind} in {path}"
            raise PlanError(f"expected a causal language model of transformers, such as llama, got {got}")
        model, tokenizer = _load(path, {"use_safetensors": True})
    elif path.is_file() and path.suffix == ".gguf":
        require_packages("a .gguf file", "gguf", "accelerate", extra="assemble")
        model, tokenizer = _load(path.parent, {"gguf_file": path.name})
        vars(model.config).pop("quantization_config", None)  # it is no more, and a folder that says so cannot be loaded
        upstream = gguf_upstream(path, model.config.model_type)
    else:
        raise PlanError(f"there is no language model {place!r}; name a checkpoint folder or a .gguf file")
    _add_image_token(model, tokenizer)
    return LanguageModel(model, tokenizer, upstream)


def _load(folder: Path, source: dict[str, Any]) -> tuple[Any, Any]:
    import transformers

    def load(place: str) -> tuple[Any, Any]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, trust_remote_code=False, gguf_file=source.get("gguf_file")
        )
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            place, trust_remote_code=False, dtype=torch.float32, output_loading_info=True, **source
        )
        check_weights(loading, place)
        return model, tokenizer

    loaded: tuple[Any, Any] = load_checkpoint(str(folder), load)
    return loaded


def _add_image_token(model: Any, tokenizer: Any) -> None:
    """Add the token that images stand for; its embedding is never read, and the mean of all is never likely."""
    from tokenizers import AddedToken

    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_tokens([AddedToken(IMAGE_TOKEN, special=True, normalized=False)], special_tokens=True)
    old = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) <= old:  # the table has rows to spare
        return
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for table in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            table[old:] = table[:old].mean(dim=0)


# Chat templates of language models, which know messages of one string, taught to take images and text in pieces.

# Pieces become one string per message, an image the token that stands for it; then the model's own template goes on.
_FLATTEN = (
    "{%- set flat = namespace(messages=[]) -%}{%- for message in messages -%}"
    "{%- set said = namespace(text='') -%}"
    "{%- if message['content'] is string -%}{%- set said.text = message['content'] -%}{%- else -%}"
    "{%- for piece in message['content'] -%}"
    "{%- set said.text = said.text + ('IMAGE' if piece['type'] == 'image' else piece['text']) -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- set flat.messages = flat.messages + [{'role': message['role'], 'content': said.text}] -%}"
    "{%- endfor -%}{%- set messages = flat.messages -%}"
).replace("IMAGE", IMAGE_TOKEN)
_PLAIN = (  # for models that have none
    "{% for message in messages %}{{ message['role'].capitalize() + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def model_card(vision: Upstream, language: Upstream, settings: AssembleSettings) -> str:
    """Return the card of an assembled model: what it is made of, under which licences, and what it is not yet."""
    if settings.adapter is None:
        projector = f"two layers, random, seed {settings.seed}"
        weights = "The weights of the two models are unchanged."
        trained = (
            "**Not trained.** The projector is random: what the model says about images means nothing until it is "
            "trained.\nText alone is answered as by the language model."
        )
    else:
        projector = "two layers, of the adapter"
        weights = "The vision tower is unchanged; adapters of `rewardlab train vlm` are merged into the language model."
        trained = "**Trained by** `rewardlab train vlm`, which wrote the adapters; the card beside them says on what."
    family = "LLaVA" if settings.pool == 1 else "Aya Vision"
    return f"""# {settings.out.name}

Put together by `rewardlab train assemble`: {family} of transformers around two models that were trained apart.

| part | model | licence | type |
|---|---|---|---|
| vision tower | {vision.name} | {vision.licence} | {vision.kind} |
| language model | {language.name} | {language.licence} | {language.kind} |
| projector | {projector} | | |

A frame is {settings.tokens} tokens. {weights} Added are a token `<image>` in the vocabulary and
positions of the vision tower for frames of this size.

{trained} Whoever passes the folder on is bound by the licences above.
"""


# The vision tower of an assembled model: loaded, and made ready for frames of few tokens.

Colour = tuple[float, ...]  # of red, green and blue


@dataclass(frozen=True)
class _Family:
    """A kind of tower: its class, whether a class token stands before the patches, how its pixels are normalised."""

    tower: str
    has_class_token: bool
    mean: Colour
    std: Colour


_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_FAMILIES = {
    "dinov2": _Family("Dinov2Model", True, *_IMAGENET),
    "clip": _Family("CLIPVisionModel", True, *_CLIP),
    "clip_vision_model": _Family("CLIPVisionModel", True, *_CLIP),
    "siglip": _Family("SiglipVisionModel", False, *_HALF),
    "siglip_vision_model": _Family("SiglipVisionModel", False, *_HALF),
}


@dataclass(frozen=True, eq=False)
class VisionTower:
    """A loaded tower that gives side x side patches for frames of `pixels` on a side."""

    model: Any
    upstream: Upstream
    pixels: int
    family: _Family  # with mean and deviation as the folder says


def load_vision_tower(place: str, side: int) -> VisionTower:
    """Return the tower in a folder of transformers or a DINOv2 file; PlanError where it is no image model."""
    path = Path(place).expanduser()
    if path.is_dir():
        return _load_folder(path, side, folder_upstream(path))
    if path.is_file() and path.suffix in (".onnx", ".npz"):
        with TemporaryDirectory() as folder:
            write_dinov2_folder(path, Path(folder))
            return _load_folder(Path(folder), side, DINOV2)
    raise PlanError(f"there is no vision tower {place!r}; name a checkpoint folder, or DINOv2 as .onnx or .npz")


def _load_folder(folder: Path, side: int, upstream: Upstream) -> VisionTower:
    import transformers

    family = _FAMILIES.get(upstream.kind)
    if family is None:
        kinds = ", ".join(kind for kind in _FAMILIES if "_" not in kind)
        raise PlanError(f"a vision tower is one of {kinds}, got {upstream.kind} in {folder}")
    tower = getattr(transformers, family.tower)

    def load(place: str) -> Any:
        model, loading = tower.from_pretrained(
            place, trust_remote_code=False, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
        check_weights(loading, place)
        return model

    model = _for_pixels(load_checkpoint(str(folder), load), side)
    path = folder / "preprocessor_config.json"
    if path.is_file():
        try:
            said = read_json(path)
            mean, std = (tuple(map(float, said[name])) for name in ("image_mean", "image_std"))
        except (ValueError, KeyError, TypeError):
            mean, std = (), ()
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise PlanError(f"{path} must state image_mean and image_std, three numbers each, the second above 0")
        family = replace(family, mean=mean, std=std)
    return VisionTower(model.eval(), upstream, side * model.config.patch_size, family)


def _for_pixels(model: Any, side: int) -> Any:
    """Return the tower for so many patches on a side; Dinov2 resamples its positions itself, others not."""
    config, weights = model.config, model.state_dict()
    name = next((name for name in weights if name.endswith("position_embedding.weight")), None)
    if name is None or config.image_size == side * config.patch_size:
        return model
    config.image_size = side * config.patch_size
    resized = type(model)(config)
    resized.load_state_dict(weights | {name: _resampled(weights[name], side)})
    return resized


def _resampled(positions: Tensor, side: int) -> Tensor:
    """Return a table of positions (with that of a class token, if there is one) for another number of patches."""
    grid = int(len(positions) ** 0.5)
    first, patches = positions[: len(positions) - grid**2], positions[len(positions) - grid**2 :]
    table = patches.T.reshape(1, -1, grid, grid)
    table = nn.functional.interpolate(table, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([first, table.flatten(2)[0].T])


_FEATURE_LAYER = -2  # of the tower, as in LLaVA: the last is bent to the tower's own training
_PROBES = 8  # images by which the projector's scale is set


def assemble(settings: AssembleSettings) -> Path:
    """Write the folder of the assembled model and return it."""
    tower = load_vision_tower(settings.vision, settings.side * settings.pool)
    language = load_language_model(settings.language)
    model = _join(tower, language, settings)
    if settings.adapter is not None:
        model = with_adapter(model, settings.adapter)
    processor = _processor(tower, language, settings.pool)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=settings.out.parent, prefix=settings.out.name + ".") as folder:
        made = Path(folder) / "model"  # a folder that is stopped half-way must not look whole
        model.save_pretrained(made)
        processor.save_pretrained(made)
        (made / "README.md").write_text(model_card(tower.upstream, language.upstream, settings), encoding="utf-8")
        made.rename(settings.out)
    return settings.out


def _join(tower: VisionTower, language: LanguageModel, settings: AssembleSettings) -> Any:
    from transformers import GenerationConfig

    for part in (tower, language):
        part.model.config._name_or_path = part.upstream.name  # else the path on this machine would be saved
    family, config = _family(tower, language, settings)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(settings.seed)
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


def _family(tower: VisionTower, language: LanguageModel, settings: AssembleSettings) -> tuple[Any, Any]:
    """Return the class of the assembled model and its config."""
    import transformers

    shared = {
        "vision_config": tower.model.config,
        "text_config": language.model.config,
        "image_token_index": language.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN),
        "vision_feature_layer": _FEATURE_LAYER,
        "vision_feature_select_strategy": "default" if tower.family.has_class_token else "full",
        "tie_word_embeddings": language.model.config.tie_word_embeddings,
    }
    if settings.pool == 1:
        config = transformers.LlavaConfig(image_seq_length=settings.tokens, **shared)
        return transformers.LlavaForConditionalGeneration, config
    inner = 2 * language.model.config.hidden_size  # of the projector; half of it gates the other half
    config = transformers.AyaVisionConfig(downsample_factor=settings.pool, alignment_intermediate_size=inner, **shared)
    return transformers.AyaVisionForConditionalGeneration, config


@torch.no_grad()
def _initialise_projector(model: Any, tower: VisionTower) -> None:
    """Draw the projector so that images come out as large as words, whatever the scale of the tower's features."""
    projector, family = model.model.multi_modal_projector, tower.family
    colours = torch.rand(_PROBES, 3, 4, 4)  # smooth random images
    images = nn.functional.interpolate(colours, size=tower.pixels, mode="bicubic").clamp(0, 1)
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in (family.mean, family.std))
    see = partial(model.get_image_features, (images - mean) / std)
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


def _processor(tower: VisionTower, language: LanguageModel, pool: int) -> Any:
    """Return the processor: frames are squeezed to a square, so that nothing at their sides is cut off."""
    from transformers import LlavaProcessor, SiglipImageProcessorPil

    images = SiglipImageProcessorPil(
        size={"height": tower.pixels, "width": tower.pixels},
        image_mean=list(tower.family.mean),
        image_std=list(tower.family.std),
    )
    return LlavaProcessor(
        images,
        language.tokenizer,
        patch_size=tower.model.config.patch_size * pool,  # what one token shows
        vision_feature_select_strategy="default" if tower.family.has_class_token else "full",
        num_additional_image_tokens=int(tower.family.has_class_token),
        chat_template=_FLATTEN + (language.tokenizer.chat_template or _PLAIN),
    )
