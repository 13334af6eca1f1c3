"""The language model of Qwen-VL: tokens to logits of the next one, with a KV cache.

A token attends only to what stands before it, so the keys and values of a prefix hold for every prompt that begins with
it: they are cached by their content, as the features of frames are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rewardlab.models.backends.lru_cache import LRUCache
from rewardlab.models.backends.qwen_batches import (
    SHARED,
    TokenBatch,
    batch_by_length,
    chain_prompts,
    stack_prompts,
)
from rewardlab.models.backends.qwen_kernels import use_fewer_kernels
from rewardlab.models.backends.qwen_patches import Family
from rewardlab.models.backends.qwen_prompt import TEXT, Ints, TokenSequence
from rewardlab.models.backends.qwen_vision import Features, VisionEncoder

_FEATURES_SHARE = 0.5  # of the memory for reuse; the rest is for keys and values
_MAX_STACKED = 1 << 14  # tokens of whole prompts in one pass
_MAX_CHAINED = 1 << 11  # tokens after a prefix in one pass: the mask between them grows with their square
_MIN_REUSED = 0.5  # of a prefix: if less is cached it is all read again, together with other prompts

KVCache = list[tuple[torch.Tensor, torch.Tensor]]  # keys and values (1, heads, tokens, size) of each layer


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
        self.prefixes: LRUCache[tuple[TokenSequence, KVCache]] = LRUCache(int(reuse_bytes * (1 - _FEATURES_SHARE)))

    def prefill(self, prompts: Sequence[TokenSequence]) -> Iterator[DecoderState]:
        """Yield states after the prompts, each for one or more of them; what they share is read once."""
        if not self.reuse:
            for number, prompt in enumerate(prompts):
                yield self._read_whole([number], prompts, self.vision.encode(prompt.pairs))
            return
        features = self.vision.encode([pair for prompt in prompts for pair in prompt.pairs])
        whole = []
        for group in self._groups(prompts):
            start, kv_cache = self._prefix(group, prompts, features)
            if not start:
                whole += group
                continue
            for some in self._batches(group, [len(prompts[number]) - start for number in group], _MAX_CHAINED):
                yield self._go_on(some, prompts, start, kv_cache, features)
        for some in self._batches(whole, [len(prompts[number]) for number in whole], _MAX_STACKED):
            yield self._read_whole(some, prompts, features)

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

    def _groups(self, prompts: Sequence[TokenSequence]) -> list[list[int]]:
        """Return the prompts by their prefix."""
        groups: dict[str, list[int]] = {}
        for number, prompt in enumerate(prompts):
            groups.setdefault(prompt.prefix_key, []).append(number)
        return list(groups.values())

    def _batches(self, group: Sequence[int], lengths: Sequence[int], most: int) -> Iterator[list[int]]:
        """Yield those of a group that are read at once; each alone where attention takes no mask to tell them apart."""
        for places in batch_by_length(lengths, most if self._takes_masks else 0):
            yield [group[place] for place in places]

    @property
    def _takes_masks(self) -> bool:
        return not self.attention.startswith("flash")

    def _prefix(
        self, group: Sequence[int], prompts: Sequence[TokenSequence], features: Features
    ) -> tuple[int, KVCache]:
        """Return how much of their prefix these prompts need not read, and its keys and values.

        It is read here if several go on from it.
        """
        some = [prompts[number] for number in group]
        length = min(some[0].prefix_length, min(map(len, some)) - 1)  # one token at least is left to read
        prefix = some[0].truncated(length)
        start, kv_cache = self._cached_prefix(prefix)
        if start < length and len(group) > 1:
            batch = chain_prompts([prefix], start)
            state = self._read(group[:1], [prefix], batch, kv_cache, features)
            return length, self._store(prefix, state, 0)
        return start, kv_cache

    def _cached_prefix(self, prompt: TokenSequence) -> tuple[int, KVCache]:
        """Return how many of these tokens, from the first on, are cached already, and their keys and values."""
        common = {key: prompt.common_prefix(other) for key, (other, _) in self.prefixes.items()}
        best = max(common, key=lambda key: common[key], default="")
        found = self.prefixes.get(best)
        if found is None or common[best] < max(1, _MIN_REUSED * len(prompt)):
            return 0, []
        return common[best], [_first_tokens(layer, common[best]) for layer in found[1]]

    def _go_on(
        self,
        group: Sequence[int],
        prompts: Sequence[TokenSequence],
        start: int,
        kv_cache: KVCache,
        features: Features,
    ) -> DecoderState:
        """Read prompts from the end of what they have in common and is cached."""
        some = [prompts[number] for number in group]
        state = self._read(group, some, chain_prompts(some, start), kv_cache, features)
        if start < min(some[0].prefix_length, len(some[0]) - 1):
            self._store(some[0], state, 0)
        return state

    def _read_whole(self, group: Sequence[int], prompts: Sequence[TokenSequence], features: Features) -> DecoderState:
        """Read prompts from their first token on."""
        some = [prompts[number] for number in group]
        state = self._read(group, some, stack_prompts(some), [], features)
        if self.reuse:
            for row, prompt in enumerate(some):
                self._store(prompt, state, row)
        return state

    def _store(self, prompt: TokenSequence, state: DecoderState, row: int) -> KVCache:
        """Keep keys and values of a prompt's prefix; copies, since a view would keep those of the whole batch alive."""
        prefix = prompt.truncated(prompt.prefix_length)
        layers = [(layer.keys[row : row + 1], layer.values[row : row + 1]) for layer in state.kv_cache.layers]
        parts = [_first_tokens(layer, len(prefix)) for layer in layers]
        size = sum(keys.nbytes + values.nbytes for keys, values in parts)
        if size > self.prefixes.max_bytes:
            return parts
        kv_cache = [(keys.clone(), values.clone()) for keys, values in parts]
        self.prefixes.put(prefix.prefix_key, (replace(prefix, pairs=()), kv_cache), size)
        return kv_cache

    def _read(
        self,
        group: Sequence[int],
        prompts: Sequence[TokenSequence],
        batch: TokenBatch,
        kv_cache: KVCache,
        features: Features,
    ) -> DecoderState:
        from transformers import DynamicCache

        start = kv_cache[0][0].shape[2] if kv_cache else 0
        cache = DynamicCache(kv_cache) if kv_cache else DynamicCache()
        own = torch.from_numpy(batch.owners).to(self.device)
        owners = torch.cat([own.new_full((len(own), start), SHARED), own], dim=1)
        mask = self._mask(owners, own) if len(prompts) > len(own) else None  # else causal, as the library does it
        with torch.inference_mode():
            embedded = self.model.get_input_embeddings()(torch.from_numpy(batch.ids).to(self.device))
            deepstack = self._insert_features(embedded, batch, _shown(prompts, start, features))
            hidden = self._forward(embedded, batch.positions, mask, cache, deepstack)
            logits = self.model.lm_head(hidden[batch.last]).float()
        return DecoderState(group, logits, cache, owners, batch.next_position)

    def _mask(self, owners: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """Return which of all tokens (rows, tokens) the last ones (rows, queries) see, (rows, 1, queries, tokens)."""
        past = owners.shape[1] - queries.shape[1]
        seen = (owners[:, None] == queries[:, :, None]) | (owners[:, None] == SHARED)
        mask = seen.tril(diagonal=past)[:, None]
        if self.attention == "sdpa":
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=self.device).masked_fill_(~mask, lowest)

    def _insert_features(
        self, embedded: torch.Tensor, batch: TokenBatch, shown: Sequence[torch.Tensor]
    ) -> dict[str, Any]:
        """Put features where images and videos stand, and return what the deeper layers are given of them."""
        if not shown:
            return {}
        visual = torch.from_numpy(batch.visual).to(self.device)
        inserted = torch.cat(list(shown), dim=1)
        embedded[visual] = inserted[0]
        if len(inserted) == 1:
            return {}
        return {"visual_pos_masks": visual, "deepstack_visual_embeds": list(inserted[1:])}

    def _forward(
        self, embedded: torch.Tensor, positions: Ints, mask: torch.Tensor | None, cache: Any, deepstack: dict[str, Any]
    ) -> torch.Tensor:
        output = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=torch.from_numpy(positions).to(self.device),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **deepstack,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


def _shown(prompts: Sequence[TokenSequence], start: int, features: Features) -> list[torch.Tensor]:
    """Return the features of what the prompts show after their first `start` tokens."""
    found = []
    for prompt in prompts:
        skipped = int((prompt.kinds[:start] != TEXT).sum())
        if (prompt.kinds[start:] != TEXT).any():
            found.append(torch.cat([features[pair.key] for pair in prompt.pairs], dim=1)[:, skipped:])
    return found


def _first_tokens(layer: tuple[torch.Tensor, torch.Tensor], tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return layer[0][:, :, :tokens], layer[1][:, :, :tokens]
