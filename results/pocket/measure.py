"""Measures what pocket must show, on Meta-World rollouts that no variant was trained with.

    rewardlab collect metaworld --tasks all --episodes 8 --balance --camera right,left --seed 77 --out new
    python results/pocket/measure.py new --models pocket,pocket-large --out measured.csv

`python results/pocket/measure.py --tasks` prints the tasks that fold 0 sees and those that it never sees, `--kept-away`
the perturbations that pocket was not trained with. Every number is a row: model, data, what, value, the ends of its
95 % interval (bootstrap over tasks) where it has one, n.
"""

import argparse
import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import permutation_test, rankdata

from rewardlab.core.episode import Episode, rearrange
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.metrics.paired_differences import holm
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel
from rewardlab.models.pocket import shipped_split
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS, split_of_task

CONTROLS = ("constant", "random", "length", "motion", "end-motion", "change")
DRAWS = 10_000
Doubles = NDArray[np.float64]
Answers = tuple[Doubles, Doubles, Doubles, Doubles]


class Row(NamedTuple):
    model: str
    data: str
    what: str
    value: float
    low: float
    high: float
    n: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--models", default="pocket,pocket-large")
    parser.add_argument("--frames", default="uniform:16")
    parser.add_argument("--out", type=Path, default=Path("measured.csv"))
    parser.add_argument("--tasks", action="store_true")
    parser.add_argument("--kept-away", action="store_true")
    arguments = parser.parse_args()
    if arguments.tasks:
        for unseen in (False, True):
            print(",".join(task for task in TASKS if (split_of_task(task) == "test") == unseen))
        return
    if arguments.kept_away:
        print(",".join(shipped_split("pocket").held_out))
        return
    rows: list[Row] = []
    for data in arguments.data:
        clips = [sample_frames(episode, frame_policy(arguments.frames)) for episode in open_dataset(data).episodes]
        found = {name: answers(name_model(name).build(), clips) for name in CONTROLS}
        errors = {name: errors_by_task(said[0], clips) for name, said in found.items()}
        for name in arguments.models.split(","):
            rows += model_rows(name, Path(data).name, clips, errors)
        for name, said in found.items():
            rows += clean_rows(name, Path(data).name, clips, said)
    with arguments.out.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows(
            [Row._fields, *([*r[:3], *np.round(r[3:6], 4), r.n] for r in rows)]
        )
    for row in rows:
        print(f"{row.model:14} {row.data:8} {row.what:50} {row.value:8.3f} [{row.low:.3f}, {row.high:.3f}] {row.n:5}")


def clean_rows(name: str, data: str, clips: Sequence[Episode], said: Answers) -> list[Row]:
    """Return what a model makes of the clips as they are."""
    level, success, *_ = said
    truth = np.array([clip.label.level for clip in clips])
    tasks = np.array([clip.provenance.task for clip in clips])
    of_tasks = [tasks == task for task in dict.fromkeys(tasks)]
    areas = np.array([auc(success[task], truth[task] == 5) for task in of_tasks])
    numbers = {
        "MAE, mean over tasks": errors_by_task(level, clips),
        "success AUC, mean over tasks": areas[np.isfinite(areas)],
        "success accuracy": np.array([((level == 5) == (truth == 5))[task].mean() for task in of_tasks]),
    }
    return [Row(name, data, what, *over_tasks(values), len(values)) for what, values in numbers.items()]


def model_rows(name: str, data: str, clips: Sequence[Episode], controls: dict[str, Doubles]) -> list[Row]:
    """Return what a model makes of the clips as they are, beside the controls, and under other instructions."""
    model = name_model(name).build()
    said = answers(model, clips)
    level, _, inside, sizes = said
    errors = errors_by_task(level, clips)
    p_values = holm([sign_flip_p_value(found - errors) for found in controls.values()])
    told = [
        (f"p (Holm) that its MAE is below that of {control}", p, len(errors))
        for control, p in zip(controls, p_values, strict=True)
    ]
    told.append(("90 % set holds the level", float(inside.mean()), len(clips)))
    told.append(("levels in the 90 % set", float(sizes.mean()), len(clips)))
    successes = [clip for clip in clips if clip.label.level == 5]
    for what, shown in (
        ("a still first frame", [rearrange(c, np.zeros(len(c.clip), np.int64)) for c in clips]),
        ("a success under another task", under_another_task(successes)),
        ("a success under the contrary", under_contrary(successes)),
    ):
        told.append((f"mean level of {what}", float(np.nanmean(answers(model, shown)[0])), len(shown)))
    for kind in ("train", "held_out"):
        shown = phrased(clips, kind)
        error = float(errors_by_task(answers(model, shown)[0], shown).mean())
        told.append((f"MAE under {kind} phrasings", error, len(shown)))
    rows = clean_rows(name, data, clips, said)
    return rows + [Row(name, data, what, value, np.nan, np.nan, count) for what, value, count in told]


