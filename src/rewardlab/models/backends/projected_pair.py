"""A projected pair: an image and a sentence encoder that were trained apart, and projections into one space.

The folder holds both encoders as folders of their own, `config.json` with the shape of the projections, and these as
safetensors; nothing in it is run. `rewardlab train objective` writes such folders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rewardlab.core.bounded_json import read_json
from rewardlab.core.dataclass_json import record_from_json
from rewardlab.core.episode import Frames
from rewardlab.core.errors import ModelError
from rewardlab.models.backends.checkpoint import check_weights
from rewardlab.models.backends.tiny_vit import MODEL_TYPE as TINY_VIT
from rewardlab.models.backends.tiny_vit import TinyVit, TinyVitConfig

MODEL_TYPE = "rewardlab_projected_pair"
IMAGE_ENCODER, TEXT_ENCODER, WEIGHTS = "image_encoder", "text_encoder", "model.safetensors"
PROJECTIONS = "projections.safetensors"
IMAGE_TYPES, TEXT_TYPES = ("dinov2", TINY_VIT), ("bert",)
MAX_TOKENS = 128  # of an instruction
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, for every image encoder here
_MOST = 8192  # of any size in a config


@dataclass(frozen=True)
class PairConfig:
    """The side of a frame in pixels, the tokens on a side of its features, and the shape of the projections."""

    model_type: str
    pixels: int
    grid: int
    image_width: int
    text_width: int
    hidden: int
    width: int

    def __post_init__(self) -> None:
        numbers = (self.pixels, self.grid, self.image_width, self.text_width, self.hidden, self.width)
        if self.model_type != MODEL_TYPE or not all(0 < number <= _MOST for number in numbers) or self.grid > 64:
            raise ValueError(f"a {MODEL_TYPE} has sizes from 1 to {_MOST} and a grid up to 64")


class Projections(nn.Module):
    """What takes the features of both encoders into one space: two layers each; all that is trained."""

    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        tokens = config.grid**2 + 1
        self.image_norm = nn.LayerNorm(config.image_width)
        self.image1 = nn.Linear(tokens * config.image_width, config.hidden)
        self.image2 = nn.Linear(config.hidden, config.width)
        self.text_norm = nn.LayerNorm(config.text_width)
        self.text1 = nn.Linear(config.text_width, config.hidden)
        self.text2 = nn.Linear(config.hidden, config.width)

    def images(self, tokens: Tensor) -> Tensor:
        """Return one vector per frame from its tokens, (N, tokens, image width)."""
        inner = self.image1(self.image_norm(tokens.float()).flatten(1))
        vectors: Tensor = self.image2(nn.functional.gelu(inner))
        return vectors

    def texts(self, sentences: Tensor) -> Tensor:
        """Return one vector per sentence vector."""
        vectors: Tensor = self.text2(nn.functional.gelu(self.text1(self.text_norm(sentences.float()))))
        return vectors


class ProjectedPair:
    """Both encoders, frozen, and the projections."""

    def __init__(self, config: PairConfig, image_encoder: Any, text_encoder: Any, tokenizer: Any) -> None:
        self.config = config
        self.image_encoder = image_encoder.eval().requires_grad_(False)
        self.text_encoder = text_encoder.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.projections = Projections(config)

    @property
    def device(self) -> Any:
        """Return where it computes."""
        return next(self.projections.parameters()).device

    def to(self, device: str, dtype: Any) -> "ProjectedPair":
        """Move it to a device; the encoders compute in this type, the projections in full numbers."""
        for encoder in (self.image_encoder, self.text_encoder):
            encoder.to(device, dtype)
        self.projections.to(device)
        return self

    def image_features(self, frames: Sequence[Frames]) -> Tensor:
        """Return one vector per frame."""
        return self.projections.images(self.image_tokens(frames))

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Return one vector per text."""
        return self.projections.texts(self.sentence_vectors(texts))

    @torch.no_grad()
    def image_tokens(self, frames: Sequence[Frames]) -> Tensor:
        """Return the frozen features of frames: one token for the whole, then grid x grid of its parts."""
        dtype = next(self.image_encoder.parameters()).dtype
        pixels = self._pixels(np.stack(frames)).to(dtype)
        if isinstance(self.image_encoder, TinyVit):
            maps = self.image_encoder(pixels)
            whole = self.image_encoder.pooled(maps)
        else:
            states = self.image_encoder(pixels).last_hidden_state
            side = round((states.shape[1] - 1) ** 0.5)
            whole, maps = states[:, 0], states[:, 1:].transpose(1, 2).unflatten(2, (side, side))
        parts = nn.functional.adaptive_avg_pool2d(maps.float(), self.config.grid).flatten(2).transpose(1, 2)
        return torch.cat([whole.float()[:, None], parts], 1)

    def _pixels(self, frames: Frames) -> Tensor:
        x = torch.from_numpy(frames).to(self.device).permute(0, 3, 1, 2).float() / 255
        size = (self.config.pixels, self.config.pixels)
        if x.shape[2:] != size:
            x = nn.functional.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
        mean, std = (torch.tensor(values, device=x.device).view(1, 3, 1, 1) for values in (_MEAN, _STD))
        return (x - mean) / std

    @torch.no_grad()
    def sentence_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the frozen sentence vector of each text: the mean of its tokens' states."""
        tokens = self.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=MAX_TOKENS,
            split_special_tokens=True,
            return_tensors="pt",
        ).to(self.device)
        states = self.text_encoder(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None].float()
        return (states * mask).sum(1) / mask.sum(1)


