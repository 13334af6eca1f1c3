"""Tiny image-text-to-text models of many kinds, with real processors and the chat templates of their publishers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.models import tiny

SIDE = 28  # pixels of a frame as most of these towers take it
_TEXT = {k: v for k, v in tiny.TINY_TEXT.items() if k != "vocab_size"}
_SIZE = {"height": SIDE, "width": SIDE}

LLAVA_TEMPLATE = (  # llava-hf/llava-1.5-7b-hf
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
ONEVISION_TEMPLATE = (  # llava-hf/llava-onevision-qwen2-0.5b-ov-hf
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}{{ '<video>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ '\n' + content['text'] }}"
    "{% endfor %}{{'<|im_end|>'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMOLVLM_TEMPLATE = (  # HuggingFaceTB/SmolVLM-Instruct
    "<|im_start|>{% for message in messages %}{{message['role'].capitalize()}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
GEMMA_TEMPLATE = (  # google/gemma-3-4b-it, without its checks of roles
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' }}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<start_of_image>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}{{ '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
INTERNVL_TEMPLATE = (  # OpenGVLab/InternVL3-1B-hf
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif content['type'] == 'video' %}{{ '<video>\n' }}"
    "{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}{{'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
QWEN_TEMPLATE = (  # Qwen/Qwen3-VL-4B-Instruct, what a single user turn needs of it
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% for content in message.content %}"
    "{% if content.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ content.text }}{% endif %}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT_TEMPLATE = (  # HuggingFaceTB/SmolLM2-135M-Instruct, a language model: content is one string
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer_with(*special: str, **named: str) -> Any:
    """Return the tokenizer with more special tokens, some of them under a name."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny.qwen_tokenizer().backend_tokenizer,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=named,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [*tiny.SPECIAL, *special]})
    return tokenizer


def _ids(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _vision(**changes: Any) -> dict[str, Any]:
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {**shape, "image_size": SIDE, "patch_size": 14, **changes}


def _save(model: Any, processor: Any, folder: Path) -> Path:
    tiny.loud(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_llava(folder: Path, template: str | None = LLAVA_TEMPLATE, context: int = 4096) -> Path:
    """Save a tiny LLaVA: CLIP, a projector and Llama; 4 tokens a frame, images alone."""
    import torch
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    torch.manual_seed(0)
    tokenizer = tokenizer_with("<image>")
    text = {"model_type": "llama", **_TEXT, **_ids(tokenizer), "max_position_embeddings": context}
    vision = {"model_type": "clip_vision_model", **_vision()}
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=image)
    images = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=_SIZE)
    processor = LlavaProcessor(
        images,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    )
    return _save(LlavaForConditionalGeneration(config), processor, folder)


def save_onevision(folder: Path) -> Path:
    """Save a tiny LLaVA-OneVision: SigLIP and Qwen2; images or video."""
    import torch
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessorPil,
        LlavaOnevisionProcessor,
    )

    torch.manual_seed(0)
    tokenizer = tokenizer_with("<image>", "<video>")
    text = {"model_type": "qwen2", **_TEXT, **_ids(tokenizer)}
    config = LlavaOnevisionConfig(
        text_config=text,
        vision_config={"model_type": "siglip_vision_model", **_vision()},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[SIDE, SIDE]],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        vision_aspect_ratio="anyres_max_9",
    )
    images = LlavaOnevisionImageProcessorPil(size=_SIZE, image_grid_pinpoints=[[SIDE, SIDE]])
    settings = {"num_image_tokens": 4, "vision_feature_select_strategy": "full"}
    settings["processor_class"] = LlavaOnevisionProcessor.__name__
    _save_parts((images, tokenizer), settings, ONEVISION_TEMPLATE, folder)
    return _save(LlavaOnevisionForConditionalGeneration(config), tokenizer, folder)


