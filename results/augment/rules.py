"""How often the rules teacher is right, on simulated successes whose progress under any instruction is exact.

    python results/augment/rules.py

For each relation of another instruction to a rollout's own, as the teacher reads it from the words, and for each
fraction at which a clip ends: how often the task then stands at each level. Rollouts are those of the tabletop world
(seeds from 900,000 on) that end in success, cut where the task is done, as demonstrations are. The most frequent level
of each line is what the teacher says, and its share is the certainty that it states.
"""

from collections import Counter, defaultdict

import numpy as np

from rewardlab.augmentation.labels import PROPOSED_LEVELS
from rewardlab.augmentation.rules import relation_of, two_steps
from rewardlab.core.episode import level_of_progress
from rewardlab.worlds.tabletop.recording import training_clips

SEEDS = range(900_000, 912_000)
FRAMES, AFTER = 64, 2  # of a rollout, and those that a demonstration goes on after the end


def main() -> None:
    relations, fractions = defaultdict[str, Counter[int]](Counter), defaultdict[float, Counter[int]](Counter)
    rollouts = 0
    for clip in training_clips(SEEDS, others=11, render=False, frames=FRAMES):
        own, *others = clip.asked
        done = np.flatnonzero(own.progress == 1)
        if not len(done) or own.progress[-1] < 1:
            continue
        rollouts += 1
        last = min(int(done[0]) + AFTER, FRAMES - 1)
        for fraction in PROPOSED_LEVELS:
            fractions[fraction][level_of_progress(float(own.progress[max(1, round(fraction * (last + 1)) - 1)]))] += 1
        for other in others:
            reached = float(other.progress[last])
            if relation := relation_of(own.text, other.text):
                relations[relation][level_of_progress(reached)] += 1
            if two_steps(own.text, other.text):
                both = 1.0 if reached == 1 else (1 + reached) / 2
                relations["then"][level_of_progress(both)] += 1
    print(f"{rollouts:,} successes")
    for name, counts in (*relations.items(), *fractions.items()):
        shares = "  ".join(f"{level}: {counts[level] / counts.total():.2f}" for level in range(1, 6))
        print(f"{name!s:16} {shares}  of {counts.total():,}")


if __name__ == "__main__":
    main()
