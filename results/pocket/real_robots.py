"""What a model makes of recordings of real robots: demonstrations, and clips with a known outcome.

    python results/pocket/real_robots.py demonstrations DATASET --models pocket,motion --out real_robots.csv
    python results/pocket/real_robots.py outcomes sample --models pocket,motion --out real_robots.csv

`demonstrations`: how often a demonstration scores higher under its own instruction than under another of its source
(any, then those that share the verb, the object, or both, by the parser), whole than its first half, and forwards than
backwards, by the expected level, a tie counting half. `MODEL, words shuffled` reads own and other instructions in
random order. `outcomes`: success AUC within each source, and its difference to that of the best control that counts
moving pixels. Intervals are 95 %, bootstraps over instructions.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, rearrange
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.replay import trial_replay
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel

CONTROLS = ("motion", "end-motion", "change", "length", "random")
MOVING = CONTROLS[:3]
SHARED = {1: "another instruction", 2: "same verb", 3: "same object", 4: "same verb and object"}
OTHERS = 3  # other instructions of each clip
DRAWS, BATCH = 10_000, 16
Doubles = NDArray[np.float64]
Row = tuple[str, str, str, float, float, float, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("demonstrations", "outcomes"))
    parser.add_argument("data")
    parser.add_argument("--models", default="pocket")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    episodes = open_dataset(arguments.data).episodes
    names = [*arguments.models.split(","), *(name for name in CONTROLS if name not in arguments.models.split(","))]
    measure = demonstrations if arguments.what == "demonstrations" else outcomes
    rows = [(name, Path(arguments.data).name, *row) for name, *row in measure(names, episodes)]
    for name, data, what, value, low, high, count in rows:
        print(f"{name:26} {data:14} {what:42} {value:6.3f} [{low:.3f}, {high:.3f}] {count:5}")
    if arguments.out:
        new = not arguments.out.exists()
        with arguments.out.open("a", newline="", encoding="utf-8") as handle:
            table = csv.writer(handle, lineterminator="\n")
            table.writerows([("model", "data", "what", "value", "low", "high", "n")] if new else [])
            table.writerows((*row[:3], *(round(value, 4) for value in row[3:6]), row[6]) for row in rows)


def demonstrations(names: Sequence[str], episodes: Sequence[Episode]) -> list[tuple[object, ...]]:
    shown = [sample_frames(episode, frame_policy("uniform:16")) for episode in episodes]
    task = np.unique([episode.instruction.lower() for episode in episodes], return_inverse=True)[1]
    swapped = {what: _swapped(episodes, shown, severity) for severity, what in SHARED.items()}
    halves = [sample_frames(_first_half(episode), frame_policy("uniform:16")) for episode in episodes]
    backwards = [sample_frames(_backwards(episode), frame_policy("uniform:16")) for episode in episodes]
    every = np.arange(len(shown))
    asked = {"whole": (every, shown), "first half": (every, halves), "backwards": (every, backwards)} | swapped
    # in the order of the clips: a model that keeps encoded frames meets them again at once
    order = np.argsort(np.concatenate([at for at, _ in asked.values()]), kind="stable")
    rows = []
    for name in names:
        model = name_model(name).build()
        for title, read in ((name, _as_it_is), (f"{name}, words shuffled", _shuffled)):
            if read is _shuffled and name in CONTROLS:
                continue
            clips = [read(clip) for _, some in asked.values() for clip in some]
            levels = np.empty(len(clips))
            levels[order] = expected(model, [clips[place] for place in order])
            parts = np.split(levels, np.cumsum([len(at) for at, _ in asked.values()])[:-1])
            said = dict(zip(asked, parts, strict=True))
            for what in (*swapped, "first half", "backwards"):
                at, other = asked[what][0], said[what]
                own = said["whole"][at]
                wins = (own > other) + 0.5 * (own == other)
                if len(wins):
                    rows.append((title, f"own above: {what}", *_interval(wins, task[at]), len(wins)))
    return rows


def _swapped(
    episodes: Sequence[Episode], shown: Sequence[Episode], severity: int
) -> tuple[NDArray[np.int64], list[Episode]]:
    """Return clips under other instructions of their source, and which clip each of them is."""
    at, clips = [], []
    for seed in range(OTHERS):
        replay = trial_replay(tuple(episodes), ("instruction_swap",), "uniform:16", seed)
        for number, episode in enumerate(episodes):
            try:
                text = replay.change(episode.id, "instruction_swap", severity).episode.instruction
            except DataError:
                continue
            at.append(number)
            clips.append(replace(shown[number], instruction=text))
    return np.array(at, dtype=np.int64), clips


def _first_half(episode: Episode) -> Episode:
    return rearrange(episode, np.arange(max(1, len(episode.clip) // 2)))


def _backwards(episode: Episode) -> Episode:
    return rearrange(episode, np.arange(len(episode.clip))[::-1])


def _as_it_is(episode: Episode) -> Episode:
    return episode


def _shuffled(episode: Episode) -> Episode:
    words = episode.instruction.split()
    order = rng_for(0, "shuffled", episode.instruction).permutation(len(words))
    return replace(episode, instruction=" ".join(words[place] for place in order))


def expected(model: RewardModel, clips: Sequence[Episode]) -> Doubles:
    """Return the mean level by the probabilities of a model, or its level; nan where it has no answer."""
    found = []
    for start in range(0, len(clips), BATCH):
        for answer in model.score(clips[start : start + BATCH]):
            known = isinstance(answer, Score)
            levels = answer.probabilities if known else ()
            found.append(float(np.arange(1, 6) @ np.array(levels)) if levels else answer.level if known else np.nan)
    return np.array(found)


def outcomes(names: Sequence[str], episodes: Sequence[Episode]) -> list[tuple[object, ...]]:
    known = [episode for episode in episodes if episode.label.success is not None]
    shown = [sample_frames(episode, frame_policy("uniform:16")) for episode in known]
    done = np.array([episode.label.success for episode in known])
    source = np.array([episode.provenance.subset for episode in known])
    task = np.unique([episode.instruction.lower() for episode in known], return_inverse=True)[1]
    levels = {name: expected(name_model(name).build(), shown) for name in names}
    draws = rng_for(0, "outcomes").multinomial(task.max() + 1, np.full(task.max() + 1, 1 / (task.max() + 1)), DRAWS)
    areas = {name: _area_within(values, done, source, draws[:, task]) for name, values in levels.items()}
    best = max(MOVING, key=lambda name: areas[name][0])
    rows: list[tuple[object, ...]] = []
    for name in names:
        rows.append((name, "success AUC within source", *_summary(areas[name]), len(known)))
        if name not in CONTROLS:
            rows.append((name, f"the same minus that of {best}", *_summary(areas[name] - areas[best]), len(known)))
    return rows


def _area_within(
    values: Doubles, done: NDArray[np.bool_], source: NDArray[np.str_], weight: NDArray[np.int64]
) -> Doubles:
    """Return the share of pairs of one source that are ordered rightly: of all clips, then of each draw."""
    weights = np.concatenate([np.ones((1, len(values))), weight])
    right, pairs = np.zeros(len(weights)), np.zeros(len(weights))
    for one in np.unique(source):
        good, bad = (np.flatnonzero((source == one) & (done == outcome)) for outcome in (True, False))
        above = (values[good][:, None] > values[bad]) + 0.5 * (values[good][:, None] == values[bad])
        right += np.einsum("dg,db,gb->d", weights[:, good], weights[:, bad], above, optimize=True)
        pairs += weights[:, good].sum(1) * weights[:, bad].sum(1)
    return right / pairs


def _summary(values: Doubles) -> tuple[float, float, float]:
    return (float(values[0]), *map(float, np.nanpercentile(values[1:], (2.5, 97.5))))


def _interval(values: Doubles, task: NDArray[np.int64]) -> tuple[float, float, float]:
    _, group = np.unique(task, return_inverse=True)
    sums, counts = np.bincount(group, values), np.bincount(group)
    drawn = rng_for(0, "demonstrations").multinomial(len(sums), np.full(len(sums), 1 / len(sums)), DRAWS)
    return _summary(np.concatenate([[values.mean()], drawn @ sums / (drawn @ counts)]))


if __name__ == "__main__":
    main()
