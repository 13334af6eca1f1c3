"""The networks of Qwen-VL: pairs of frames to features, tokens to the likelihood of the next one, with reuse.

The vision tower of Qwen2.5-VL and Qwen3-VL attends within a pair of frames, never across pairs, so the features of a
pair are the same in whatever video it stands; and a token of the language model sees only what stands before it, so
the keys and values of a beginning hold for every prompt that begins like it. Both are kept by their content.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from rewardlab.models.backends.lru_cache import Shelf
from rewardlab.models.backends.qwen_patches import MERGE, Family, Pair, patchify
from rewardlab.models.backends.qwen_prompt import TEXT, Ints, Prompt

_PATCHES_AT_ONCE = 1 << 13  # the tower takes the pairs of a batch together, up to so many patches
_FEATURES_SHARE = 0.5  # of the memory for reuse; the rest is for keys and values
_WORTHWHILE = 0.2  # of a beginning: if less is known it is all read again, since attention is fastest from the start

Memory = list[tuple[torch.Tensor, torch.Tensor]]  # keys and values (1, heads, tokens, size) of each layer


@dataclass
class Answers:
    """A batch in the middle of an answer: the next token's logits per row, and what it takes to go on."""

    logits: torch.Tensor  # (rows, vocabulary), float32
    memory: Any  # the cache of transformers
    mask: torch.Tensor  # (rows, tokens so far): 0 at padding
    position: Ints  # (rows,): where the next token stands


