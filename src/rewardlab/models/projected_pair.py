"""The pair that `train objective` writes: frozen encoders (DINOv2, TinyViT, BERT) and projections; imports torch.

The folder holds both encoders as folders of their own, `config.json` with the shape of the projections, and these as
safetensors; nothing in it is run. `rewardlab train objective` writes such folders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.errors import ModelError
from rewardlab.core.records import read_json, record_from_json
from rewardlab.models.backends.checkpoint import check_weights, model_type

TINY_VIT = "tiny_vit"
_EXPAND = 4  # of the hidden layers


@dataclass(frozen=True)
class TinyVitConfig:
    """The shape of a TinyViT; the first stage is convolutions alone. The defaults are TinyViT-5M at 224 pixels."""

    model_type: str = TINY_VIT
    widths: tuple[int, ...] = (64, 128, 160, 320)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (4, 5, 10)
    windows: tuple[int, ...] = (7, 14, 7)
    hidden_size: int = 320

    def __post_init__(self) -> None:
        counts = (len(self.widths), len(self.depths), len(self.heads) + 1, len(self.windows) + 1)
        numbers = (*self.widths, *self.depths, *self.heads, *self.windows)
        if self.model_type != TINY_VIT or len(set(counts)) != 1 or not all(0 < number <= 2048 for number in numbers):
            raise ValueError("a TinyViT has as many widths as depths, one head and window fewer, each from 1 to 2048")
        if self.hidden_size != self.widths[-1] or any(w % h for w, h in zip(self.widths[1:], self.heads, strict=True)):
            raise ValueError("the last width of a TinyViT is its hidden_size, and heads divide widths")


class TinyVit(nn.Module):
    """Normalised pixels (N, 3, H, H) to maps (N, D, h, h), for sides such that the windows tile the maps."""

    def __init__(self, config: TinyVitConfig) -> None:
        super().__init__()
        first = config.widths[0]
        self.stem1 = nn.Conv2d(3, first // 2, 3, 2, 1)
        self.stem2 = nn.Conv2d(first // 2, first, 3, 2, 1)
        self.convolutions = nn.ModuleList(
            _Convolutions(first, _EXPAND * first, first, stride=1) for _ in range(config.depths[0])
        )
        self.merges = nn.ModuleList(_Convolutions(a, b, b, stride=2) for a, b in pairwise(config.widths))
        shapes = zip(config.widths[1:], config.depths[1:], config.heads, config.windows, strict=True)
        self.stages = nn.ModuleList(
            nn.ModuleList(_Block(width, heads, window) for _ in range(depth)) for width, depth, heads, window in shapes
        )
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the map of the last stage."""
        x = self.stem2(nn.functional.gelu(self.stem1(pixels)))
        for block in self.convolutions:
            x = block(x)
        for merge, stage in zip(self.merges, self.stages, strict=True):
            x = merge(x)
            for block in stage.children():
                x = block(x)
        return x

    def pooled(self, maps: Tensor) -> Tensor:
        """Return one vector per picture, as the published head takes it."""
        vectors: Tensor = self.norm(maps.mean((2, 3)))
        return vectors


class _Convolutions(nn.Module):
    """Expand, look around in each channel, contract: an inverted bottleneck, or with stride 2 half the side."""

    def __init__(self, before: int, inner: int, after: int, stride: int) -> None:
        super().__init__()
        self.residual = stride == 1
        self.conv1 = nn.Conv2d(before, inner, 1)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner)
        self.conv3 = nn.Conv2d(inner, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv3(nn.functional.gelu(self.conv2(nn.functional.gelu(self.conv1(x)))))
        return nn.functional.gelu(x + out) if self.residual else out


class _Block(nn.Module):
    """Attention in windows, a convolution over each channel, an MLP."""

    apart: Tensor  # for each two places, the index of their bias

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.biases = nn.Parameter(torch.zeros(heads, window**2))  # by how many rows and columns two places are apart
        self.around = nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.up, self.down = nn.Linear(width, _EXPAND * width), nn.Linear(_EXPAND * width, width)
        row, column = (torch.arange(window**2) // window, torch.arange(window**2) % window)
        offsets = (row[:, None] - row).abs() * window + (column[:, None] - column).abs()
        self.register_buffer("apart", offsets, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.around(x + self._attention(x))
        tokens = x.permute(0, 2, 3, 1)
        mixed = self.down(nn.functional.gelu(self.up(self.norm2(tokens))))
        return x + mixed.permute(0, 3, 1, 2)

    def _attention(self, x: Tensor) -> Tensor:
        (n, width, side, _), w = x.shape, self.window
        tiles = x.reshape(n, width, side // w, w, side // w, w).permute(0, 2, 4, 3, 5, 1).reshape(-1, w * w, width)
        q, k, v = self.qkv(self.norm1(tiles)).unflatten(2, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4)
        bias = self.biases[:, self.apart].to(x.dtype)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        out = self.projection(mixed).reshape(n, side // w, side // w, w, w, width)
        return out.permute(0, 5, 1, 3, 2, 4).reshape(n, width, side, side)


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
        return self.encode_frames(torch.from_numpy(np.stack(frames)).to(self.device))

    def encode_frames(self, frames: Tensor) -> Tensor:
        """Return these features of frames given as uint8 (N, H, W, 3), with gradients where the encoder is trained."""
        dtype = next(self.image_encoder.parameters()).dtype
        pixels = self._pixels(frames).to(dtype)
        if isinstance(self.image_encoder, TinyVit):
            maps = self.image_encoder(pixels)
            whole = self.image_encoder.pooled(maps)
        else:
            states = self.image_encoder(pixels).last_hidden_state
            side = round((states.shape[1] - 1) ** 0.5)
            whole, maps = states[:, 0], states[:, 1:].transpose(1, 2).unflatten(2, (side, side))
        parts = nn.functional.adaptive_avg_pool2d(maps.float(), self.config.grid).flatten(2).transpose(1, 2)
        return torch.cat([whole.float()[:, None], parts], 1)

    def _pixels(self, frames: Tensor) -> Tensor:
        x = frames.permute(0, 3, 1, 2).float() / 255
        size = (self.config.pixels, self.config.pixels)
        if x.shape[2:] != size:
            x = nn.functional.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
        mean, std = (torch.tensor(values, device=x.device).view(1, 3, 1, 1) for values in (_MEAN, _STD))
        return (x - mean) / std

    @torch.no_grad()
    def sentence_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the frozen sentence vector of each text: the mean of its tokens' states."""
        return self.encode_tokens(**self.tokenize(texts, padding=True).to(self.device))

    def tokenize(self, texts: Sequence[str], padding: bool | str) -> Any:
        """Return the tokens of texts with their mask, padded as transformers understands it."""
        return self.tokenizer(
            list(texts),
            padding=padding,
            truncation=True,
            max_length=MAX_TOKENS,
            split_special_tokens=True,
            return_tensors="pt",
        )

    def encode_tokens(self, **tokens: Tensor) -> Tensor:
        """Return the sentence vectors of tokens, with gradients where the encoder is trained."""
        states = self.text_encoder(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None].float()
        return (states * mask).sum(1) / mask.sum(1)


def load_projected_pair(folder: Path, device: str, dtype: Any) -> ProjectedPair:
    """Return the pair in a folder; what does not fit its config is said."""
    try:
        config = record_from_json(PairConfig, read_json(folder / "config.json"))
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is no config of a projected pair: {error}") from None
    pair = load_encoders(folder, config).to(device, dtype)
    pair.projections.load_state_dict(_tensors(folder / PROJECTIONS))
    pair.projections.requires_grad_(False)
    return pair


def load_encoders(folder: Path, config: PairConfig) -> ProjectedPair:
    """Return the pair with its encoders and projections that are random."""
    from transformers import AutoTokenizer

    images, texts = folder / IMAGE_ENCODER, folder / TEXT_ENCODER
    tokenizer = AutoTokenizer.from_pretrained(str(texts), trust_remote_code=False)
    return ProjectedPair(config, load_image_encoder(images), _load_transformer(texts, TEXT_TYPES), tokenizer)


def load_image_encoder(folder: Path) -> Any:
    """Return DINOv2 of transformers, or a TinyViT."""
    if model_type(folder) != TINY_VIT:
        return _load_transformer(folder, IMAGE_TYPES)
    try:
        model = TinyVit(record_from_json(TinyVitConfig, read_json(folder / "config.json")))
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is no config of a TinyViT: {error}") from None
    model.load_state_dict({name: value.float() for name, value in _tensors(folder / WEIGHTS).items()})
    return model


def _load_transformer(folder: Path, allowed: Sequence[str]) -> Any:
    import transformers

    kind = model_type(folder)
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


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors
