"""Tiny encoders as folders: DINOv2, TinyViT and BERT with random weights, for projected pairs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

TEXT = (
    "push pull the red green blue yellow white block cup lid drawer open close to left right up down slide move it "
    "please robot arm now and then a of"
)


def save_dinov2(folder: Path) -> Path:
    """Save a DINOv2 for frames of 32 pixels."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(1)
    config = Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, patch_size=8, image_size=32
    )
    Dinov2Model(config).save_pretrained(folder)
    return folder


def save_tiny_vit(folder: Path) -> Path:
    """Save a TinyViT for frames of 32 pixels."""
    import torch
    from safetensors.torch import save_file

    from rewardlab.models.projected_pair import TinyVit, TinyVitConfig

    torch.manual_seed(2)
    config = TinyVitConfig(widths=(8, 12, 16), depths=(1, 1, 1), heads=(2, 2), windows=(2, 1), hidden_size=16)
    folder.mkdir(parents=True)
    save_file(TinyVit(config).state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    return folder


def save_bert(folder: Path) -> Path:
    """Save a BERT with a tokenizer of whole words."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    tokenizer = word_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=20,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=128,
    )
    model = BertModel(config)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(20)  # so that words differ
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def word_tokenizer() -> Any:
    """Return a tokenizer of whole words in lower case."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(("[PAD]", "[UNK]", *dict.fromkeys(TEXT.split())))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")