def answers(model: RewardModel, clips: Sequence[Episode]) -> Answers:
    """Return of each clip the level, the probability of level 5, whether the 90 % set holds the truth, and its size."""
    found = [answer for start in range(0, len(clips), 16) for answer in model.score(clips[start : start + 16])]
    columns = []
    for clip, answer in zip(clips, found, strict=True):
        if not isinstance(answer, Score):
            columns.append((np.nan, np.nan, False, 0))
            continue
        said, probabilities = answer.info.prediction_set or (), answer.probabilities or (answer.level,)
        columns.append((round(answer.level), probabilities[-1], clip.label.level in said, len(said)))
    level, success, inside, size = (np.array(column, np.float64) for column in zip(*columns, strict=True))
    return level, success, inside, size


def errors_by_task(levels: Doubles, clips: Sequence[Episode]) -> Doubles:
    wrong = np.abs(levels - [clip.label.level for clip in clips])
    tasks = np.array([clip.provenance.task for clip in clips])
    return np.array([np.nanmean(wrong[tasks == task]) for task in dict.fromkeys(tasks)])


def over_tasks(values: Doubles) -> tuple[float, float, float]:
    """Return the mean over tasks and its 95 % interval."""
    drawn = rng_for(0, "tasks").integers(len(values), size=(DRAWS, len(values)))
    return (float(values.mean()), *map(float, np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))))


def under_another_task(clips: Sequence[Episode]) -> list[Episode]:
    rng = rng_for(0, "another task")
    texts = [(clip.provenance.task, clip.instruction) for clip in clips]
    others = [[text for task, text in texts if task != clip.provenance.task] for clip in clips]
    return [
        replace(clip, instruction=many[int(rng.integers(len(many)))]) for clip, many in zip(clips, others, strict=True)
    ]


def under_contrary(clips: Sequence[Episode]) -> list[Episode]:
    both = [clip for clip in clips if clip.provenance.task in OPPOSITE_TASKS]
    return [replace(clip, instruction=phrasings()[OPPOSITE_TASKS[clip.provenance.task]]["train"][0]) for clip in both]


def phrased(clips: Sequence[Episode], kind: str) -> list[Episode]:
    """Ask with another phrasing of the same list; where the goal is told in centimetres, that part is kept."""
    rng = rng_for(0, "phrasing", kind)
    return [replace(c, instruction=_rephrased(c, kind, int(rng.integers(2)))) for c in clips]


def _rephrased(clip: Episode, kind: str, pick: int) -> str:
    lists = phrasings()[clip.provenance.task]
    text = lists[kind][pick % len(lists[kind])]
    if "{where}" not in text:
        return text
    for template in lists["train"]:
        match = re.fullmatch(re.escape(template).replace(re.escape("{where}"), "(.+)"), clip.instruction)
        if match:
            return text.replace("{where}", match[1])
    raise ValueError(f"{clip.instruction!r} is no phrasing of {clip.provenance.task}")


def auc(score: Doubles, positive: NDArray[np.bool_]) -> float:
    """Return the chance that a success gets more than another clip; nan where there is only one of the two."""
    ones, zeros = positive.sum(), (~positive).sum()
    if not ones or not zeros:
        return float("nan")
    return float((rankdata(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def sign_flip_p_value(gains: Doubles) -> float:
    """Return the one-sided p-value that tasks gain nothing: the sign of each task's gain is turned by chance."""
    settings = {"n_resamples": 99_999, "rng": rng_for(0, "signs")}  # fewer choices of signs than that are all tried
    test = permutation_test((gains,), np.sum, permutation_type="samples", alternative="greater", **settings)
    return float(test.pvalue)


if __name__ == "__main__":
    main()
