"""The vision tower of Qwen-VL: pairs of frames to features, of which those seen before are not worked out again.

The towers of Qwen2.5-VL and Qwen3-VL attend within a pair of frames, never across pairs, so the features of a pair are
the same in whatever video it stands.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rewardlab.models.backends.lru_cache import LRUCache
from rewardlab.models.backends.qwen_kernels import attention_without_plans
from rewardlab.models.backends.qwen_patches import MERGE, Family, FramePair, patchify

_MAX_PATCHES = {"cuda": 1 << 15, "cpu": 1 << 13}  # the tower takes the pairs of a batch together, up to so many

Features = dict[str, torch.Tensor]  # of pairs of frames, by their key: (1 + deepstack layers, tokens, size)


class VisionEncoder:
    """A vision tower, and the features it gave, in at most so many bytes."""

    def __init__(self, tower: Any, family: Family, cache_bytes: int) -> None:
        self.tower = tower
        self.family = family
        self.cache: LRUCache[torch.Tensor] = LRUCache(cache_bytes)

    def encode(self, pairs: Sequence[FramePair]) -> Features:
        """Return the features of each pair; those in the cache are not computed again."""
        features = {pair.key: self.cache.get(pair.key) for pair in pairs}
        missing = {pair.key: pair for pair in pairs if features[pair.key] is None}
        for batch in _batches(list(missing.values()), _MAX_PATCHES[self.tower.device.type] * self.family.patch_size**2):
            with torch.inference_mode(), attention_without_plans():
                encoded = self._run(batch)
            for pair, value in zip(batch, encoded):
                features[pair.key] = value
                self.cache.put(pair.key, value, value.nbytes)
        return {key: value for key, value in features.items() if value is not None}

    def _run(self, pairs: Sequence[FramePair]) -> Sequence[torch.Tensor]:
        """Return the features of pairs of the same size."""
        device = self.tower.device
        patches = patchify(pairs, self.family, device)
        size = [length // self.family.patch_size for length in pairs[0].size]
        grid = torch.tensor([[len(pairs), *size]], device=device)  # as one video, whose pairs do not see each other
        output = self.tower(patches.to(self.tower.dtype), grid_thw=grid)
        deepstack = output.deepstack_features if self.family.deepstack else []
        features = torch.stack([output.pooler_output, *deepstack])
        parts = features.split(size[0] * size[1] // MERGE**2, dim=1)
        return [part.clone() for part in parts]  # a view would keep the whole batch alive


def _batches(pairs: Sequence[FramePair], pixels: int) -> Iterator[list[FramePair]]:
    """Yield the pairs in batches of one size, of so many pixels at most."""
    alike: dict[tuple[object, ...], list[FramePair]] = {}
    for pair in pairs:
        alike.setdefault((pair.frames.shape, pair.size), []).append(pair)
    for group in alike.values():
        height, width = group[0].size
        most = max(1, pixels // (height * width))
        yield from (group[start : start + most] for start in range(0, len(group), most))
