"""To how much of a dataset each semantic perturbation applies, and why it does not apply to the rest.

    python benchmarks/instruction_coverage.py [--reasons 3] [--texts NAME] DATA ...

DATA is a dataset, or the instructions of a world: `metaworld` or `tabletop`, each taken for a success. The table has
the share of trials, an episode at one of the severities 1 to 4, to which a perturbation applies. Below it stand the
most frequent reasons with their counts; `--texts` prints what one perturbation writes instead.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from rewardlab.core.episode import Episode, Label, Provenance, episode_from_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.data import open_dataset
from rewardlab.perturbations import SEMANTIC
from rewardlab.perturbations.contract import Perturbation
from rewardlab.worlds.metaworld import instructions
from rewardlab.worlds.tabletop import goals
from rewardlab.worlds.tabletop.catalog import KINDS

SEVERITIES = (1, 2, 3, 4)


@dataclass
class Coverage:
    """Trials of a perturbation: those that it applies to, and why it does not apply to the others."""

    trials: int = 0
    written: list[tuple[str, int, str]] = field(default_factory=list)  # instruction, severity, new instruction
    reasons: Counter[str] = field(default_factory=Counter)


def metaworld_texts() -> list[tuple[str, str]]:
    """Return every instruction of Meta-World with its task."""
    lists = instructions.phrasings().items()
    return [(text.replace("{where}", "10 cm to the left"), task) for task, kinds in lists for text in kinds["train"]]


def tabletop_texts() -> list[tuple[str, str]]:
    """Return ten instructions of the tabletop for each way to ask, with their verb."""
    found = []
    for verb, kinds in goals.phrasings().items():
        for number, template in product(range(10), kinds["train"]):
            rng = rng_for(number, template)
            kind, other = pick(tuple(KINDS.values()), rng), pick(tuple(KINDS.values()), rng)
            names = {"a": f"the {pick(kind.names, rng)}", "b": f"the {pick(other.names, rng)}"}
            words = {"where": pick(goals.DIRECTIONS, rng), "group": kind.group or "blocks"}
            found.append((template.format(**names, **words, **{"in": "in", "from": "out of"}), verb))
    return found


def episodes_of(data: str) -> Sequence[Episode]:
    """Return the episodes of a dataset, or of the instructions of a world."""
    if data not in ("metaworld", "tabletop"):
        return open_dataset(data).episodes
    found = []
    for number, (text, task) in enumerate(metaworld_texts() if data == "metaworld" else tabletop_texts()):
        pixels = np.frombuffer(np.int64(number).tobytes(), np.uint8)[:6].reshape(2, 1, 1, 3)
        episode = episode_from_frames(pixels, text, label=Label(5, True))
        found.append(replace(episode, provenance=Provenance(data, task)))
    return found


def coverage(perturbation: Perturbation, episodes: Sequence[Episode]) -> Coverage:
    """Try a perturbation on every episode at every severity."""
    found = Coverage()
    for episode, severity in product(episodes, SEVERITIES):
        found.trials += 1
        try:
            changed = perturbation(episode, severity, 0, episodes)
        except NotApplicable as error:
            found.reasons[re.sub(r"(['\"]).*?\1", "...", str(error))] += 1
        else:
            found.written.append((episode.instruction, severity, changed.episode.instruction))
    return found


def main(datasets: Sequence[str], reasons: int, texts: str) -> None:
    """Print the table, then the reasons or the texts."""
    found = {data: {each.name: coverage(each, episodes_of(data)) for each in SEMANTIC} for data in datasets}
    print(f"{'':<20}", *(f"{data.rstrip('/').rpartition('/')[2][-14:]:>14}" for data in datasets))
    for each in SEMANTIC:
        shares = (rows[each.name] for rows in found.values())
        print(f"{each.name:<20}", *(f"{len(row.written) / max(1, row.trials):>14.1%}" for row in shares))
    for data, rows in found.items():
        if texts:
            print(f"\n{data}")
            for before, severity, after in rows[texts].written:
                print(f"  {severity}  {before}  ->  {after}")
            continue
        for name, row in rows.items():
            for why, count in row.reasons.most_common(reasons):
                print(f"{data.rstrip('/').rpartition('/')[2]}: {name}: {count} x {why}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="DATA")
    parser.add_argument("--reasons", type=int, default=3, help="of each perturbation and dataset")
    parser.add_argument("--texts", default="", metavar="NAME", help="print what this perturbation writes")
    given = parser.parse_args()
    main(given.datasets, given.reasons, given.texts)
