"""Parts of Qwen-VL swapped for others that compute the same in fewer kernels, for GPUs, where starting them costs time.

The library's tower attends to one pair of frames after another and waits for the GPU in between; its root mean square
is six kernels in float32; its patches go through a convolution in three dimensions that touches no two of them at once.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rewardlab.models.backends.fused_norms import fuse_norms

_ATTENTION = "rewardlab_flash_pairs"  # with `flash` in its name the tower hands over all pairs at once


def use_fewer_kernels(model: Any) -> None:
    """Change a Qwen-VL in place, once; its answers differ by rounding only."""
    from transformers import AttentionInterface

    tower = model.model.visual
    if isinstance(tower.patch_embed, nn.Linear):
        return
    AttentionInterface.register(_ATTENTION, _attend_within_pairs)
    if tower.config._attn_implementation == "sdpa":
        tower.config._attn_implementation = _ATTENTION
    tower.patch_embed = _as_linear(tower.patch_embed.proj)
    fuse_norms(model)


def _as_linear(convolution: nn.Conv3d) -> nn.Linear:
    """Return a convolution whose kernels do not overlap as one product of matrices over flat patches."""
    weight = convolution.weight.flatten(1)
    linear = nn.Linear(*weight.shape[::-1], bias=False, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight, requires_grad=False), convolution.bias
    return linear


def _attend_within_pairs(
    module: nn.Module, *inputs: Tensor, scaling: float, cu_seq_lens_q: Tensor, max_length_q: int, **_: object
) -> tuple[Tensor, None]:
    """Return attention (1, patches, heads, size) within stretches of patches, in one kernel where they are as long.

    `inputs` are queries, keys and values, (1, heads, patches, size).
    """
    stretches = len(cu_seq_lens_q) - 1
    if stretches * int(max_length_q) == inputs[0].shape[2]:
        return _attend([_in_stretches(each, stretches) for each in inputs], scaling), None
    lengths = cu_seq_lens_q.diff().tolist()
    parts = zip(*(each.split(lengths, dim=2) for each in inputs))
    return torch.cat([_attend(part, scaling) for part in parts], dim=1), None


def _in_stretches(tensor: Tensor, count: int) -> Tensor:
    """Return (1, heads, patches, size) as (stretches, heads, patches of each, size)."""
    return tensor[0].unflatten(1, (count, -1)).transpose(0, 1)


def _attend(parts: Any, scaling: float) -> Tensor:
    mixed = nn.functional.scaled_dot_product_attention(*parts, scale=scaling)
    return mixed.transpose(1, 2).flatten(0, 1)[None]
