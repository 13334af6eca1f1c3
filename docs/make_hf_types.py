"""Write docs/reference/hf_types.md: every image-text-to-text type of transformers, and what `hf:` does with it.

python docs/make_hf_types.py [TYPE ...]   with types, only their rows are made again

Each type is tried in a forked process with a limit of processor seconds: a tiny model with random weights is built,
saved and asked about clips. Some tiny models are written by hand in tests/models/tiny_vlms.py; the others come from
the defaults of the type's config and processor with every size made small.
"""

import inspect
import json
import os
import re
import resource
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import tiny_vlms  # noqa: E402

from rewardlab.core.episode import episode_from_frames  # noqa: E402
from rewardlab.core.errors import RewardlabError  # noqa: E402
from rewardlab.core.trial import Score  # noqa: E402
from rewardlab.models import name_model  # noqa: E402

PAGE = Path(__file__).parent / "reference" / "hf_types.md"
CPU_SECONDS = 90  # for one type
MAX_PARAMETERS = 6_000_000
MODELS: dict[str, Callable[[Path], Path]] = {
    **tiny_vlms.SAVE,
    "blip-2": tiny_vlms.save_blip2,
    "llama4": tiny_vlms.save_llama4,
    "ovis2": tiny_vlms.save_ovis2,
    "paligemma": tiny_vlms.save_paligemma,
    "smolvlm": tiny_vlms.save_smolvlm,
}
REFUSALS = (
    "is an encoder-decoder",
    "needs torchvision",
    "has no image token",
    "no processor of images",
    "image tokens for two images and",
    "token by token",
    "at most one image",
    "Nested images",
)
Outcome = tuple[str, str]  # runs, refused, fails or not tried, and why


class CannotBuildError(Exception):
    """No tiny model of this type could be made."""


# A tiny config: the defaults of the type, every size by the name of its field.

SIDE, PATCH, WIDTH, HEADS, LAYERS = 56, 14, 64, 2, 2
SIZES: tuple[tuple[str, int], ...] = (  # the first pattern that matches a whole name
    (r"(index|linear|linear_key|linear_value|swa|mamba|global)?_?head_dim|v_head_dim|qk_head_dim|d_kv", WIDTH // HEADS),
    (r"merged_hidden_size", 4 * WIDTH),
    (r"patch_embed_hidden_size|patch_dim", 3 * PATCH * PATCH),
    (r"resampler_(head_dim|dim_head)|rotary_dim", WIDTH // HEADS),
    (r"qk_(nope|rope)_head_dim", WIDTH // HEADS // 2),
    (r".*(hidden_size|hidden_dim|d_model|embed_dim|_proj_dim|projection_dim)|hidden_size_per_layer_input", WIDTH),
    (r"(projector|adapter|vision)_(in|out|input|output)_(dim|size)|(adapter_(in|out)|output|image_embed)_dim", WIDTH),
    (r".*intermediate_size(_mlp)?|.*ffn_dim|d_ff|mlp_dim|share_expert_dim", 2 * WIDTH),
    (r"adapter_input_size|output_channels|pooler_output_size", WIDTH),
    (r"(kv|q)_lora_rank|hc_lowrank|laurel_rank", 16),
    (r"(num_|n_|conf_num_|encoder_|decoder_)?(hidden_|encoder_|decoder_)?layers|n_layer|.*depth", LAYERS),
    (r"num_global_layers|aligner_num_add_layers|max_window_layers", LAYERS),
    (r".*(attention_heads|num_heads|n_heads|resampler_heads|_key_heads|_value_heads)", HEADS),
    (r"(num|n)(_local|_routed)?_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_topk|moe_k", 2),
    (r"(n|topk)_groups?", 1),
    (r"index_topk", 4096),
    (r"image_size|resolution|vision_image_size", SIDE),
    (r"patch_size", PATCH),
    (r"num_position_embeddings|num_patches", (SIDE // PATCH) ** 2),
    (r"pos_emb_(height|width)|posemb_grid_size", SIDE // PATCH),
    (r"mm_tokens_per_image|num_query_tokens|(resampler_)?(n|num)_latents|query_num|latent_query_num", 4),
    (r"position_embedding_size|max_num_patches", 1024),
    (r"base_channels|latent_channels", 32),
    (r"num_embeddings|codebook_size", 64),
    (r"alignment_intermediate_size|downsample_hidden_size", WIDTH),
)
LAYER_INDICES = (
    r".*(visual_indexes|block_indexes|attn_indexes|layers_indices|attention_layers|feature_layer|target_layers)"
)


def shrink(config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Return the settings of a config with every size made small; sub-configs likewise."""
    made: dict[str, Any] = {}
    layers = max((int(config.get(name) or 0) for name in ("num_hidden_layers", "depth", "encoder_layers")), default=0)
    many = config.get("num_attention_heads")
    types = config.get("layer_types") or []
    full = next((number for number, each in enumerate(types) if each != types[0]), -1)
    for name, value in config.items():
        if name in ("id2label", "label2id", "architectures", "transformers_version"):
            continue
        if name == "per_layer_config" and value:
            made[name] = {LAYERS - 1: shrink(list(value.values())[-1], vocabulary)}
        elif isinstance(value, Mapping) and not all(isinstance(each, str) for each in value):
            made[name] = value
        elif isinstance(value, Mapping):
            made[name] = small_rope(value) if name.startswith("rope_") else shrink(value, vocabulary)
        elif isinstance(value, list):
            made[name] = small_list(name, value, layers, full)
        elif name == "head_dim" and value is None:
            made[name] = WIDTH // HEADS
        elif isinstance(value, bool) or not isinstance(value, int):
            made[name] = value
        elif name.endswith("num_key_value_heads"):
            made[name] = HEADS if value == many else min(value, HEADS // 2)
        elif re.fullmatch(r"(unpadded_)?vocab_size(_per_layer_input)?", name):
            made[name] = vocabulary
        elif re.fullmatch(r"max_position_embeddings|seq_len", name):
            made[name] = min(max(value, 2048), 4096)
        elif name == "head_dim" and value == config.get("qk_rope_head_dim"):
            made[name] = WIDTH // HEADS // 2
        elif name == "first_k_dense_replace":
            made[name] = min(value, 1)
        elif name == "num_kv_shared_layers":
            made[name] = 0
        else:
            made[name] = next((size for pattern, size in SIZES if value and re.fullmatch(pattern, name)), value)
    return made


def small_rope(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of rotary positions for heads of this size; sections of time, height and width fill them."""
    half = int(WIDTH // HEADS * float(rope.get("partial_rotary_factor") or 1)) // 2
    made = {name: small_rope(value) if isinstance(value, Mapping) else value for name, value in rope.items()}
    if "rope_theta" in made:
        made["mrope_section"] = [half - 2 * (half // 4), half // 4, half // 4]
    return made


def small_list(name: str, value: Sequence[Any], layers: int, full: int) -> Any:
    """Return a list for this many layers: what stands for each layer, or which layers are meant."""
    if re.fullmatch(LAYER_INDICES, name) and all(isinstance(each, int) for each in value):
        return sorted({min(each, LAYERS - 1) if each >= 0 else max(each, -LAYERS) for each in value}) or []
    if layers and len(value) == layers:
        return [value[0], value[full]][:LAYERS]
    if name in ("patch_size", "image_size"):
        return [PATCH if name == "patch_size" else SIDE] * len(value)
    if name == "image_grid_pinpoints":
        return [[SIDE, SIDE]]
    if name == "downsample_channels":
        return [WIDTH] * len(value)
    return list(value)


def tiny_config(kind: str, tokenizer: Any) -> Any:
    """Return the default config of a type with small sizes; CannotBuildError where it has no defaults or refuses."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        default = CONFIG_MAPPING[kind]()
    except Exception as error:  # a config may raise anything
        raise CannotBuildError(f"its config has no defaults: {first_line(error)}") from error
    settings = default.to_dict()
    if "vision_config" in default.sub_configs and settings.get("vision_config") is None:
        settings["vision_config"] = default.sub_configs["vision_config"]().to_dict()
    settings = shrink(settings, len(tokenizer))
    for path, value in SETTINGS.get(kind, {}).items():
        *within, name = path.split(".")
        found = settings
        for each in within:
            found = found[each]
        found[name] = value
    try:
        return type(default).from_dict(settings)
    except Exception as error:
        raise CannotBuildError(f"its config refuses small sizes: {first_line(error)}") from error


# What a type needs beside the rule, by the path of the setting.
SETTINGS: dict[str, dict[str, Any]] = {
    "mllama": {"vision_config.vision_output_dim": 2 * WIDTH},
    "mistral_large4": {"text_config.kv_source_layers": [0, 1]},
    "deepseek_ocr2": {"text_config.mlp_layer_types": ["dense", "sparse"]},
    "qwen4_exp": {
        "text_config.indexer_n_heads": HEADS,
        "text_config.indexer_kv_heads": 1,
        "text_config.indexer_head_dim": WIDTH // HEADS,
        "text_config.indexer_budget": 4096,
        "text_config.indexer_compress_ratio": 4,
    },
    "granite4_vision": {
        "deepstack_layer_map": [[0, 0], [1, 1]],
        "spatial_target_layers": [],
        "downsample_rate": "1/2",
    },
    "muse_glimmer": {"out_hidden_size": 4 * WIDTH},
    "step3p7": {"text_config.sliding_window": 64},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 0},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 0},
}
IMAGE_SETTINGS: dict[str, dict[str, Any]] = {"cohere2_vision": {"patch_size": SIDE // PATCH // 2}}
PROCESSORS: dict[str, str] = {  # of types for which transformers maps none: those of their published checkpoints
    "cosmos3_omni": "Qwen3VLProcessor",
    "fast_vlm": "LlavaProcessor",
    "glm_ocr": "Glm46VProcessor",
    "glmga": "Glm46VProcessor",
    "kosmos-2": "Kosmos2Processor",
    "kosmos-2.5": "Kosmos2_5Processor",
    "qwen2_5_omni_thinker": "Qwen2_5OmniProcessor",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeProcessor",
}


# A tiny processor: the type's own class and parts, and the tiny tokenizer with the tokens that its code names.


def processor_class(kind: str) -> Any:
    """Return the class of a type's processor."""
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    name = PROCESSOR_MAPPING_NAMES.get(kind) or PROCESSORS.get(kind)
    if not name or not hasattr(transformers, name):
        raise CannotBuildError("transformers names no processor for it")
    return getattr(transformers, name)


def part_class(kind: str, part: str, known: Any) -> Any:
    """Return the class of a part of a processor: that of the type, or of another type with this processor."""
    import transformers
    from transformers.models.auto import (
        feature_extraction_auto,
        image_processing_auto,
        processing_auto,
        video_processing_auto,
    )

    maps: dict[str, Mapping[str, Any]] = {
        "image_processor": image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES,
        "video_processor": video_processing_auto.VIDEO_PROCESSOR_MAPPING_NAMES,
        "feature_extractor": feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING_NAMES,
    }
    if part not in maps:
        raise CannotBuildError(f"its processor has a {part}")
    others = [each for each, name in processing_auto.PROCESSOR_MAPPING_NAMES.items() if name == known.__name__]
    for each in (kind, *others):
        found = maps[part].get(each)
        name = (found.get("pil") or found.get("torchvision")) if isinstance(found, Mapping) else found
        if name:
            return getattr(transformers, name)
    raise CannotBuildError(f"transformers names no {part} for it")


def small_part(part: Any, more: Mapping[str, Any]) -> Any:
    """Return an image or video processor like this one for small images."""
    settings: dict[str, Any] = {}
    for name, value in part.to_dict().items():
        if name.endswith("size") and name != "patch_size" and isinstance(value, Mapping):
            settings[name] = {side: small_side(side, number) for side, number in value.items()}
        elif name == "draw_on_frames":
            settings[name] = False
        elif name in ("size", "max_image_size", "min_image_size", "image_size") and isinstance(value, int):
            settings[name] = SIDE
        elif name in ("patch_size", "encoder_patch_size") and isinstance(value, int):
            settings[name] = PATCH
        elif name == "patch_size" and isinstance(value, Mapping):
            settings[name] = {"height": PATCH, "width": PATCH}
        elif name == "image_grid_pinpoints":
            settings[name] = [[SIDE, SIDE]]
        elif name in ("min_pixels", "max_pixels") and isinstance(value, int):
            settings[name] = SIDE * SIDE
    return type(part)(**settings | more)


def small_side(name: str, number: Any) -> Any:
    """Return a side of an image, or, where the default is too large for one, a number of pixels."""
    if not isinstance(number, int):
        return number
    return SIDE if number < 5000 and "pixels" not in name else SIDE * SIDE


def special_tokens(known: Any) -> tuple[list[str], dict[str, str]]:
    """Return the special tokens in the code of a processor, and those it reads off its tokenizer by name."""
    code = "\n".join(
        inspect.getsource(sys.modules[each.__module__])
        for each in known.__mro__[:-1]
        if "processing_" in each.__module__ and "processing_utils" not in each.__module__
    )
    written = re.findall(r"""["'](<[^"'\s<>{}]{1,40}>|\|[A-Z_]{2,20}\||\[[A-Z_]{2,20}\])["']""", code)
    written = [
        token for token in dict.fromkeys(written) if not token.startswith("</s") and token not in ("<s>", "<pad>")
    ]
    read = set(re.findall(r"tokenizer\.(\w+_token)(?:_id)?\b", code))
    guarded = set(re.findall(r"attr\(\s*(?:self\.)?tokenizer,\s*[\"'](\w+_token)(?:_id)?[\"']", code))
    named = {
        name: f"<|{name.removesuffix('_token')}|>"
        for name in sorted((read - guarded) | (guarded & {"audio_token", "boa_token", "eoa_token"}))
        if name.removesuffix("_token") not in ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "add_bos", "add_eos")
    }
    return written, named


TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' }}{% for each in message['content'] %}"
    "{% if each['type'] == 'image' %}{{ 'IMAGE\n' }}{% elif each['type'] == 'text' %}{{ each['text'] }}{% endif %}"
    "{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


IMAGES = {"hunyuan_vl": "<|image_start|><|image|><|image_end|>"}  # of a processor that takes its image token so alone


def tiny_processors(kind: str) -> Iterator[Any]:
    """Yield processors of a type that differ in the number of tokens for an image, where that is a setting."""
    known = processor_class(kind)
    written, named = special_tokens(known)
    parts: dict[str, Any] = {}
    for part in known.get_attributes():
        if part != "tokenizer" and part.endswith("tokenizer"):
            parts[part] = tiny_vlms.tokenizer_with()
        elif part != "tokenizer":
            made = part_class(kind, part, known)()
            parts[part] = small_part(made, IMAGE_SETTINGS.get(kind, {})) if part != "feature_extractor" else made
    taken = inspect.signature(known.__init__).parameters
    settings: dict[str, Any] = {name: value for name, value in PROCESSOR_SETTINGS.items() if name in taken}
    counted = [
        name
        for name in taken
        if re.fullmatch(
            r".*(image_seq_len(gth)?|num_image_tokens|num_query_tokens|image_tokens_per_image)|num_patches_per_image",
            name,
        )
    ]
    strategies = ("full", "default") if "vision_feature_select_strategy" in taken else ("",)
    for count, strategy in product((4, 16, 1, 17, 5) if counted else (0,), strategies):
        if strategy:
            settings["vision_feature_select_strategy"] = strategy
        tokenizer = tiny_vlms.tokenizer_with(*written, **named)
        processor = known(**parts, tokenizer=tokenizer, **settings, **dict.fromkeys(counted, count))
        image = str(vars(processor).get("image_token") or "<image>")
        around = [
            each for each in ("<|vision_start|>", "<|vision_end|>") if "vision_start" in " ".join([*written, *named])
        ]
        if around:
            image = around[0] + image + around[1]
        image = IMAGES.get(kind, image)
        processor.chat_template = TEMPLATE.replace("IMAGE", image)
        yield processor


PROCESSOR_SETTINGS = {
    "patch_size": PATCH,
    "img_size": SIDE,
    "image_size": SIDE,
    "downsample_factor": 2,
    "spatial_merge_size": 2,
}


def name_tokens(settings: Any, processor: Any, spare: Iterator[int]) -> None:
    """Give every token id of a config that of the processor's token of this name, or one that nothing uses."""
    tokenizer = processor.tokenizer
    for name, value in settings.to_dict().items():
        if not isinstance(name, str):
            continue
        if isinstance(value, Mapping) and name.endswith("_config") and getattr(settings, name, None) is not None:
            if hasattr(getattr(settings, name), "to_dict"):
                name_tokens(getattr(settings, name), processor, spare)
            continue
        found = re.fullmatch(r"(\w+?)_(?:token_)?(?:id|index)", name)
        if not found or (value is not None and not isinstance(value, int)):
            continue
        stem = found[1]
        if stem in ("bos", "eos", "pad"):
            setattr(settings, name, getattr(tokenizer, f"{stem}_token_id"))
        elif name.endswith(("token_id", "token_index")) and (value is not None or stem in ("image", "video")):
            mine = vars(processor).get(f"{stem}_token_id")
            token = vars(processor).get(f"{stem}_token") or vars(tokenizer).get(f"{stem}_token")
            if token is None:
                token = dict(tokenizer.special_tokens_map).get(f"{stem}_token")
            if not isinstance(mine, int):
                mine = tokenizer.convert_tokens_to_ids(str(token)) if token is not None else None
            setattr(settings, name, mine if isinstance(mine, int) else next(spare))


def images_and_text(processor: Any, count: int) -> Any:
    """Return what the library itself makes of a prompt with so many different images."""
    from PIL.Image import fromarray

    random = np.random.default_rng(count)
    content = [{"type": "image"} for _ in range(count)] + [{"type": "text", "text": "open the drawer"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    images = [fromarray(random.integers(0, 255, (40, 40, 3), np.uint8)) for _ in range(count)]
    return processor(text=[text], images=[images] if count > 1 else images, return_tensors="pt", padding=True)


def save_any(kind: str, folder: Path) -> Path:
    """Save a tiny model of a type, made from its defaults, that the library itself can ask about images."""
    import torch
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    if CONFIG_MAPPING[kind]().is_encoder_decoder:
        raise CannotBuildError("an encoder-decoder")
    reasons: list[str] = []
    for processor in tiny_processors(kind):
        spare = iter(range(300, 1000))
        config = tiny_config(kind, processor.tokenizer)
        name_tokens(config, processor, spare)
        config.save_pretrained(folder)
        processor.save_pretrained(folder)
        find_image_token(config, processor)
        with torch.device("meta"):
            number = sum(each.numel() for each in AutoModelForImageTextToText.from_config(config).parameters())
        if number > MAX_PARAMETERS:
            raise CannotBuildError(f"with small sizes it still has {number:,} parameters")
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config).eval()
        louden(model)
        model.save_pretrained(folder)
        try:
            with torch.inference_mode():
                model.generate(**images_and_text(processor, 2), max_new_tokens=1)
        except Exception as error:  # a library's own failure is not ours
            reasons.append(describe(error))
            if not asks_about_one(model, processor):
                continue
        return folder
    raise CannotBuildError(reasons[0])


def asks_about_one(model: Any, processor: Any) -> bool:
    """Tell whether the library can ask the model about one image, if not about two."""
    import torch

    try:
        with torch.inference_mode():
            model.generate(**images_and_text(processor, 1), max_new_tokens=1)
    except Exception:
        return False
    return True


def find_image_token(config: Any, processor: Any) -> None:
    """Name as the image token the special token that images are mostly written with, where it is another."""
    name = next((each for each in ("image_token_id", "image_token_index") if hasattr(config, each)), "")
    try:
        ids = images_and_text(processor, 2)["input_ids"].flatten().tolist()
    except Exception:
        return
    special = Counter(each for each in ids if each in processor.tokenizer.added_tokens_decoder)
    if name and special and getattr(config, name) not in special:
        setattr(config, name, special.most_common(1)[0][0])


def louden(model: Any) -> None:
    """Make random weights large enough that answers depend on frames and text."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and parameter.is_floating_point():
                parameter.normal_(0, 2 / WIDTH**0.5)
            elif "gate" in name and not parameter.any():
                parameter.fill_(1)  # a gate that starts shut hides the frames


# Asking.


def ask_tiny(kind: str) -> Outcome:
    """Build a tiny model and ask it: every frame must count, and reuse must not."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "model"
        try:
            MODELS[kind](folder) if kind in MODELS else save_any(kind, folder)
        except CannotBuildError as error:
            refused = refusal(folder)
            return ("refused", refused) if refused else ("not tried", f"no tiny model could be made: {error}")
        except Exception as error:  # what a library raises of a config of its own is no answer of `hf:`
            refused = refusal(folder)
            return ("refused", refused) if refused else ("not tried", f"no tiny model could be made: {describe(error)}")
        return ask_folder(folder)


def refusal(folder: Path) -> str:
    """Return why `hf:` refuses what was saved of a checkpoint, if it is for a reason that weights do not change."""
    if not (folder / "config.json").is_file():
        return ""
    if not any(folder.glob("*.safetensors")):
        (folder / "model.safetensors").write_bytes(b"")
    try:
        name_model(f"hf:{folder}?frames=images").build()
    except RewardlabError as error:
        return without(folder, error) if any(words in str(error) for words in REFUSALS) else ""
    except Exception:
        return ""
    return ""


def without(folder: Path, error: object) -> str:
    return str(error).replace(f" of {folder}", "").replace(str(folder), "the checkpoint")


def ask_folder(folder: Path) -> Outcome:
    clip = np.random.default_rng(0).integers(0, 255, (3, 4, 4, 3), np.uint8).repeat(10, axis=1).repeat(10, axis=2)
    clips = [clip, *(np.concatenate([clip[:n], 255 - clip[n : n + 1], clip[n + 1 :]]) for n in range(3))]
    episodes = [episode_from_frames(frames, "open the drawer") for frames in clips]
    try:
        asked = [name_model(f"hf:{folder}?frames=images{more}").build() for more in ("", "&reuse=no")]
        given = [model.score(episodes) for model in asked]
    except RewardlabError as error:
        return "refused", without(folder, error)
    levels = [[answer.probabilities for answer in answers if isinstance(answer, Score)] for answers in given]
    if len(levels[0]) != len(clips) or len(levels[1]) != len(clips):
        return "refused", str(next(answer for answers in given for answer in answers if not isinstance(answer, Score)))
    if not np.isfinite(np.array(levels, float)).all():
        return "fails", "answers that are no numbers"
    if not np.allclose(np.array(levels[0], float), np.array(levels[1], float), atol=1e-4):
        return "fails", "answers with and without reuse differ"
    if any(levels[0][0] == other for other in levels[0][1:]):
        return "fails", "a changed frame leaves the answer as it was"
    return "runs", ""


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def ask(kind: str, question: Callable[[str], Outcome]) -> Outcome:
    """Return the answer to a question about a type, asked in a forked process of its own."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        try:
            outcome = question(kind)
        except BaseException as error:
            outcome = ("fails", describe(error))
        os.write(writable, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    if not said:
        return "not tried", f"it took more than {CPU_SECONDS} s of processor time"
    state, why = json.loads(said)
    return state, why


def needing_torchvision(kinds: Sequence[str]) -> list[str]:
    """Return the types whose processor `hf:` refuses to load without torchvision, asked where it cannot be imported."""
    code = "import sys; sys.modules['torchvision'] = None; import runpy; sys.argv = sys.argv[1:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, __file__, "--torchvision", *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def refused_without_torchvision(kind: str) -> Outcome:
    """Tell whether `hf:` refuses a type for want of torchvision, from a checkpoint of config and processor alone."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    with TemporaryDirectory() as name:
        folder = Path(name)
        tiny_vlms.tokenizer_with("<image>").save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        settings = {}
        images = IMAGE_PROCESSOR_MAPPING_NAMES.get(kind)
        if isinstance(images, Mapping):
            settings["image_processor_type"] = str(images.get("torchvision") or next(iter(images.values())))
        try:
            settings["processor_class"] = processor_class(kind).__name__
        except CannotBuildError:
            return "", ""
        (folder / "preprocessor_config.json").write_text(json.dumps(settings))
        return ("needs", "") if "needs torchvision" in refusal(folder) else ("", "")


def page(rows: Mapping[str, Outcome], torchvision: Sequence[str]) -> str:
    """Return the page: counts, what the words mean, and a row for each type."""
    import torch
    import transformers

    counts = Counter(state for state, _ in rows.values())
    counted = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    beside = "with" if find_spec("torchvision") else "without"
    versions = f"transformers {transformers.__version__} and torch {torch.__version__}, {beside} torchvision"
    lines = [
        "# Types of vision-language models in `hf:`",
        "",
        "Which types of vision-language models in transformers run in `hf:`, and why others do not.",
        "",
        "Written by `python docs/make_hf_types.py`; do not edit.",
        "",
        f"The {len(rows)} image-text-to-text types of {versions}: {counted}.",
        "",
        "- **runs**: a tiny model of the type, with random weights, scored clips shown as images. Each frame",
        "  counts, and the answers are the same with and without reuse. Published weights were not run.",
        "- **refused**: `hf:` refuses the type, for the reason on the right.",
        "- **fails**: the tiny model answers, and a frame does not count or reuse changes the answers.",
        "- **not tried**: no tiny model could be made. Models of the type may run.",
        "- **torchvision**: the type needs torchvision; without it `hf:` refuses.",
        "",
        "| type | `hf:` | needs | why |",
        "|---|---|---|---|",
    ]
    for kind, (state, why) in rows.items():
        needs = "torchvision" if kind in torchvision else ""
        lines.append(f"| `{kind}` | {state} | {needs} | {' '.join(why.split()).replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    import torch
    import transformers
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor  # noqa: F401  once, for all
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    kinds = [each for each in arguments if not each.startswith("-")]
    if "--torchvision" in arguments:
        print(*(kind for kind in kinds if ask(kind, refused_without_torchvision)[0] == "needs"))
        return
    every = sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    rows, torchvision = written_rows() if kinds else ({}, [])
    for kind in kinds or every:
        rows[kind] = ask(kind, ask_tiny)
        print(kind, *rows[kind], flush=True)
    torchvision = [each for each in torchvision if each not in kinds] + needing_torchvision(kinds or every)
    PAGE.write_text(page({kind: rows[kind] for kind in every}, torchvision), encoding="utf-8")


def written_rows() -> tuple[dict[str, Outcome], list[str]]:
    """Return the rows of the page, and which of its types need torchvision."""
    found = re.findall(
        r"^\| `(.+?)` \| (.+?) \| (\w*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    rows = {kind: (state, why.replace(chr(92) + "|", "|")) for kind, state, _, why in found}
    return rows, [kind for kind, _, needs, _ in found if needs]


if __name__ == "__main__":
    main(sys.argv[1:])