class Network:
    """The weights of one checkpoint, and what is kept for reuse."""

    def __init__(self, model: Any, family: Family, reuse_bytes: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.family = family
        self.device = str(model.device)
        self.reuse = reuse_bytes > 0
        self.features: Shelf[torch.Tensor] = Shelf(int(reuse_bytes * _FEATURES_SHARE))
        self.beginnings: Shelf[tuple[Prompt, Memory]] = Shelf(int(reuse_bytes * (1 - _FEATURES_SHARE)))

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[Answers]:
        """Yield the answers of all prompts in their order; neighbours with the same beginning are one batch."""
        for some in [prompts] if self.reuse else [[prompt] for prompt in prompts]:
            seen = self._see([pair for prompt in some for pair in prompt.pairs])
            for _, group in groupby(some, key=lambda prompt: prompt.shared_name):
                yield self._ask_together(list(group), seen)

    def go_on(self, answers: Answers, tokens: torch.Tensor) -> Answers:
        """Return the answers after one more token per row."""
        mask = torch.cat([answers.mask, answers.mask.new_ones(len(tokens), 1)], dim=1)
        positions = torch.from_numpy(np.tile(answers.position[None, :, None], (3, 1, 1)))
        with torch.inference_mode():
            embedded = self.model.get_input_embeddings()(tokens[:, None])
            logits = self._run(embedded, positions, mask, answers.memory, {})
        return Answers(logits, answers.memory, mask, answers.position + 1)

    def _ask_together(self, group: Sequence[Prompt], seen: dict[str, torch.Tensor]) -> Answers:
        """Read prompts with the same beginning: it alone first, if several go on from it."""
        with torch.inference_mode():
            if not self.reuse:
                return self._read(group, 0, [], seen)
            start = min(group[0].shared, min(map(len, group)) - 1)  # one token at least is left to read
            beginning = group[0].cut(start)
            known, memory = self._known(beginning)
            if known < start and len(group) > 1:
                memory = self._keep(beginning, self._read([beginning], known, memory, seen))
                known = start
            answers = self._read(group, known, memory, seen)
            if known < start:
                self._keep(beginning, answers)
            return answers

    def _known(self, prompt: Prompt) -> tuple[int, Memory]:
        """Return how many of these tokens, from the first on, are known already, and their keys and values."""
        common = {name: prompt.common(other) for name, (other, _) in self.beginnings.things()}
        best = max(common, key=lambda name: common[name], default="")
        found = self.beginnings.take(best)
        if found is None or common[best] < _WORTHWHILE * len(prompt):
            return 0, []
        return common[best], _first(found[1], common[best])

    def _keep(self, beginning: Prompt, answers: Answers) -> Memory:
        memory = _first([(layer.keys, layer.values) for layer in answers.memory.layers], len(beginning))
        size = sum(keys.nbytes + values.nbytes for keys, values in memory)
        self.beginnings.put(beginning.shared_name, (replace(beginning, pairs=()), memory), size)
        return memory

    def _read(self, rows: Sequence[Prompt], start: int, memory: Memory, seen: dict[str, torch.Tensor]) -> Answers:
        """Read the tokens from `start` on; shorter rows are padded before them."""
        from transformers import DynamicCache

        longest = max(map(len, rows)) - start
        blank = [longest - (len(row) - start) for row in rows]
        ids, positions = (np.zeros((*shape, len(rows), longest), np.int64) for shape in ((), (3,)))
        visual = np.zeros(ids.shape, np.bool_)
        for i, row in enumerate(rows):
            ids[i, blank[i] :] = row.ids[start:]
            positions[:, i, blank[i] :] = row.positions[:, start:]
            visual[i, blank[i] :] = row.kinds[start:] != TEXT
        mask = torch.ones(len(rows), start + longest, dtype=torch.long, device=self.device)
        for i, empty in enumerate(blank):
            mask[i, start : start + empty] = 0
        repeated = [tuple(part.expand(len(rows), -1, -1, -1) for part in layer) for layer in memory]
        cache = DynamicCache(repeated) if memory else DynamicCache()
        embedded = self.model.get_input_embeddings()(torch.from_numpy(ids).to(self.device))
        extra = self._insert(embedded, torch.from_numpy(visual).to(self.device), rows, start, seen)
        logits = self._run(embedded, torch.from_numpy(positions), mask, cache, extra)
        return Answers(logits, cache, mask, np.array([int(row.positions.max()) + 1 for row in rows]))

    def _insert(
        self, embedded: torch.Tensor, visual: torch.Tensor, rows: Sequence[Prompt], start: int, seen: dict[str, Any]
    ) -> dict[str, Any]:
        """Put features where pictures stand, and return what the deeper layers are given of them."""
        if not visual.any():
            return {}
        shown = [torch.cat([seen[pair.key] for pair in row.pairs], dim=1) for row in rows if row.pairs]
        skipped = [int((row.kinds[:start] != TEXT).sum()) for row in rows if row.pairs]
        features = torch.cat([part[:, skip:] for part, skip in zip(shown, skipped)], dim=1)
        embedded[visual] = features[0]
        if len(features) == 1:
            return {}
        return {"visual_pos_masks": visual, "deepstack_visual_embeds": list(features[1:])}

    def _run(
        self, embedded: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Any, extra: dict[str, Any]
    ) -> torch.Tensor:
        output = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=positions.to(self.device),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **extra,
        )
        return self.model.lm_head(output.last_hidden_state[:, -1]).float()

    def _see(self, pairs: Sequence[Pair]) -> dict[str, torch.Tensor]:
        """Return the features of each pair by its key, (1 + deeper layers, tokens, size); known ones are not redone."""
        seen = {pair.key: self.features.take(pair.key) for pair in pairs}
        missing = {pair.key: pair for pair in pairs if seen[pair.key] is None}
        for some in _portions(list(missing.values()), self.family):
            with torch.inference_mode():
                found = self._features(some)
            for pair, features in zip(some, found):
                seen[pair.key] = features
                self.features.put(pair.key, features, features.nbytes)
        return {key: features for key, features in seen.items() if features is not None}

    def _features(self, pairs: Sequence[Pair]) -> Sequence[torch.Tensor]:
        patches = torch.cat([patchify(pair, self.family, self.device) for pair in pairs])
        grid = torch.tensor([[1, *(length // self.family.patch for length in pair.size)] for pair in pairs])
        tower = self.model.model.visual
        output = tower(patches.to(tower.dtype), grid_thw=grid.to(self.device))
        deeper = output.deepstack_features if self.family.deep else []
        features = torch.stack([output.pooler_output, *deeper])
        parts = features.split((grid.prod(dim=1) // MERGE**2).tolist(), dim=1)
        return [part.clone() for part in parts]  # a view would keep the whole batch alive


def _portions(pairs: Sequence[Pair], family: Family) -> list[list[Pair]]:
    """Return the pairs in portions that the tower can take at once."""
    portions: list[list[Pair]] = [[]]
    patches = 0
    for pair in pairs:
        own = pair.size[0] * pair.size[1] // family.patch**2
        if portions[-1] and patches + own > _PATCHES_AT_ONCE:
            portions.append([])
            patches = 0
        portions[-1].append(pair)
        patches += own
    return [portion for portion in portions if portion]


def _first(memory: Memory, tokens: int) -> Memory:
    return [(keys[:, :, :tokens], values[:, :, :tokens]) for keys, values in memory]
