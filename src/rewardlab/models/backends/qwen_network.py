"""Vision tower and decoder with cached features and KV prefixes; imports torch.

A token attends only to what stands before it, so the keys and values of a prefix hold for every prompt that begins with
it: they are cached by their content, as the features of frames are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.models.backends.fused_ops import disable_cudnn_sdpa, patch_fused_ops
from rewardlab.models.backends.qwen_prompt import MERGE, TEXT, Family, FramePair, Ints, TokenSequence, patchify
from rewardlab.models.vlm import LRUCache

SHARED, PADDING = -1, -2  # owners of tokens that every prompt of a row sees, or none


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Tokens (rows, length) to read in one pass; `owners` says which prompt of its row a token belongs to."""

    ids: Ints
    positions: Ints  # (3, rows, length)
    visual: NDArray[np.bool_]
    owners: Ints
    last: tuple[Ints, Ints]  # row and place of each prompt's last token
    next_position: Ints  # (prompts,)


def stack_prompts(prompts: Sequence[TokenSequence]) -> TokenBatch:
    """Return whole prompts, one below the other."""
    shape = len(prompts), max(map(len, prompts))
    batch = _empty(shape, prompts)
    for row, prompt in enumerate(prompts):
        _write(batch, row, slice(0, len(prompt)), prompt, 0, owner=0)
    batch.last[0][:] = np.arange(len(prompts))
    batch.last[1][:] = [len(prompt) - 1 for prompt in prompts]
    return batch


def chain_prompts(prompts: Sequence[TokenSequence], start: int) -> TokenBatch:
    """Return what follows the first `start` tokens, which the prompts have in common, one after the other."""
    ends = np.cumsum([len(prompt) - start for prompt in prompts])
    batch = _empty((1, int(ends[-1])), prompts)
    for owner, (prompt, end) in enumerate(zip(prompts, ends.tolist(), strict=True)):
        _write(batch, 0, slice(end - (len(prompt) - start), end), prompt, start, owner=owner)
    batch.last[1][:] = ends - 1
    return batch


def batch_by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield places in the list of lengths, those of like length together, up to so many tokens with padding."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > most:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _empty(shape: tuple[int, int], prompts: Sequence[TokenSequence]) -> TokenBatch:
    last = np.zeros(len(prompts), np.int64), np.zeros(len(prompts), np.int64)
    following = np.array([int(prompt.positions.max()) + 1 for prompt in prompts])
    ids, owners = np.zeros(shape, np.int64), np.full(shape, PADDING)
    return TokenBatch(ids, np.zeros((3, *shape), np.int64), np.zeros(shape, np.bool_), owners, last, following)


def _write(batch: TokenBatch, row: int, place: slice, prompt: TokenSequence, start: int, *, owner: int) -> None:
    batch.ids[row, place] = prompt.ids[start:]
    batch.positions[:, row, place] = prompt.positions[:, start:]
    batch.visual[row, place] = prompt.kinds[start:] != TEXT
    batch.owners[row, place] = owner


# Keys and values of prefixes of prompts, cached by the content of their tokens.

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
        """Keep a copy of a prompt's prefix, which stands in a row of a cache of transformers, and return it."""
        prefix = prompt.truncated(prompt.prefix_length)
        rows = [(layer.keys[row : row + 1], layer.values[row : row + 1]) for layer in kv_cache.layers]
        parts = [_first_tokens(*layer, len(prefix)) for layer in rows]
        size = sum(keys.nbytes + values.nbytes for keys, values in parts)
        if size > self.cache.max_bytes:
            return parts
        copied = [(keys.clone(), values.clone()) for keys, values in parts]  # a view would keep the whole batch alive
        self.cache.put(prefix.prefix_key, (replace(prefix, pairs=()), copied), size)
        return copied


def _first_tokens(keys: torch.Tensor, values: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    return keys[:, :, :tokens], values[:, :, :tokens]


# The vision tower of Qwen-VL: pairs of frames to features, of which those seen before are not worked out again.
#
# The towers of Qwen2.5-VL and Qwen3-VL attend within a pair of frames, never across pairs, so the features of a pair
# are the same in whatever video it stands.

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
            with torch.inference_mode(), disable_cudnn_sdpa():
                encoded = self._run(batch)
            for pair, value in zip(batch, encoded, strict=True):
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
            patch_fused_ops(model)
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
        groups: dict[str, dict[int, TokenSequence]] = {}
        for number, prompt in enumerate(prompts):
            groups.setdefault(prompt.prefix_key, {})[number] = prompt
        for group in groups.values():
            start, kv_cache = self._prefix(group, features)
            if not start:
                whole |= group
                continue
            for some in self._batches(group, start, _MAX_CHAINED):
                state = self._read(some, chain_prompts(list(some.values()), start), kv_cache, features)
                first = next(iter(some.values()))
                if start < min(first.prefix_length, len(first) - 1):
                    self.prefixes.store(first, state.kv_cache, 0)
                yield state
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
        """Return how much of their common prefix these prompts need not read; several have it read here."""
        prompts = list(group.values())
        length = min(prompts[0].prefix_length, min(map(len, prompts)) - 1)  # one token at least is left to read
        prefix = prompts[0].truncated(length)
        start, kv_cache = self.prefixes.longest(prefix)
        if start < length and len(group) > 1:
            state = self._read({0: prefix}, chain_prompts([prefix], start), kv_cache, features)
            return length, self.prefixes.store(prefix, state.kv_cache, 0)
        return start, kv_cache

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
            deepstack: dict[str, Any] = {}
            if shown:
                visual, inserted = self._on_device(batch.visual), torch.cat(shown, dim=1)
                embedded[visual] = inserted[0]
                if len(inserted) > 1:  # what the deeper layers are given
                    deepstack = {"visual_pos_masks": visual, "deepstack_visual_embeds": list(inserted[1:])}
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

    def _on_device(self, array: NDArray[Any]) -> torch.Tensor:
        """Return an array where the model is; to a GPU it is sent without waiting for the work before it."""
        tensor = torch.from_numpy(array)
        pinned = tensor.pin_memory() if self.model.device.type == "cuda" else tensor
        return pinned.to(self.device, non_blocking=True)

    def _forward(
        self, embedded: torch.Tensor, positions: Ints, mask: torch.Tensor | None, cache: Any, deepstack: dict[str, Any]
    ) -> torch.Tensor:
        is_whole = cache.get_seq_length() == 0  # whole prompts about clips of one length come often
        with nullcontext() if is_whole else disable_cudnn_sdpa():
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


def _shown(prompt: TokenSequence, start: int, features: Features) -> Iterator[torch.Tensor]:
    """Yield the features of what a prompt shows after its first `start` tokens, if it shows anything there."""
    visual = prompt.kinds != TEXT
    if visual[start:].any():
        yield torch.cat([features[pair.key] for pair in prompt.pairs], dim=1)[:, int(visual[:start].sum()) :]
