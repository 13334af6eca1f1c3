"""Keys and values of prefixes of prompts, cached by the content of their tokens."""

from dataclasses import replace
from typing import Any

import torch

from rewardlab.models.backends.lru_cache import LRUCache
from rewardlab.models.backends.qwen_prompt import TokenSequence

# Of a prefix: if less is cached it is all read again, together with other prompts. What goes on from a cached prefix is
# read alone, and a GPU is hardly busy with one prompt.
_MIN_REUSED = {"cuda": 0.9, "cpu": 0.5}

KVCache = list[tuple[torch.Tensor, torch.Tensor]]  # keys and values (1, heads, tokens, size) of each layer


class PrefixCache:
    """What was read of prompts that others begin with too, in at most so many bytes."""

    def __init__(self, max_bytes: int, device: torch.device) -> None:
        self.cache: LRUCache[tuple[TokenSequence, KVCache]] = LRUCache(max_bytes)
        self.min_reused = _MIN_REUSED[device.type]

    def longest(self, prompt: TokenSequence) -> tuple[int, KVCache]:
        """Return how many of these tokens, from the first on, are cached already, and their keys and values."""
        common = {key: prompt.common_prefix(other) for key, (other, _) in self.cache.items()}
        best = max(common, key=lambda key: common[key], default="")
        found = self.cache.get(best)
        if found is None or common[best] < max(1, self.min_reused * len(prompt)):
            return 0, []
        return common[best], [_first_tokens(*layer, common[best]) for layer in found[1]]

    def store(self, prompt: TokenSequence, kv_cache: Any, row: int) -> KVCache:
        """Keep the prefix of a prompt that stands in a row of a cache of transformers, and return it.

        It is copied, since a view would keep the whole batch alive.
        """
        prefix = prompt.truncated(prompt.prefix_length)
        rows = [(layer.keys[row : row + 1], layer.values[row : row + 1]) for layer in kv_cache.layers]
        parts = [_first_tokens(*layer, len(prefix)) for layer in rows]
        size = sum(keys.nbytes + values.nbytes for keys, values in parts)
        if size > self.cache.max_bytes:
            return parts
        copied = [(keys.clone(), values.clone()) for keys, values in parts]
        self.cache.put(prefix.prefix_key, (replace(prefix, pairs=()), copied), size)
        return copied


def _first_tokens(keys: torch.Tensor, values: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return keys[:, :, :tokens], values[:, :, :tokens]
