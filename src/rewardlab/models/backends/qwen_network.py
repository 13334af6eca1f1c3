"""The networks of Qwen-VL: pairs of frames to features, tokens to logits of the next one, with a KV cache.

The vision tower of Qwen2.5-VL and Qwen3-VL attends within a pair of frames, never across pairs, so the features of a
pair are the same in whatever video it stands; and a token of the language model attends only to what stands before it,
so the keys and values of a prefix hold for every prompt that begins with it. Both are cached by their content.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from rewardlab.models.backends.lru_cache import LRUCache
from rewardlab.models.backends.qwen_patches import MERGE, Family, FramePair, patchify
from rewardlab.models.backends.qwen_prompt import TEXT, Ints, TokenSequence

_MAX_PATCHES = 1 << 13  # the vision tower takes the pairs of a batch together, up to so many patches
_FEATURES_SHARE = 0.5  # of the memory for reuse; the rest is for keys and values
_MIN_REUSED = 0.2  # of a prefix: if less is cached it is all read again, since attention is fastest from the start

KVCache = list[tuple[torch.Tensor, torch.Tensor]]  # keys and values (1, heads, tokens, size) of each layer
Features = dict[str, torch.Tensor]  # of pairs of frames, by their key: (1 + deepstack layers, tokens, size)


@dataclass
class DecoderState:
    """A batch while it is decoded: the next token's logits per row, and what it takes to go on."""

    logits: torch.Tensor  # (rows, vocabulary), float32
    kv_cache: Any  # of transformers
    mask: torch.Tensor  # (rows, tokens so far): 0 at padding
    position: Ints  # (rows,): where the next token stands


