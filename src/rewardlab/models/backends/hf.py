"""`hf:PATH_OR_ID`: any image-text-to-text model of transformers on this machine, with a fast path for Qwen-VL."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models.backends.checkpoint import HfOptions, identify_checkpoint, load_checkpoint, load_for_scoring
from rewardlab.models.backends.qwen_prompt import FAMILIES
from rewardlab.models.backends.qwen_vlm import QwenVL
from rewardlab.models.external import all_settings, identity, read_arguments, shown_options
from rewardlab.models.model_string import Pairs
from rewardlab.models.vlm import NamedVlm, VisionLanguageModel, VlmBackend

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
# What a processor is made of: another chat template is another question.
_PROCESSOR_FILES = (
    *_TOKENIZER_FILES,
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)


def name_hf(argument: str, pairs: Pairs, also: Collection[str] = ()) -> NamedVlm:
    """Return the checkpoint in a folder or behind a hub id; it is not loaded."""
    given: dict[str, Any] = read_arguments("hf", HfOptions, pairs, also)
    content, options = identify_hf(argument, HfOptions(**given))
    settings = {name: value for name, value in all_settings(HfOptions, given).items() if name != "revision"}
    return NamedVlm(
        identity("hf", settings, content),
        lambda budget: load_checkpoint(argument, lambda place: _load(place, options)),
        shown_options(HfOptions, given),
    )


def identify_hf(place: str, options: HfOptions) -> tuple[str, HfOptions]:
    """Return what identifies the files of a checkpoint, and the options with the revision that will be loaded."""

    def other_files(model_type: str, folder: str) -> tuple[str, ...]:
        _check_type(model_type, folder)
        return _TOKENIZER_FILES if _has_fast_path(model_type, options) else _PROCESSOR_FILES

    content, revision = identify_checkpoint(place, options.revision, other_files)
    return content, replace(options, revision=revision)


def _has_fast_path(model_type: str, options: HfOptions) -> bool:
    return model_type in FAMILIES and options.frames == "auto"


def _check_type(model_type: str, place: str) -> None:
    """Say that a checkpoint is no image-text-to-text model; the library, slow to import, knows which types are."""
    if model_type in FAMILIES:
        return
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    if model_type not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        raise PlanError(
            f"expected an image-text-to-text model of transformers, such as llava or qwen3_vl, got {model_type} in "
            f"{place}; a model of text alone sees no frames"
        )


def _load(place: str, options: HfOptions) -> VisionLanguageModel:
    import transformers

    config = transformers.AutoConfig.from_pretrained(place, revision=options.revision, trust_remote_code=False)
    _check_type(config.model_type, place)
    if config.is_encoder_decoder:
        raise ModelError(
            f"{place} is an encoder-decoder, {config.model_type}; hf: needs a model that goes on with a text"
        )
    if _has_fast_path(config.model_type, options):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, revision=options.revision, trust_remote_code=False
        )
        return QwenVL(load_for_scoring(place, options), tokenizer, options)
    return _load_with_processor(place, config, options)


def _load_with_processor(place: str, config: Any, options: HfOptions) -> VisionLanguageModel:
    from rewardlab.models.backends.checkpoint import load_processor
    from rewardlab.models.backends.processor_vlm import ProcessorVlm, prompt_renderer

    processor = load_processor(place, config, options)
    renderer = prompt_renderer(processor, place, options)  # before the weights, which take longer
    return ProcessorVlm(load_for_scoring(place, options), renderer, options.reuse_bytes)


HF = VlmBackend(
    "an image-text-to-text model of transformers on this machine (Qwen-VL, RoboReward, LLaVA, InternVL, Gemma 3, ...): "
    "hf:FOLDER or hf:ORG/NAME; needs the extra hf",
    name_hf,
    (HfOptions,),
    scores_answers=True,
)
