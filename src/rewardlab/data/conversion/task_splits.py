"""Splits of a dataset: no task, and no video, is in two of them."""

from collections.abc import Mapping, Sequence

from rewardlab.core.episode import Episode
from rewardlab.core.seeding import rng_for

Pair = tuple[str, str]  # ids of episodes that must not be parted


def task_key(episode: Episode) -> str:
    """Return what tells tasks apart: the words of the task, whatever their case, spaces and full stop."""
    return " ".join((episode.origin.task or episode.instruction).casefold().split()).rstrip(".!")


def split_by_task(
    episodes: Sequence[Episode], shares: Mapping[str, float], together: Sequence[Pair], seed: int
) -> dict[str, str]:
    """Return the split of each episode by its id; tasks come in random order, each to the split that lacks most."""
    groups = _joined_tasks(episodes, together)
    counts: dict[str, int] = {}
    for episode in episodes:
        group = groups[task_key(episode)]
        counts[group] = counts.get(group, 0) + 1
    names = sorted(counts)
    order = rng_for(seed, "splits").permutation(len(names))
    chosen: dict[str, str] = {}
    filled = dict.fromkeys(shares, 0)
    for name in (names[place] for place in order):
        split = max(shares, key=lambda each: shares[each] * len(episodes) - filled[each])
        chosen[name] = split
        filled[split] += counts[name]
    return {episode.id: chosen[groups[task_key(episode)]] for episode in episodes}


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