class QwenNetwork:
    """The weights of one checkpoint, and what is cached for reuse."""

    def __init__(self, model: Any, family: Family, reuse_bytes: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.family = family
        self.device = str(model.device)
        self.reuse = reuse_bytes > 0
        self.features: LRUCache[torch.Tensor] = LRUCache(int(reuse_bytes * _FEATURES_SHARE))
        self.prefixes: LRUCache[tuple[TokenSequence, KVCache]] = LRUCache(int(reuse_bytes * (1 - _FEATURES_SHARE)))

    def prefill(self, prompts: Sequence[TokenSequence]) -> Iterator[DecoderState]:
        """Yield the states after all prompts in their order; neighbours with the same prefix are one batch."""
        for some in [prompts] if self.reuse else [[prompt] for prompt in prompts]:
            features = self._encode([pair for prompt in some for pair in prompt.pairs])
            for _, group in groupby(some, key=lambda prompt: prompt.prefix_key):
                yield self._prefill_group(list(group), features)

    def decode(self, state: DecoderState, tokens: torch.Tensor) -> DecoderState:
        """Return the state after one more token per row."""
        mask = torch.cat([state.mask, state.mask.new_ones(len(tokens), 1)], dim=1)
        positions = torch.from_numpy(np.tile(state.position[None, :, None], (3, 1, 1)))
        with torch.inference_mode():
            embedded = self.model.get_input_embeddings()(tokens[:, None])
            logits = self._forward(embedded, positions, mask, state.kv_cache, {})
        return DecoderState(logits, state.kv_cache, mask, state.position + 1)

    def _prefill_group(self, group: Sequence[TokenSequence], features: Features) -> DecoderState:
        """Read prompts with the same prefix: it alone first, if several go on from it."""
        with torch.inference_mode():
            if not self.reuse:
                return self._read(group, 0, [], features)
            length = min(group[0].prefix_length, min(map(len, group)) - 1)  # one token at least is left to read
            prefix = group[0].truncated(length)
            cached, kv_cache = self._cached_prefix(prefix)
            if cached < length and len(group) > 1:
                kv_cache = self._store(prefix, self._read([prefix], cached, kv_cache, features))
                cached = length
            state = self._read(group, cached, kv_cache, features)
            if cached < length:
                self._store(prefix, state)
            return state

    def _cached_prefix(self, prompt: TokenSequence) -> tuple[int, KVCache]:
        """Return how many of these tokens, from the first on, are cached already, and their keys and values."""
        common = {key: prompt.common_prefix(other) for key, (other, _) in self.prefixes.items()}
        best = max(common, key=lambda key: common[key], default="")
        found = self.prefixes.get(best)
        if found is None or common[best] < _MIN_REUSED * len(prompt):
            return 0, []
        return common[best], _first_tokens(found[1], common[best])

    def _store(self, prefix: TokenSequence, state: DecoderState) -> KVCache:
        kv_cache = _first_tokens([(layer.keys, layer.values) for layer in state.kv_cache.layers], len(prefix))
        size = sum(keys.nbytes + values.nbytes for keys, values in kv_cache)
        self.prefixes.put(prefix.prefix_key, (replace(prefix, pairs=()), kv_cache), size)
        return kv_cache

    def _read(self, rows: Sequence[TokenSequence], start: int, kv_cache: KVCache, features: Features) -> DecoderState:
        """Read the tokens from `start` on; shorter rows are padded on the left."""
        from transformers import DynamicCache

        longest = max(map(len, rows)) - start
        padding = [longest - (len(row) - start) for row in rows]
        ids, positions = (np.zeros((*shape, len(rows), longest), np.int64) for shape in ((), (3,)))
        visual = np.zeros(ids.shape, np.bool_)
        for i, row in enumerate(rows):
            ids[i, padding[i] :] = row.ids[start:]
            positions[:, i, padding[i] :] = row.positions[:, start:]
            visual[i, padding[i] :] = row.kinds[start:] != TEXT
        mask = torch.ones(len(rows), start + longest, dtype=torch.long, device=self.device)
        for i, empty in enumerate(padding):
            mask[i, start : start + empty] = 0
        repeated = [tuple(part.expand(len(rows), -1, -1, -1) for part in layer) for layer in kv_cache]
        cache = DynamicCache(repeated) if kv_cache else DynamicCache()
        embedded = self.model.get_input_embeddings()(torch.from_numpy(ids).to(self.device))
        deepstack = self._insert_features(embedded, torch.from_numpy(visual).to(self.device), rows, start, features)
        logits = self._forward(embedded, torch.from_numpy(positions), mask, cache, deepstack)
        return DecoderState(logits, cache, mask, np.array([int(row.positions.max()) + 1 for row in rows]))

    def _insert_features(
        self,
        embedded: torch.Tensor,
        visual: torch.Tensor,
        rows: Sequence[TokenSequence],
        start: int,
        features: Features,
    ) -> dict[str, Any]:
        """Put features where images and videos stand, and return what the deeper layers are given of them."""
        if not visual.any():
            return {}
        shown = [torch.cat([features[pair.key] for pair in row.pairs], dim=1) for row in rows if row.pairs]
        skipped = [int((row.kinds[:start] != TEXT).sum()) for row in rows if row.pairs]
        inserted = torch.cat([part[:, skip:] for part, skip in zip(shown, skipped)], dim=1)
        embedded[visual] = inserted[0]
        if len(inserted) == 1:
            return {}
        return {"visual_pos_masks": visual, "deepstack_visual_embeds": list(inserted[1:])}

    def _forward(
        self, embedded: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Any, deepstack: dict[str, Any]
    ) -> torch.Tensor:
        output = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=positions.to(self.device),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **deepstack,
        )
        return self.model.lm_head(output.last_hidden_state[:, -1]).float()

    def _encode(self, pairs: Sequence[FramePair]) -> Features:
        """Return the features of each pair; those in the cache are not computed again."""
        features = {pair.key: self.features.get(pair.key) for pair in pairs}
        missing = {pair.key: pair for pair in pairs if features[pair.key] is None}
        for batch in _batches(list(missing.values()), self.family):
            with torch.inference_mode():
                encoded = self._run_vision_tower(batch)
            for pair, value in zip(batch, encoded):
                features[pair.key] = value
                self.features.put(pair.key, value, value.nbytes)
        return {key: value for key, value in features.items() if value is not None}

    def _run_vision_tower(self, pairs: Sequence[FramePair]) -> Sequence[torch.Tensor]:
        patches = torch.cat([patchify(pair, self.family, self.device) for pair in pairs])
        grid = torch.tensor([[1, *(length // self.family.patch_size for length in pair.size)] for pair in pairs])
        tower = self.model.model.visual
        output = tower(patches.to(tower.dtype), grid_thw=grid.to(self.device))
        deepstack = output.deepstack_features if self.family.deepstack else []
        features = torch.stack([output.pooler_output, *deepstack])
        parts = features.split((grid.prod(dim=1) // MERGE**2).tolist(), dim=1)
        return [part.clone() for part in parts]  # a view would keep the whole batch alive


def _batches(pairs: Sequence[FramePair], family: Family) -> list[list[FramePair]]:
    """Return the pairs in batches that the vision tower can take at once."""
    batches: list[list[FramePair]] = [[]]
    patches = 0
    for pair in pairs:
        own = pair.size[0] * pair.size[1] // family.patch_size**2
        if batches[-1] and patches + own > _MAX_PATCHES:
            batches.append([])
            patches = 0
        batches[-1].append(pair)
        patches += own
    return [batch for batch in batches if batch]


def _first_tokens(kv_cache: KVCache, tokens: int) -> KVCache:
    return [(keys[:, :, :tokens], values[:, :, :tokens]) for keys, values in kv_cache]