def save_idefics3(folder: Path) -> Path:
    """Save a tiny Idefics3, the class of the first SmolVLM: images alone, in tiles where they are asked for."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
    )

    torch.manual_seed(0)
    tokenizer = _smol_tokenizer()
    config = Idefics3Config(**_smol_config(tokenizer))
    images = Idefics3ImageProcessorPil(size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE})
    processor = Idefics3Processor(images, tokenizer, image_seq_len=1, chat_template=SMOLVLM_TEMPLATE)
    return _save(Idefics3ForConditionalGeneration(config), processor, folder)


def save_smolvlm(folder: Path) -> Path:
    """Save a tiny SmolVLM 2; its processor needs torchvision and num2words."""
    import torch
    from transformers import (
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
        SmolVLMImageProcessorPil,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    torch.manual_seed(0)
    tokenizer = _smol_tokenizer()
    config = SmolVLMConfig(**_smol_config(tokenizer))
    edges = {"size": {"longest_edge": SIDE}, "max_image_size": {"longest_edge": SIDE}}
    images, videos = SmolVLMImageProcessorPil(**edges), SmolVLMVideoProcessor(**edges)
    processor = SmolVLMProcessor(images, tokenizer, videos, image_seq_len=1, chat_template=SMOLVLM_TEMPLATE)
    return _save(SmolVLMForConditionalGeneration(config), processor, folder)


def _smol_tokenizer() -> Any:
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 3) for column in range(1, 3)]
    marks = ("<fake_token_around_image>", "<image>", "<video>", "<global-img>", "<end_of_utterance>")
    return tokenizer_with(*marks, *tiles)


def _smol_config(tokenizer: Any) -> dict[str, Any]:
    return {
        "text_config": {"model_type": "llama", **_TEXT, **_ids(tokenizer)},
        "vision_config": _vision(),
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"),
        "scale_factor": 2,
    }


def save_gemma3(folder: Path) -> Path:
    """Save a tiny Gemma 3: SigLIP and Gemma, tokens of an image see each other; images alone."""
    import torch
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessorPil, Gemma3Processor

    torch.manual_seed(0)
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = tokenizer_with("<start_of_turn>", "<end_of_turn>", **named)
    ids = {key: tokenizer.convert_tokens_to_ids(name) for key, name in named.items()}
    window = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention", "full_attention"]}
    config = Gemma3Config(
        text_config={**_TEXT, **_ids(tokenizer), **window, "query_pre_attn_scalar": 16},
        vision_config={"model_type": "siglip_vision_model", **_vision(image_size=56)},
        mm_tokens_per_image=4,
        boi_token_index=ids["boi_token"],
        eoi_token_index=ids["eoi_token"],
        image_token_index=ids["image_token"],
    )
    images = Gemma3ImageProcessorPil(size={"height": 56, "width": 56})
    processor = Gemma3Processor(images, tokenizer, image_seq_length=4, chat_template=GEMMA_TEMPLATE)
    model = Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight, std=0.02)  # zeros hide images
    return _save(model, processor, folder)


def save_paligemma(folder: Path) -> Path:
    """Save a tiny PaliGemma, which has no chat template and whose processor ends each prompt with a line of its own."""
    import torch
    from transformers import (
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessorPil,
    )

    torch.manual_seed(0)
    tokenizer = tokenizer_with("<image>")
    config = PaliGemmaConfig(
        text_config={"model_type": "gemma", **_TEXT, **_ids(tokenizer)},
        vision_config={"model_type": "siglip_vision_model", **_vision(vision_use_head=False)},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=64,
    )
    images = SiglipImageProcessorPil(size=_SIZE, image_seq_length=4)
    return _save(PaliGemmaForConditionalGeneration(config), PaliGemmaProcessor(images, tokenizer), folder)


def save_internvl(folder: Path) -> Path:
    """Save a tiny InternVL: images, in tiles where they are asked for, or video."""
    import torch
    from transformers import (
        GotOcr2ImageProcessorPil,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
    )

    torch.manual_seed(0)
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = tokenizer_with(**named)
    config = InternVLConfig(
        text_config={"model_type": "qwen2", **_TEXT, **_ids(tokenizer)},
        vision_config=_vision(image_size=[SIDE, SIDE], patch_size=[14, 14]),
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=1,
        downsample_ratio=0.5,
    )
    images = GotOcr2ImageProcessorPil(size=_SIZE, crop_to_patches=True)
    settings = {"processor_class": InternVLProcessor.__name__, "image_seq_length": 1}
    _save_parts((images, tokenizer), settings, INTERNVL_TEMPLATE, folder)
    return _save(InternVLForConditionalGeneration(config), tokenizer, folder)


def save_ovis2(folder: Path) -> Path:
    """Save a tiny Ovis2, whose tower gives features of its indicator tokens beside those of the images."""
    import torch
    from transformers import Ovis2Config, Ovis2ForConditionalGeneration, Ovis2ImageProcessorPil, Ovis2Processor

    torch.manual_seed(0)
    marks = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    tokenizer = tokenizer_with("<image>", "<IMG_ATOM>", *marks)
    config = Ovis2Config(
        text_config={"model_type": "qwen2", **_TEXT, **_ids(tokenizer)},
        vision_config=_vision(vocab_size=40, num_visual_indicator_tokens=5),
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_ATOM>"),
        visual_indicator_token_ids=tokenizer.convert_tokens_to_ids(list(marks)),
        vocab_size=len(tokenizer),
        hidden_size=64,
    )
    images = Ovis2ImageProcessorPil(size=_SIZE, crop_to_patches=False)
    processor = Ovis2Processor(images, tokenizer, image_seq_length=4, chat_template=LLAVA_TEMPLATE)
    return _save(Ovis2ForConditionalGeneration(config), processor, folder)


def save_blip2(folder: Path) -> Path:
    """Save a tiny BLIP-2 with a decoder; its processor puts one image before a prompt, whatever stands in the text."""
    import torch
    from transformers import Blip2Config, Blip2ForConditionalGeneration, Blip2Processor, BlipImageProcessorPil

    torch.manual_seed(0)
    tokenizer = tokenizer_with()
    images = BlipImageProcessorPil(size=_SIZE)
    processor = Blip2Processor(images, tokenizer, num_query_tokens=4)  # it adds its image token to the tokenizer
    shape = {key: value for key, value in _vision().items() if key not in ("image_size", "patch_size")}
    config = Blip2Config(
        vision_config=_vision(),
        qformer_config={**shape, "encoder_hidden_size": 32, "vocab_size": 100},
        text_config={"model_type": "opt", **_ids(tokenizer), "hidden_size": 64, "word_embed_proj_dim": 64}
        | {"ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 2048},
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return _save(Blip2ForConditionalGeneration(config), processor, folder)


def save_llama4(folder: Path) -> Path:
    """Save a tiny Llama 4, whose tower gives no pooled features; its image processor needs torchvision."""
    import torch
    from transformers import Llama4Config, Llama4ForConditionalGeneration, Llama4ImageProcessor, Llama4Processor

    torch.manual_seed(0)
    marks = ("<|image_start|>", "<|image_end|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>")
    tokenizer = tokenizer_with("<|image|>", *marks)
    projector = {"vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64}
    experts = {"intermediate_size_mlp": 96, "num_local_experts": 2, "attention_chunk_size": 4096}
    config = Llama4Config(
        text_config={**_TEXT, **_ids(tokenizer), **experts},
        vision_config=_vision(image_size=56, intermediate_size=128, **projector),
        image_token_index=tokenizer.convert_tokens_to_ids("<|patch|>"),
        boi_token_index=tokenizer.convert_tokens_to_ids("<|image_start|>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<|image_end|>"),
    )
    images = Llama4ImageProcessor(size={"height": 56, "width": 56}, max_patches=1)
    template = LLAVA_TEMPLATE.replace("<image>", "<|image|>")
    processor = Llama4Processor(images, tokenizer, chat_template=template)
    return _save(Llama4ForConditionalGeneration(config), processor, folder)


def save_qwen(save: Callable[[Path], Path], processor: str, patch_size: int, folder: Path) -> Path:
    """Save a tiny Qwen-VL with its processor, which the fast path does without."""
    import transformers

    save(folder)
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=patch_size, min_pixels=4 * patch_size**2, max_pixels=24 * patch_size**2
    )
    return _save_parts((images, tiny.qwen_tokenizer()), {"processor_class": processor}, QWEN_TEMPLATE, folder)


def _save_parts(parts: tuple[Any, ...], settings: dict[str, Any], template: str, folder: Path) -> Path:
    """Save what a processor is loaded from, where one with a part for videos cannot be made without torchvision."""
    for part in parts:
        part.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(template)
    return folder


SAVE: dict[str, Callable[[Path], Path]] = {
    "llava": save_llava,
    "llava_onevision": save_onevision,
    "idefics3": save_idefics3,
    "gemma3": save_gemma3,
    "internvl": save_internvl,
    "qwen2_5_vl": lambda folder: save_qwen(tiny.save_qwen25, "Qwen2_5_VLProcessor", 14, folder),
    "qwen3_vl": lambda folder: save_qwen(tiny.save_qwen3, "Qwen3VLProcessor", 16, folder),
}
