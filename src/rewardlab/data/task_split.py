"""Splits by task: no task, and no video, is in two of them.

One rule deals whole tasks out to parts (`deal`); who draws the order keeps its own draw, on which stored results rest.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for

Group = TypeVar("Group", bound=Hashable)
Part = TypeVar("Part", bound=Hashable)
Pair = tuple[str, str]  # ids of episodes that must not be parted


def task_key(episode: Episode) -> str:
    """Return what tells tasks apart: the words of the task, whatever their case, spaces and full stop."""
    return text_key(episode.provenance.task or episode.instruction)


def text_key(task: str) -> str:
    """Return the words of a task, whatever their case, spaces and full stop."""
    return " ".join(task.casefold().split()).rstrip(".!")


def parse_shares(splits: Sequence[str]) -> dict[str, float]:
    """Return the share of each split of NAME=SHARE, together 1; none where nothing is split."""
    pairs = [text.partition("=") for text in splits]
    try:
        found = {name.strip(): float(share) for name, _, share in pairs}
    except ValueError:
        raise PlanError(f"splits must be NAME=SHARE with commas between, got {','.join(splits)!r}") from None
    if len(found) != len(pairs) or not all(name.isidentifier() for name in found):
        raise PlanError(f"the names of splits must be words, each once, got {','.join(splits)!r}")
    if found and (min(found.values()) <= 0 or not math.isclose(sum(found.values()), 1, abs_tol=1e-6)):
        raise PlanError(f"the shares of splits must be above 0 and 1 together, got {','.join(splits)!r}")
    return found


def split_by_task(
    episodes: Sequence[Episode], shares: Mapping[str, float], together: Sequence[Pair], seed: int
) -> dict[str, str]:
    """Return the split of each episode by its id; tasks come in random order, each to the split that lacks most."""
    groups = _joined_tasks(episodes, together)
    counts = Counter(groups[task_key(episode)] for episode in episodes)
    names = sorted(counts)
    order = rng_for(seed, "splits").permutation(len(names))
    chosen = deal({names[place]: counts[names[place]] for place in order}, shares)
    return {episode.id: chosen[groups[task_key(episode)]] for episode in episodes}


def deal(sizes: Mapping[Group, int], shares: Mapping[Part, float]) -> dict[Group, Part]:
    """Return the part of each group: in the order given, each goes whole to the part that lacks most of its share."""
    total, filled = sum(sizes.values()), dict.fromkeys(shares, 0)
    chosen: dict[Group, Part] = {}
    for group, size in sizes.items():
        part = max(shares, key=lambda each: shares[each] * total - filled[each])
        chosen[group] = part
        filled[part] += size
    return chosen


def _joined_tasks(episodes: Sequence[Episode], together: Sequence[Pair]) -> dict[str, str]:
    """Return the group of each task: tasks are in one where an episode of one has the video of another."""
    parents = {task_key(episode): task_key(episode) for episode in episodes}
    tasks = {episode.id: task_key(episode) for episode in episodes}

    def root(task: str) -> str:
        while parents[task] != task:
            task = parents[task]
        return task

    for a, b in together:
        first, second = sorted((root(tasks[a]), root(tasks[b])))
        parents[second] = first
    return {task: root(task) for task in parents}
