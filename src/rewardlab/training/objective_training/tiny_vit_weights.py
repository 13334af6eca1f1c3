"""The weights of TinyViT from an ONNX file of the published network, under our names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rewardlab.models.backends.tiny_vit import TinyVitConfig

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

    for name in (
        "stem1",
        "stem2",
        *(f"convolutions.{b}.conv{k}" for b in range(config.depths[0]) for k in _CONVOLUTIONS),
    ):
        yield from convolution(name)
    for stage, depth in enumerate(config.depths[1:]):
        for k in _CONVOLUTIONS:
            yield from convolution(f"merges.{stage}.conv{k}")
        for block in range(depth):
            ours, theirs = f"stages.{stage}.{block}", f"stages.{stage + 1}.blocks.{block}"
            yield from convolution(f"{ours}.around")
            yield from _block(ours, theirs, named, matrices)
    yield from ((f"norm.{kind}", named[f"head.norm.{kind}"]) for kind in ("weight", "bias"))


def _block(ours: str, theirs: str, named: dict[str, Tensor], matrices: Iterator[Any]) -> Iterator[tuple[str, Tensor]]:
    for name, published in _LINEAR.items():
        yield f"{ours}.{name}.weight", next(matrices)
        yield f"{ours}.{name}.bias", named[f"{theirs}.{published}.bias"]
    for name, published in _NORMS.items():
        yield from ((f"{ours}.{name}.{kind}", named[f"{theirs}.{published}.{kind}"]) for kind in ("weight", "bias"))
    yield f"{ours}.biases", named[f"{theirs}.attn.attention_biases"]
