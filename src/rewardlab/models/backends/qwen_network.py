"""The language model of Qwen-VL: tokens to logits of the next one, with a KV cache.

A token attends only to what stands before it, so the keys and values of a prefix hold for every prompt that begins with
it: they are cached by their content, as the features of frames are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.models.backends.qwen_batches import SHARED, TokenBatch, batch_by_length, chain_prompts, stack_prompts
from rewardlab.models.backends.qwen_kernels import attention_without_plans, use_fewer_kernels
from rewardlab.models.backends.qwen_patches import Family
from rewardlab.models.backends.qwen_prefixes import KVCache, PrefixCache
from rewardlab.models.backends.qwen_prompt import TEXT, Ints, TokenSequence
from rewardlab.models.backends.qwen_vision import Features, VisionEncoder

_FEATURES_SHARE = 0.5  # of the memory for reuse; the rest is for keys and values
_MAX_STACKED = {"cuda": 1 << 15, "cpu": 1 << 11}  # tokens of whole prompts in one pass; a processor's caches are small
_MAX_CHAINED = 1 << 11  # tokens after a prefix in one pass: the mask between them grows with their square

Group = Mapping[int, TokenSequence]  # some of the prompts, by their number


@dataclass
class DecoderState:
    """Some of the prompts while they are decoded: the next token's logits, and what it takes to go on."""

    prompts: Sequence[int]  # which of all they are
    logits: torch.Tensor  # (prompts, vocabulary), float32
    kv_cache: Any  # of transformers
    owners: torch.Tensor  # (rows, tokens so far): which prompt of the row sees a token
    position: Ints  # (prompts,): where the next token stands


