"""`patch_fused_ops`, `fuse_norms`: the same numbers in fewer kernels; imports torch.

The library's tower attends to one pair of frames after another and waits for the GPU in between; queries and keys are
turned with up to ten passes over memory; a root mean square is six kernels in float32; patches go through a convolution
in three dimensions that touches no two of them at once.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def fuse_norms(model: Any) -> None:
    """Swap every root mean square of the common kind for the one-kernel module of torch, on the same weights."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__.endswith("RMSNorm") and "variance_epsilon" in vars(child):  # Gemma's are others
                fused = nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon, device="meta")
                fused.weight = child.weight
                setattr(module, name, fused)


def patch_fused_ops(model: Any) -> None:
    """Change a Qwen-VL in place, once; its answers differ by rounding only."""
    tower = model.model.visual
    if isinstance(tower.patch_embed, nn.Linear):
        return
    convolution = tower.patch_embed.proj  # its kernels do not overlap: one product of matrices over flat patches
    weight = convolution.weight.flatten(1)
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight, linear.bias = nn.Parameter(weight, requires_grad=False), convolution.bias
    tower.patch_embed = linear
    if tower.config._attn_implementation == "sdpa":
        stretches = _Stretches()
        for block in tower.blocks:
            block.attn = _TowerAttention(block.attn, stretches)
    decoder = model.model.language_model
    if model.config.model_type == "qwen3_vl" and decoder.config._attn_implementation == "sdpa":  # 2.5 turns otherwise
        for layer in decoder.layers:
            layer.self_attn = _DecoderAttention(layer.self_attn)
    fuse_norms(model)


def disable_cudnn_sdpa() -> AbstractContextManager[None]:
    """Return a context in which attention is not that of cuDNN, which makes a plan for each new shape of its inputs.

    A plan takes 55 ms or more on an H200, which is worth it only for shapes that come often.
    """
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    context: AbstractContextManager[None] = sdpa_kernel(backends)
    return context


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


class _TowerAttention(nn.Module):
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
        cosines, sines = (each[:, None, None].float() for each in position_embeddings)
        queries, keys = _apply_rotary_emb(states[:, :2], cosines, sines).to(states.dtype).unbind(1)
        inputs, lengths = (queries, keys, states[:, 2]), self.stretches.read(cu_seqlens)
        if len(set(lengths)) == 1:
            mixed = self._attend([each.unflatten(0, (len(lengths), -1)) for each in inputs])
        else:
            parts = zip(*(each.split(lengths) for each in inputs), strict=True)
            mixed = torch.cat([self._attend([each[None] for each in part]) for part in parts])
        output: Tensor = self.proj(mixed)
        return output

    def _attend(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return (patches, width) from queries, keys and values (stretches, patches of each, heads, size)."""
        queries, keys, values = (each.transpose(1, 2) for each in inputs)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, scale=self.scaling)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


class _DecoderAttention(nn.Module):
    """Attention of the language model on the weights of the library's; the library's function does the attending."""

    def __init__(self, attention: Any) -> None:
        from transformers import AttentionInterface

        super().__init__()
        self.attend = AttentionInterface()["sdpa"]
        self.q_proj, self.k_proj, self.v_proj = attention.q_proj, attention.k_proj, attention.v_proj
        self.q_norm, self.k_norm, self.o_proj = attention.q_norm, attention.k_norm, attention.o_proj
        self.layer_idx, self.head_dim, self.scaling = attention.layer_idx, attention.head_dim, attention.scaling
        self.is_causal, self.num_key_value_groups = attention.is_causal, attention.num_key_value_groups

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        past_key_values: Any,
        **named: Any,
    ) -> tuple[Tensor, None]:
        """Return what each token (rows, tokens, width) takes from those it sees, and no weights."""
        cosines, sines = (each[:, :, None] for each in position_embeddings)
        queries, keys, values = (
            project(hidden_states).unflatten(-1, (-1, self.head_dim))
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries = _apply_rotary_emb(self.q_norm(queries), cosines, sines).transpose(1, 2)
        keys = _apply_rotary_emb(self.k_norm(keys), cosines, sines).transpose(1, 2)
        keys, values = past_key_values.update(keys, values.transpose(1, 2), self.layer_idx)
        mixed, _ = self.attend(self, queries, keys, values, attention_mask, scaling=self.scaling, **named)
        return self.o_proj(mixed.flatten(2)), None


def _apply_rotary_emb(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return queries or keys (..., size) turned by their positions, as precise as the cosines are."""
    half = states.shape[-1] // 2
    turned = states * cosines
    turned[..., :half].addcmul_(states[..., half:], sines[..., :half], value=-1)
    turned[..., half:].addcmul_(states[..., :half], sines[..., half:])
    return turned
