"""The only source of chance: generators that depend on names, never on order, worker or shard."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

import numpy as np

Kind = TypeVar("Kind")


def digest(*parts: str | int | float | bytes | None) -> str:
    """Return 16 hex characters that identify the parts and their boundaries."""
    hasher = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else f"{type(part).__name__}:{part}".encode()
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()


def rng_for(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator that belongs to this seed and these names, the same in every process."""
    return np.random.Generator(np.random.SFC64(int(digest(seed, *names), 16)))


def pick(many: Sequence[Kind], rng: np.random.Generator) -> Kind:
    """Return one of many, each as likely as any other."""
    return many[int(rng.integers(len(many)))]
