"""How prompts of Qwen-VL lie together in one pass of the language model: one below the other, or one after the other.

Whole prompts stand below each other, padded on the right, where no token sees the padding: a causal pass needs no mask
then, and attention is at its fastest. Prompts that go on from one prefix follow each other in a single row, so that the
keys and values of the prefix are there once; a mask keeps them apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.models.backends.qwen_prompt import TEXT, Ints, TokenSequence

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
    for owner, (prompt, end) in enumerate(zip(prompts, ends.tolist())):
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
