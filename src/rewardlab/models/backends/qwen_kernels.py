"""Parts of Qwen-VL swapped for others that compute the same in fewer kernels, for GPUs, where starting them costs time.

The library's tower attends to one pair of frames after another, waits for the GPU in between, and turns queries and
keys in float32 with ten passes over memory; its root mean square is six kernels in float32; its patches go through a
convolution in three dimensions that touches no two of them at once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.models.backends.fused_norms import fuse_norms


def use_fewer_kernels(model: Any) -> None:
    """Change a Qwen-VL in place, once; its answers differ by rounding only."""
    tower = model.model.visual
    if isinstance(tower.patch_embed, nn.Linear):
        return
    tower.patch_embed = _as_linear(tower.patch_embed.proj)
    if tower.config._attn_implementation == "sdpa":
        stretches = _Stretches()
        for block in tower.blocks:
            block.attn = _TowerAttention(block.attn, stretches)
    fuse_norms(model)


def _as_linear(convolution: nn.Conv3d) -> nn.Linear:
    """Return a convolution whose kernels do not overlap as one product of matrices over flat patches."""
    weight = convolution.weight.flatten(1)
    linear = nn.Linear(*weight.shape[::-1], bias=False, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight, requires_grad=False), convolution.bias
    return linear


class _Stretches:
    """The lengths of the stretches of patches that attend to each other; a tower hands most blocks the same tensor."""

    def __init__(self) -> None:
        self.ends = torch.zeros(0)
        self.lengths: list[int] = []

    def read(self, ends: Tensor) -> list[int]:
        """Return the lengths between these ends; the GPU is waited for only where they are not those of last time."""
        if ends is not self.ends:
            self.ends, self.lengths = ends, ends.diff().tolist()
        return self.lengths


class _TowerAttention(nn.Module):  # type: ignore[misc]
    """Attention within stretches of patches on the weights of the library's, all stretches of one length at once."""

    def __init__(self, attention: Any, stretches: _Stretches) -> None:
        super().__init__()
        self.qkv, self.proj = attention.qkv, attention.proj
        self.heads, self.scaling = attention.num_heads, attention.scaling
        self.stretches = stretches

    def forward(
        self, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: tuple[Tensor, Tensor], **_: object
    ) -> Tensor:
        """Return what each patch (patches, width) takes from the others of its stretch."""
        states = self.qkv(hidden_states).unflatten(-1, (3, self.heads, -1))
        queries, keys = _turned(states[:, :2], *position_embeddings).unbind(1)
        inputs, lengths = (queries, keys, states[:, 2]), self.stretches.read(cu_seqlens)
        if len(set(lengths)) == 1:
            mixed = self._attend([each.unflatten(0, (len(lengths), -1)) for each in inputs])
        else:
            parts = zip(*(each.split(lengths) for each in inputs))
            mixed = torch.cat([self._attend([each[None] for each in part]) for part in parts])
        output: Tensor = self.proj(mixed)
        return output

    def _attend(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return (patches, width) from queries, keys and values (stretches, patches of each, heads, size)."""
        by_head = [each.transpose(1, 2) for each in inputs]
        mixed = nn.functional.scaled_dot_product_attention(*by_head, scale=self.scaling)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


def _turned(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return queries and keys (patches, 2, heads, size) turned by their positions, worked out in float32."""
    cosines, sines, half = cosines[:, None, None].float(), sines[:, None, None].float(), states.shape[-1] // 2
    turned = states * cosines
    turned[..., :half].addcmul_(states[..., half:], sines[..., :half], value=-1)
    turned[..., half:].addcmul_(states[..., :half], sines[..., half:])
    return turned.to(states.dtype)
