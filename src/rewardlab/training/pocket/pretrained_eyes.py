"""Pretrained eyes: the features of DINOv2 ViT-S/14, which the image encoder learns to predict beside its own work.

python -m rewardlab.training.pocket.pretrained_eyes DINOV2.onnx OUT.npz
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

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
        mean, std = (torch.tensor(values, device=x.device).view(1, 3, 1, 1) for values in (_MEAN, _STD))
        x = self.patches((x - mean) / std).flatten(2).transpose(1, 2) + self._positions(2 * tokens)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        maps = self.norm(x)[:, 1:].transpose(1, 2).unflatten(2, (2 * tokens, 2 * tokens))
        return nn.functional.avg_pool2d(maps, 2).flatten(2).transpose(1, 2)

    def _positions(self, side: int) -> Tensor:
        grid = self.positions.transpose(1, 2).unflatten(2, (_GRID, _GRID))
        return nn.functional.interpolate(grid, size=side, mode="bicubic", antialias=True).flatten(2).transpose(1, 2)


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


@cache  # every fold learns from the same
def load_eyes(path: str, device: str) -> Dinov2:
    """Return the encoder of a file made by `convert`, frozen."""
    model = Dinov2()
    with np.load(path) as table:
        model.load_state_dict({name: torch.from_numpy(table[name].astype(np.float32)) for name in table.files})
    model.to(device).eval().requires_grad_(False)
    return model


def convert(source: Path, out: Path) -> None:
    """Read the weights of the published encoder from an ONNX file and write them in half precision."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(source).graph
    values = {weight.name.removeprefix("model."): numpy_helper.to_array(weight) for weight in graph.initializer}
    for node in graph.node:  # matrices have lost their names, but not what is made with them
        if node.op_type == "MatMul" and node.input[1] in values:
            name = node.output[0].split("/MatMul")[0].strip("/").replace("/", ".")
            values[f"{name}.weight"] = values[node.input[1]].T
    tensors = {_renamed(name): value for name, value in values.items() if not name.startswith("onnx::")}
    tensors["first"] = 2 * values["cls_token"]  # in that graph its position is the same vector
    tensors["positions"] = next(value for value in values.values() if value.shape == (1, _GRID**2, WIDTH))
    wanted = Dinov2().state_dict()
    np.savez(out, **{name: tensors[name].astype(np.float16) for name in wanted})


def _renamed(name: str) -> str:
    for published, ours in _NAMES.items():
        name = name.replace(published, ours)
    return name


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
