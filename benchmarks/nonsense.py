"""What a model makes of nonsense: the mean level by kind, how many clips it flags, and false flags on robot clips.

    python benchmarks/nonsense.py [--model pocket] [--clips 20] [DATA ...]
    python benchmarks/nonsense.py --model pocket-large --false-alarms 0.01 DATA ...

200 clips of ten kinds, 20 of each. Four kinds appear in no training of pocket. Instructions, still frames and the clips
under random letters come from `sample-sim`. False flags are counted on `sample-sim` and on every dataset DATA. A clip
that the model refuses to score has no level, is counted under `refused`, and is not flagged. With --false-alarms it
prints only the distance from training above which this share of DATA lies: `unfamiliar_above` of a variant.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from rewardlab.core.episode import Episode, episode_from_frames, strip_labels
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.trial import Answer, Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import RewardModel
from rewardlab.models.pocket.inference import flag_threshold
from rewardlab.training.pocket.nonsense import TRAINED_KINDS, UNSEEN_KINDS, nonsense_clip, random_letters

BATCH, FRAMES, SIZE = 32, 16, 128
Counts = tuple[int, float, int, int]  # clips, mean level of the scored ones, flagged, refused


def nonsense_episodes(kind: str, count: int, real: Sequence[Episode]) -> list[Episode]:
    """Return clips of a kind, each under the instruction of a real clip, or of random letters."""
    found = []
    for number in range(count):
        rng = rng_for(0, "nonsense", kind, number)
        episode = pick(real, rng)
        frames = nonsense_clip(kind, rng, FRAMES, SIZE, episode.frames)
        found.append(episode_from_frames(frames, random_letters(rng) if kind == "letters" else episode.instruction))
    return found


def shown_episodes(data: str) -> list[Episode]:
    return [sample_frames(episode, frame_policy(f"uniform:{FRAMES}")) for episode in open_dataset(data).episodes]


def answer_all(model: RewardModel, episodes: Sequence[Episode]) -> list[Answer]:
    """Score the episodes in batches."""
    answers: list[Answer] = []
    for start in range(0, len(episodes), BATCH):
        answers += validated_answers(model, [strip_labels(each) for each in episodes[start : start + BATCH]])
    return answers


def distance_limit(model: RewardModel, datasets: Sequence[str], false_alarms: float) -> float:
    """Return the distance from training above which this share of the clips lies."""
    answers = answer_all(model, [episode for data in datasets for episode in shown_episodes(data)])
    far = [answer.info.training_distance for answer in answers if isinstance(answer, Score)]
    return flag_threshold(np.array([distance for distance in far if distance is not None]), false_alarms)


def count_answers(model: RewardModel, episodes: Sequence[Episode]) -> Counts:
    """Count the answers about the episodes."""
    answers = answer_all(model, episodes)
    scores = [answer for answer in answers if isinstance(answer, Score)]
    level = sum(score.level for score in scores) / len(scores) if scores else float("nan")
    flagged = sum(score.info.unfamiliar is True for score in scores)
    return len(answers), level, flagged, len(answers) - len(scores)


def total(parts: Sequence[Counts]) -> Counts:
    """Return the counts of several kinds together."""
    clips, refused = sum(part[0] for part in parts), sum(part[3] for part in parts)
    scored = [(part[0] - part[3], part[1]) for part in parts if part[0] > part[3]]
    level = sum(number * mean for number, mean in scored) / sum(number for number, _ in scored)
    return clips, level, sum(part[2] for part in parts), refused


def show_counts(name: str, counts: Counts) -> None:
    """Print one row of the table."""
    clips, level, flagged, refused = counts
    print(f"{name:<24} {clips:>5} {level:>10.2f} {flagged / clips:>8.1%} {refused / clips:>8.1%}")


def main(model_name: str, clips: int, datasets: Sequence[str]) -> None:
    """Print the table of one model."""
    model, real = name_model(model_name).build(), shown_episodes("sample-sim")
    kinds = (*TRAINED_KINDS, *UNSEEN_KINDS)
    found = {kind: count_answers(model, nonsense_episodes(kind, clips, real)) for kind in kinds}
    print(f"{model_name[-24:]:<24} {'clips':>5} {'mean level':>10} {'flagged':>8} {'refused':>8}")
    for kind, counts in found.items():
        show_counts(kind, counts)
    show_counts("kinds in training", total([found[kind] for kind in TRAINED_KINDS]))
    show_counts("kinds not in training", total([found[kind] for kind in UNSEEN_KINDS]))
    show_counts("all nonsense", total(list(found.values())))
    show_counts("sample-sim", count_answers(model, real))
    for data in datasets:
        show_counts(data[-24:], count_answers(model, shown_episodes(data)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", metavar="DATA")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--clips", type=int, default=20, help="of each kind")
    parser.add_argument("--false-alarms", type=float, help="share of DATA that may be flagged")
    given = parser.parse_args()
    if given.false_alarms is not None:
        print(f"{distance_limit(name_model(given.model).build(), given.datasets, given.false_alarms):.4f}")
        raise SystemExit
    main(given.model, given.clips, given.datasets)
