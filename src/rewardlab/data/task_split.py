"""Splits by task: no task, and no video, is in two of them.

One function splits (`split_by_task`), one rule deals whole tasks out to parts (`deal`); who draws the order keeps its
own draw, on which stored results rest.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for

Group = TypeVar("Group", bound=Hashable)
Part = TypeVar("Part", bound=Hashable)
Pair = tuple[int, int]  # places of items that must not be parted


def task_and_video(episode: Episode) -> tuple[str, str]:
    """Return what must not be in two parts: the task of an episode, as `text_key` has it, and its video."""
    return text_key(episode.provenance.task or episode.instruction), episode.clip.source.digest


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
    items: Sequence[tuple[str, str]],
    draw: Callable[[dict[str, int]], Mapping[str, Part]],
    together: Sequence[Pair] = (),
) -> list[Part]:
    """Return the part of each item of a task and a video; all that shares a task or a video, or is a pair, is in one.

    `draw` gets the number of items in each group, by the first of its tasks in alphabetical order, and returns the part
    of each group.
    """
    parents = {task: task for task, _ in items}

    def root(task: str) -> str:
        while parents[task] != task:
            parents[task] = task = parents[parents[task]]
        return task

    first: dict[str, str] = {}
    shared = [(first.setdefault(video, task), task) for task, video in items]
    for a, b in (*shared, *((items[a][0], items[b][0]) for a, b in together)):
        least, other = sorted((root(a), root(b)))
        parents[other] = least
    groups = [root(task) for task, _ in items]
    chosen = draw(dict(sorted(Counter(groups).items())))
    return [chosen[group] for group in groups]


def split_by_shares(
    episodes: Sequence[Episode], shares: Mapping[str, float], together: Sequence[tuple[str, str]], seed: int
) -> dict[str, str]:
    """Return the split of each episode by its id; tasks come in random order, each to the split that lacks most.

    PlanError where a split has none.
    """
    groups = 0

    def draw(counts: dict[str, int]) -> dict[str, str]:
        nonlocal groups
        names, groups = list(counts), len(counts)
        order = rng_for(seed, "splits").permutation(len(names))
        return deal({names[place]: counts[names[place]] for place in order}, shares)

    place = {episode.id: number for number, episode in enumerate(episodes)}
    pairs = [(place[a], place[b]) for a, b in together]
    parts = split_by_task([task_and_video(episode) for episode in episodes], draw, pairs)
    if empty := [name for name in shares if name not in parts]:
        raise PlanError(
            f"the split {empty[0]!r} would be empty: {len(shares)} splits of {groups} tasks (those that share a video "
            "count as one); add tasks, or name fewer splits, such as --splits train=0.8,test=0.2"
        )
    return {episode.id: part for episode, part in zip(episodes, parts, strict=True)}


def deal(sizes: Mapping[Group, int], shares: Mapping[Part, float]) -> dict[Group, Part]:
    """Return the part of each group: in the order given, each goes whole to the part that lacks most of its share.

    The last groups go to the parts that are still empty, so that none stays so where there is a group for each.
    """
    total, filled = sum(sizes.values()), dict.fromkeys(shares, 0)
    chosen: dict[Group, Part] = {}
    for left, (group, size) in zip(range(len(sizes), 0, -1), sizes.items(), strict=True):
        empty = [part for part in shares if not filled[part]]
        part = max(empty if left <= len(empty) else shares, key=lambda each: shares[each] * total - filled[each])
        chosen[group] = part
        filled[part] += size
    return chosen