def load_projected_pair(folder: Path, device: str, dtype: Any) -> ProjectedPair:
    """Return the pair in a folder; what does not fit its config is said."""
    pair = load_encoders(folder, read_pair_config(folder)).to(device, dtype)
    pair.projections.load_state_dict(_tensors(folder / PROJECTIONS))
    pair.projections.requires_grad_(False)
    return pair


def read_pair_config(folder: Path) -> PairConfig:
    """Return the checked config of a folder."""
    try:
        return record_from_json(PairConfig, read_json(folder / "config.json"))
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is no config of a projected pair: {error}") from None


def load_encoders(folder: Path, config: PairConfig) -> ProjectedPair:
    """Return the pair with its encoders and projections that are random."""
    from transformers import AutoTokenizer

    images, texts = folder / IMAGE_ENCODER, folder / TEXT_ENCODER
    tokenizer = AutoTokenizer.from_pretrained(str(texts), trust_remote_code=False)
    return ProjectedPair(config, load_image_encoder(images), _load_transformer(texts, TEXT_TYPES), tokenizer)


def load_image_encoder(folder: Path) -> Any:
    """Return DINOv2 of transformers, or a TinyViT."""
    if _encoder_type(folder) != TINY_VIT:
        return _load_transformer(folder, IMAGE_TYPES)
    try:
        model = TinyVit(record_from_json(TinyVitConfig, read_json(folder / "config.json")))
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is no config of a TinyViT: {error}") from None
    model.load_state_dict({name: value.float() for name, value in _tensors(folder / WEIGHTS).items()})
    return model


def _load_transformer(folder: Path, allowed: Sequence[str]) -> Any:
    import transformers

    kind = _encoder_type(folder)
    if kind not in allowed:
        raise ModelError(f"expected an encoder of type {' or '.join(allowed)}, got {kind} in {folder}")
    model, loading = transformers.AutoModel.from_pretrained(
        str(folder),
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        attn_implementation="sdpa",
        output_loading_info=True,
    )
    ignored = {name for name in loading["missing_keys"] if name.startswith("pooler.")}  # nothing reads it here
    check_weights({"missing_keys": set(loading["missing_keys"]) - ignored}, str(folder))
    return model


def _encoder_type(folder: Path) -> str:
    try:
        return str(read_json(folder / "config.json")["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError(f"{folder} is no encoder: it holds no config.json that names a model_type") from None


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors
