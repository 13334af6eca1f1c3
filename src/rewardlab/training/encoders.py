"""Published encoders that trainings start from (DINOv2, TinyViT, MiniLM): weights from ONNX or npz, name and licence.

python -m rewardlab.training.encoders ENCODER_FOLDER OUT.npz    # word vectors of MiniLM, as pocket ships them
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.storage import atomic_write
from rewardlab.core.terminal import one_line
from rewardlab.models.backends.checkpoint import model_type
from rewardlab.models.projected_pair import TinyVitConfig

WIDTH, LAYERS, HEADS, PATCH = 384, 12, 6, 14
_GRID = 37  # patches on a side of the image that it was trained on
_NAMES = {
    "patch_embed.proj": "patches",
    "attn.qkv": "qkv",
    "attn.proj": "projection",
    "mlp.fc1": "up",
    "mlp.fc2": "down",
    "ls1.gamma": "scale1",
    "ls2.gamma": "scale2",
}
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Dinov2(nn.Module):
    """The encoder as published (Oquab et al. 2023), for images whose side is a multiple of 14."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))  # the class token with its position
        self.positions = nn.Parameter(torch.zeros(1, _GRID**2, WIDTH))
        self.blocks = nn.ModuleList(_Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, frames: Tensor, tokens: int) -> Tensor:
        """Return `tokens` x `tokens` features for each frame, uint8 (N, H, W, 3): two patches to a token and side."""
        x = frames.permute(0, 3, 1, 2).float()
        x = nn.functional.interpolate(x, size=2 * tokens * PATCH, mode="bilinear", antialias=True)
        x = self.patch_tokens(x, self.grid_positions(2 * tokens))
        maps = x.transpose(1, 2).unflatten(2, (2 * tokens, 2 * tokens))
        return nn.functional.avg_pool2d(maps, 2).flatten(2).transpose(1, 2)

    def grid_positions(self, side: int) -> Tensor:
        """Return the positions for `side` x `side` patches, (1, side x side, 384)."""
        grid = self.positions.transpose(1, 2).unflatten(2, (_GRID, _GRID))
        return nn.functional.interpolate(grid, size=side, mode="bicubic", antialias=True).flatten(2).transpose(1, 2)

    def patch_tokens(self, pixels: Tensor, positions: Tensor) -> Tensor:
        """Return the token of each patch, without the class token, for pixel values from 0 to 255 (N, 3, H, W)."""
        mean, std = (torch.tensor(values, device=pixels.device).view(1, 3, 1, 1) for values in (_MEAN, _STD))
        x = self.patches((pixels - mean) / std).flatten(2).transpose(1, 2) + positions
        x = torch.cat([self.first.expand_as(x[:, :1]), x], dim=1)
        for block in self.blocks:
            x = block(x)
        tokens: Tensor = self.norm(x)[:, 1:]
        return tokens


class Dinov2ImageEncoder(nn.Module):
    """DINOv2 for square frames of one side, as it ships: their positions are stored, and every patch is a token."""

    positions: Tensor

    def __init__(self, encoder: Dinov2, size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("positions", encoder.grid_positions(size // PATCH).detach())

    def forward(self, frames: Tensor) -> Tensor:
        """Return the image tokens of frames given as uint8 (N, H, W, 3)."""
        return self.encoder.patch_tokens(frames.permute(0, 3, 1, 2).float(), self.positions)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(WIDTH)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        x = x + self.scale1 * self.projection(mixed)
        return x + self.scale2 * self.down(nn.functional.gelu(self.up(self.norm2(x))))


@cache  # every fold distills the same
def load_distillation_teacher(path: str, device: str) -> Dinov2:
    """Return DINOv2 ViT-S/14 from an .onnx or .npz file, frozen; PlanError where it is something else."""
    if path.endswith(".onnx"):
        require_packages(path, "onnx", extra="assemble")
    try:
        weights = _onnx_weights(Path(path)) if path.endswith(".onnx") else dict(np.load(path))
        model = Dinov2()
        model.load_state_dict({name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()})
    except Exception as error:  # a file that is something else may raise anything
        raise PlanError(
            f"{path} is not DINOv2 ViT-S/14: {error}; name a folder of transformers, or see docs/howto/assemble-vlm.md"
        ) from None
    model.to(device).eval().requires_grad_(False)
    return model


def _onnx_weights(source: Path) -> dict[str, NDArray[np.float16]]:
    """Return the weights of the published encoder in half precision, under our names."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(source).graph
    values = {weight.name.removeprefix("model."): numpy_helper.to_array(weight) for weight in graph.initializer}
    for node in graph.node:  # matrices have lost their names, but not what is made with them
        if node.op_type == "MatMul" and node.input[1] in values:
            name = node.output[0].split("/MatMul")[0].strip("/").replace("/", ".")
            values[f"{name}.weight"] = values[node.input[1]].T
    tensors = {}
    for name, value in values.items():
        if not name.startswith("onnx::"):
            for published, ours in _NAMES.items():
                name = name.replace(published, ours)
            tensors[name] = value
    tensors["first"] = 2 * values["cls_token"]  # in that graph its position is the same vector
    tensors["positions"] = next(value for value in values.values() if value.shape == (1, _GRID**2, WIDTH))
    return {name: tensors[name].astype(np.float16) for name in Dinov2().state_dict()}


# The vectors of word pieces: what a sentence encoder makes of each piece alone, reduced by PCA.

WORD_VECTOR_WIDTH = 128
_BATCH = 512


def make_word_vectors(encoder: Path, out: Path) -> None:
    """Write the table from a folder with all-MiniLM-L6-v2 (BERT, uncased): encode each piece, keep 128 components."""
    from transformers import AutoModel

    pieces = (encoder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    pieces = pieces[:-1] if pieces[-1] == "" else pieces
    model = AutoModel.from_pretrained(encoder).eval()
    start, end = pieces.index("[CLS]"), pieces.index("[SEP]")
    parts = []
    with torch.no_grad():
        for first in range(0, len(pieces), _BATCH):
            middle = torch.arange(first, min(first + _BATCH, len(pieces)))
            ids = torch.stack([torch.full_like(middle, start), middle, torch.full_like(middle, end)], dim=1)
            parts.append(model(input_ids=ids).last_hidden_state[:, 1].numpy())
    states = np.concatenate(parts)
    centred = states - states.mean(axis=0)
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    vectors = centred @ components[:WORD_VECTOR_WIDTH].T
    scale = (np.abs(vectors).max(axis=0) / 127).astype(np.float32)
    with atomic_write(out) as partial, partial.open("wb") as handle:
        np.savez_compressed(
            handle,
            pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8),
            vectors=np.round(vectors / scale).astype(np.int8),
            scale=scale / np.float32(vectors.std()),
        )


# What a part of an assembled model is: its name and licence, for the model card.

NOT_STATED = "not stated"
_LICENCE = re.compile(r"^license:\s*['\"]?([\w.+-]{1,60})", re.MULTILINE)
_MAX_NAME = 100  # letters of a name or a licence
_README_BYTES = 1 << 16  # the licence stands at its beginning


@dataclass(frozen=True)
class Upstream:
    """Where a part comes from."""

    name: str
    licence: str
    kind: str  # its model type in transformers


def folder_upstream(folder: Path) -> Upstream:
    """Return what a checkpoint folder says about itself, the licence from the head of its README."""
    readme = folder / "README.md"
    text = readme.read_bytes()[:_README_BYTES].decode(errors="replace") if readme.is_file() else ""
    found = _LICENCE.search(text)
    return Upstream(_shown(folder.resolve().name), found[1] if found else NOT_STATED, model_type(folder))


def gguf_upstream(path: Path, kind: str) -> Upstream:
    """Return what a GGUF file says about itself."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    found = (fields.get(f"general.{key}") for key in ("name", "license"))
    name, licence = ("" if field is None else _shown(str(field.contents())) for field in found)
    return Upstream(_shown(f"{path.stem} ({name})" if name else path.stem), licence or NOT_STATED, kind)


def _shown(text: str) -> str:
    """Return a stranger's text as it may stand in a cell of a table."""
    return one_line(text)[:_MAX_NAME].replace("|", "/")


# DINOv2 ViT-S/14 from such a file, as a folder of transformers.
#
# The names are those of the published checkpoint facebook/dinov2-small, which every version of transformers reads.

DINOV2 = Upstream("DINOv2 ViT-S/14 (facebook/dinov2-small)", "apache-2.0", "dinov2")
_BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "projection": "attention.output.dense",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}


def write_dinov2_folder(source: Path, folder: Path) -> None:
    """Write the weights of a .onnx or .npz file as a checkpoint folder."""
    from safetensors.torch import save_file
    from transformers import Dinov2Config

    weights = load_distillation_teacher(str(source), "cpu").state_dict()
    side = int(weights["positions"].shape[1] ** 0.5)
    shape = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "patch_size": PATCH}
    Dinov2Config(image_size=side * PATCH, **shape).save_pretrained(folder)
    first, positions = weights["first"], weights["positions"]
    found = {
        "embeddings.cls_token": first,  # with its position, which is therefore nothing below
        "embeddings.position_embeddings": torch.cat([torch.zeros_like(first), positions], dim=1),
        "embeddings.mask_token": torch.zeros(1, WIDTH),
        "embeddings.patch_embeddings.projection.weight": weights["patches.weight"],
        "embeddings.patch_embeddings.projection.bias": weights["patches.bias"],
        "layernorm.weight": weights["norm.weight"],
        "layernorm.bias": weights["norm.bias"],
    }
    for layer in range(LAYERS):
        ours, theirs = f"blocks.{layer}.", f"encoder.layer.{layer}."
        for kind in ("weight", "bias"):
            for name, published in _BLOCK.items():
                found[f"{theirs}{published}.{kind}"] = weights[f"{ours}{name}.{kind}"]
            for name, part in zip(("query", "key", "value"), weights[f"{ours}qkv.{kind}"].chunk(3), strict=True):
                found[f"{theirs}attention.attention.{name}.{kind}"] = part
        for number in (1, 2):
            found[f"{theirs}layer_scale{number}.lambda1"] = weights[f"{ours}scale{number}"]
    save_file({name: value.contiguous() for name, value in found.items()}, folder / "model.safetensors")


# The weights of TinyViT from an ONNX file of the published network, under our names.

_NORMS = {"norm1": "attn.norm", "norm2": "mlp.norm"}
_LINEAR = {"qkv": "attn.qkv", "projection": "attn.proj", "up": "mlp.fc1", "down": "mlp.fc2"}
_CONVOLUTIONS = (1, 2, 3)


def tiny_vit_weights(path: Path, config: TinyVitConfig) -> dict[str, Tensor]:
    """Return the parameters; convolutions and matrices have lost their names, but not the order in which they act."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    named = {weight.name: torch.from_numpy(numpy_helper.to_array(weight).copy()) for weight in graph.initializer}
    used = [name for node in graph.node for name in node.input if name in named]
    convolutions = iter([named[name] for name in used if name.startswith("onnx::Conv_")])
    matrices = iter([named[name].T.contiguous() for name in used if name.startswith("onnx::MatMul_")])
    return dict(_parameters(config, named, convolutions, matrices))


def is_tiny_vit(path: Path) -> bool:
    """Tell whether an ONNX file holds a TinyViT, by the names of its weights."""
    import onnx

    return any(weight.name.endswith("attn.attention_biases") for weight in onnx.load(path).graph.initializer)


def _parameters(
    config: TinyVitConfig, named: dict[str, Tensor], convolutions: Iterator[Any], matrices: Iterator[Any]
) -> Iterator[tuple[str, Tensor]]:
    def convolution(name: str) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", next(convolutions)
        yield f"{name}.bias", next(convolutions)

    blocks = [f"convolutions.{b}.conv{k}" for b in range(config.depths[0]) for k in _CONVOLUTIONS]
    for name in ("stem1", "stem2", *blocks):
        yield from convolution(name)
    for stage, depth in enumerate(config.depths[1:]):
        for k in _CONVOLUTIONS:
            yield from convolution(f"merges.{stage}.conv{k}")
        for block in range(depth):
            ours, theirs = f"stages.{stage}.{block}", f"stages.{stage + 1}.blocks.{block}"
            yield from convolution(f"{ours}.around")
            for name, published in _LINEAR.items():
                yield f"{ours}.{name}.weight", next(matrices)
                yield f"{ours}.{name}.bias", named[f"{theirs}.{published}.bias"]
            for name, published in _NORMS.items():
                for kind in ("weight", "bias"):
                    yield f"{ours}.{name}.{kind}", named[f"{theirs}.{published}.{kind}"]
            yield f"{ours}.biases", named[f"{theirs}.attn.attention_biases"]
    yield from ((f"norm.{kind}", named[f"head.norm.{kind}"]) for kind in ("weight", "bias"))


if __name__ == "__main__":
    make_word_vectors(Path(sys.argv[1]), Path(sys.argv[2]))
