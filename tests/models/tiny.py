"""Tiny real models made from configs, with a real tokenizer, so that tests need no hub and no weights."""

from pathlib import Path
from typing import Any

from rewardlab.models.protocols import roboreward_prompt
from rewardlab.models.protocols.gvl import gvl_frame, gvl_opening, gvl_question
from rewardlab.models.protocols.topreward import TOPREWARD_ANSWER, TOPREWARD_CLAIM, topreward_question

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CORPUS = [  # each often enough to become whole words, so that prompts have about as many tokens as in Qwen's vocabulary
    roboreward_prompt("put the red cup on the plate, open the drawer, close the window, push the green block left"),
    gvl_opening("the task") + gvl_question("the task") + gvl_frame(1),
    TOPREWARD_CLAIM + topreward_question("fold the towel") + TOPREWARD_ANSWER + " False",
    "<0.5 seconds> user assistant system You are a helpful assistant. ANSWER: 1 2 3 4 5",
] * 4


def qwen_tokenizer() -> Any:
    """Return a byte-level BPE tokenizer that splits digits like Qwen's, with Qwen's special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    # the splitting rule of Qwen: single digits, words with their leading space, marks, blanks
    rule = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rule), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    return tokenizer


def _token_ids(tokenizer: Any) -> dict[str, int]:
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    keys = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return {key: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for key, name in zip(keys, names, strict=True)}


def qwen3_config(tokenizer: Any, text: dict[str, Any], vision: dict[str, Any]) -> Any:
    """Return a Qwen3-VL config of this shape for this tokenizer."""
    from transformers import Qwen3VLConfig

    head = text["head_dim"] // 2
    side = head // 3
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [head - 2 * side, side, side]}
    rope["mrope_interleaved"] = True
    text = {"vocab_size": len(tokenizer), "rope_parameters": rope, **text}
    vision = {"out_hidden_size": text["hidden_size"], **vision}
    return Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **_token_ids(tokenizer))


TINY_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
TINY_VISION_3 = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 16,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
}


def save_qwen3(folder: Path) -> Path:
    """Save a tiny Qwen3-VL with its tokenizer."""
    import torch
    from transformers import Qwen3VLForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    config = qwen3_config(tokenizer, TINY_TEXT, TINY_VISION_3)
    return _save(Qwen3VLForConditionalGeneration(config), tokenizer, folder)


def save_qwen25(folder: Path) -> Path:
    """Save a tiny Qwen2.5-VL, with windows smaller than a frame, and its tokenizer."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}
    text = {k: v for k, v in TINY_TEXT.items() if k != "head_dim"} | {
        "vocab_size": len(tokenizer),
        "rope_parameters": rope,
    }
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "window_size": 56,
        "tokens_per_second": 2,
    }
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **_token_ids(tokenizer))
    return _save(Qwen2_5_VLForConditionalGeneration(config), tokenizer, folder)


def _contrastive_shapes(tokenizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**shape, "vocab_size": len(tokenizer), "max_position_embeddings": 32, "projection_size": 32}
    marks = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": 0}
    return text | marks, {**shape, "image_size": 32, "patch_size": 16}


def save_clip(folder: Path) -> Path:
    """Save a tiny CLIP with its image processor and a tokenizer that ends each text, where CLIP reads it."""
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    end = (tokenizer.eos_token, tokenizer.eos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    text, vision = _contrastive_shapes(tokenizer)
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return _save(CLIPModel(config), tokenizer, folder)


def save_siglip(folder: Path) -> Path:
    """Save a tiny SigLIP 2 of fixed resolution, which is a SigLIP to transformers."""
    import torch
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel

    torch.manual_seed(0)
    tokenizer = qwen_tokenizer()
    text, vision = _contrastive_shapes(tokenizer)
    config = SiglipConfig(text_config=text, vision_config=vision)
    SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return _save(SiglipModel(config), tokenizer, folder)


def _save(model: Any, tokenizer: Any, folder: Path) -> Path:
    loud(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def loud(model: Any) -> None:
    """Make the random weights big enough for the width, so that the answer depends visibly on video and text."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(50 / model.config.text_config.hidden_size**0.5)
