"""How far an instruction is from those of the reference data, by its letters: 0 is one of them, 1 shares nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence

_LENGTH = 3  # letters that are counted together


def nearest_distance(instruction: str, known: Iterable[str]) -> float:
    """Return the cosine distance of letter trigrams to the nearest known instruction; 1 where none is known."""
    own = _trigrams(instruction)
    return min((_distance(own, _trigrams(each)) for each in known), default=1.0)


def distances(instructions: Sequence[str], groups: Sequence[str]) -> list[float]:
    """Return the distance of each instruction to the nearest one of another group: what it would be, were it new."""
    known = {(group, instruction) for group, instruction in zip(groups, instructions)}
    cache: dict[tuple[str, str], float] = {}
    for group, instruction in known:
        others = [other for its_group, other in known if its_group != group]
        cache[group, instruction] = nearest_distance(instruction, others)
    return [cache[group, instruction] for group, instruction in zip(groups, instructions)]


def _trigrams(text: str) -> Counter[str]:
    padded = f"  {' '.join(text.lower().split())} "
    return Counter(padded[start : start + _LENGTH] for start in range(len(padded) - _LENGTH + 1))


def _distance(one: Counter[str], other: Counter[str]) -> float:
    product = sum(count * other[key] for key, count in one.items())
    lengths = sum(n * n for n in one.values()) * sum(n * n for n in other.values())
    return max(0.0, 1 - product / lengths**0.5) if lengths else 1.0