class QwenNetwork:
    """The weights of one checkpoint, and what is cached for reuse."""

    def __init__(self, model: Any, family: Family, reuse_bytes: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.device = str(model.device)
        if model.device.type == "cuda":
            use_fewer_kernels(model)
        self.reuse = reuse_bytes > 0
        self.attention = model.config.get_text_config()._attn_implementation
        self.vision = VisionEncoder(model.model.visual, family, int(reuse_bytes * _FEATURES_SHARE))
        self.prefixes = PrefixCache(int(reuse_bytes * (1 - _FEATURES_SHARE)), model.device)

    def prefill(self, prompts: Sequence[TokenSequence]) -> Iterator[DecoderState]:
        """Yield states after the prompts, each for one or more of them, in any order; what they share is read once."""
        if not self.reuse:
            for number, prompt in enumerate(prompts):
                yield self._read_whole({number: prompt}, self.vision.encode(prompt.pairs))
            return
        features = self.vision.encode([pair for prompt in prompts for pair in prompt.pairs])
        whole: dict[int, TokenSequence] = {}
        for group in _by_prefix(prompts):
            start, kv_cache = self._prefix(group, features)
            if not start:
                whole |= group
                continue
            for some in self._batches(group, start, _MAX_CHAINED):
                yield self._go_on(some, start, kv_cache, features)
        for some in self._batches(whole, 0, _MAX_STACKED[self.model.device.type]):
            yield self._read_whole(some, features)

    def decode(self, state: DecoderState, tokens: torch.Tensor) -> DecoderState:
        """Return the state after one more token per prompt."""
        rows = len(state.owners)
        new = torch.arange(len(tokens) // rows, device=self.device).expand(rows, -1)
        owners = torch.cat([state.owners, new], dim=1)
        positions = np.tile(state.position.reshape(1, rows, -1), (3, 1, 1))
        with torch.inference_mode():
            embedded = self.model.get_input_embeddings()(tokens.view(rows, -1))
            mask = self._mask(owners, new) if self._takes_masks else None
            hidden = self._forward(embedded, positions, mask, state.kv_cache, {})
            logits = self.model.lm_head(hidden.flatten(0, 1)).float()
        return DecoderState(state.prompts, logits, state.kv_cache, owners, state.position + 1)

    def _batches(self, group: Group, start: int, most: int) -> Iterator[Group]:
        """Yield those of a group that are read at once; each alone where attention takes no mask to tell them apart."""
        numbers = list(group)
        lengths = [len(prompt) - start for prompt in group.values()]
        for places in batch_by_length(lengths, most if self._takes_masks else 0):
            yield {numbers[place]: group[numbers[place]] for place in places}

    @property
    def _takes_masks(self) -> bool:
        return not self.attention.startswith("flash")

    def _prefix(self, group: Group, features: Features) -> tuple[int, KVCache]:
        """Return how much of their common prefix these prompts need not read, and its keys and values.

        It is read here if several go on from it.
        """
        prompts = list(group.values())
        length = min(prompts[0].prefix_length, min(map(len, prompts)) - 1)  # one token at least is left to read
        prefix = prompts[0].truncated(length)
        start, kv_cache = self.prefixes.longest(prefix)
        if start < length and len(group) > 1:
            state = self._read({0: prefix}, chain_prompts([prefix], start), kv_cache, features)
            return length, self.prefixes.store(prefix, state.kv_cache, 0)
        return start, kv_cache

    def _go_on(self, group: Group, start: int, kv_cache: KVCache, features: Features) -> DecoderState:
        """Read prompts from the end of what they have in common and is cached."""
        prompts = list(group.values())
        state = self._read(group, chain_prompts(prompts, start), kv_cache, features)
        if start < min(prompts[0].prefix_length, len(prompts[0]) - 1):
            self.prefixes.store(prompts[0], state.kv_cache, 0)
        return state

    def _read_whole(self, group: Group, features: Features) -> DecoderState:
        """Read prompts from their first token on."""
        state = self._read(group, stack_prompts(list(group.values())), [], features)
        if self.reuse:
            for row, prompt in enumerate(group.values()):
                self.prefixes.store(prompt, state.kv_cache, row)
        return state

    def _read(self, group: Group, batch: TokenBatch, kv_cache: KVCache, features: Features) -> DecoderState:
        from transformers import DynamicCache

        start = kv_cache[0][0].shape[2] if kv_cache else 0
        cache = DynamicCache(kv_cache) if kv_cache else DynamicCache()
        own = self._on_device(batch.owners)
        owners = torch.cat([own.new_full((len(own), start), SHARED), own], dim=1)
        mask = self._mask(owners, own) if len(group) > len(own) else None  # else causal, as the library does it
        shown = [part for prompt in group.values() for part in _shown(prompt, start, features)]
        with torch.inference_mode():
            embedded = self.model.get_input_embeddings()(self._on_device(batch.ids))
            deepstack = self._insert_features(embedded, batch, shown)
            hidden = self._forward(embedded, batch.positions, mask, cache, deepstack)
            rows, places = map(self._on_device, batch.last)
            logits = self.model.lm_head(hidden[rows, places]).float()
        return DecoderState(tuple(group), logits, cache, owners, batch.next_position)

    def _mask(self, owners: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """Return which of all tokens (rows, tokens) the last ones (rows, queries) see, (rows, 1, queries, tokens)."""
        past = owners.shape[1] - queries.shape[1]
        seen = (owners[:, None] == queries[:, :, None]) | (owners[:, None] == SHARED)
        mask = seen.tril(diagonal=past)[:, None]
        if self.attention == "sdpa":
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=self.device).masked_fill_(~mask, lowest)

    def _insert_features(self, embedded: torch.Tensor, batch: TokenBatch, shown: list[torch.Tensor]) -> dict[str, Any]:
        """Put features where images and videos stand, and return what the deeper layers are given of them."""
        if not shown:
            return {}
        visual = self._on_device(batch.visual)
        inserted = torch.cat(shown, dim=1)
        embedded[visual] = inserted[0]
        if len(inserted) == 1:
            return {}
        return {"visual_pos_masks": visual, "deepstack_visual_embeds": list(inserted[1:])}

    def _on_device(self, array: NDArray[Any]) -> torch.Tensor:
        """Return an array where the model is; to a GPU it is sent without waiting for the work before it."""
        tensor = torch.from_numpy(array)
        pinned = tensor.pin_memory() if self.model.device.type == "cuda" else tensor
        return pinned.to(self.device, non_blocking=True)

    def _forward(
        self, embedded: torch.Tensor, positions: Ints, mask: torch.Tensor | None, cache: Any, deepstack: dict[str, Any]
    ) -> torch.Tensor:
        is_whole = cache.get_seq_length() == 0  # whole prompts about clips of one length come often
        with nullcontext() if is_whole else attention_without_plans():
            output = self.model.model.language_model(
                inputs_embeds=embedded,
                position_ids=self._on_device(positions),
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                **deepstack,
            )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def _by_prefix(prompts: Sequence[TokenSequence]) -> list[Group]:
    groups: dict[str, dict[int, TokenSequence]] = {}
    for number, prompt in enumerate(prompts):
        groups.setdefault(prompt.prefix_key, {})[number] = prompt
    return list(groups.values())


def _shown(prompt: TokenSequence, start: int, features: Features) -> Iterator[torch.Tensor]:
    """Yield the features of what a prompt shows after its first `start` tokens, if it shows anything there."""
    visual = prompt.kinds != TEXT
    if visual[start:].any():
        yield torch.cat([features[pair.key] for pair in prompt.pairs], dim=1)[:, int(visual[:start].sum()) :]
