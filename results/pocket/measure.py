"""Measures what pocket must show, on rollouts that no variant was trained with.

    rewardlab collect metaworld --tasks SEEN --episodes 10 --balance --camera right,left --seed 77 --out seen
    rewardlab collect metaworld --tasks UNSEEN --episodes 30 --balance --camera right,left --seed 78 --out unseen
    python results/pocket/measure.py seen unseen --out measured.csv

`python results/pocket/measure.py --tasks` prints SEEN and UNSEEN, `--kept-away` the perturbations that pocket was not
trained with. Every number is a row: model, data, what, value, n.
"""

import argparse
import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from read_probes import auc, sign_flip_p_value

from rewardlab.api import stress_plan
from rewardlab.core.episode import Episode, rearrange
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Score
from rewardlab.core.trial_table import TrialTable
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics.contract import Numbers
from rewardlab.metrics.estimates import with_clean_answers
from rewardlab.metrics.paired_differences import holm
from rewardlab.metrics.progress import order_correlations
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel
from rewardlab.models.pocket import shipped_split
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS, split_of_task

CONTROLS = ("constant", "clock", "random")
Row = tuple[str, str, str, float, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*")
    parser.add_argument("--models", default="pocket,pocket-plain")
    parser.add_argument("--frames", default="uniform:16")
    parser.add_argument("--out", type=Path, default=Path("measured.csv"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
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
    models = arguments.models.split(",")
    rows: list[Row] = []
    for data in arguments.data:
        rows += clean_rows(models, data, arguments.frames, arguments.runs / f"pocket-{Path(data).name}")
        clips = [sample_frames(episode, frame_policy(arguments.frames)) for episode in open_dataset(data).episodes]
        for name in models:
            rows += counterfactual_rows(name, name_model(name).build(), clips, Path(data).name)
    with arguments.out.open("w", newline="") as handle:
        csv.writer(handle).writerows([("model", "data", "what", "value", "n"), *rows])
    for row in rows:
        print(f"{row[0]:14} {row[1]:8} {row[2]:44} {row[3]:8.3f} {row[4]:5}")


def clean_rows(models: Sequence[str], data: str, frames: str, folder: Path) -> list[Row]:
    """Stress the models with reversed clips only, and read the clean numbers and the controls from the summary."""
    given = {"models": tuple(models), "data": data, "perturbations": "reverse", "severities": 4, "frames": frames}
    run = evaluate(stress_plan(given | {"out": folder}))
    summary, trials = load_summary(run), with_clean_answers(run.trials())
    successes = {episode.id for episode in open_dataset(data).episodes if episode.label.level == 5}
    rows: list[Row] = []
    for model in models:
        errors = by_task(trials, model)
        rows.append(auc_row(trials, model, Path(data).name))
        rows.append(
            (model, Path(data).name, "MAE, mean over tasks", float(np.mean(list(errors.values()))), len(errors))
        )
        rows += [(model, Path(data).name, f"MAE of {task}", errors[task], 1) for task in sorted(errors)]
        for metric in ("success_accuracy", "micro_mae", "kendall_tau_b", "ordinal_ece"):
            row = summary.clean(model, metric)
            if row.value is not None:
                rows.append((model, Path(data).name, f"{metric}, clean", row.value, row.scored))
        for what, sensitivity in order_rows(trials, model, successes):
            rows.append((model, Path(data).name, what, float(np.nanmean(sensitivity)), len(sensitivity)))
        rows += [(model, Path(data).name, what, value, count) for what, value, count in set_rows(trials, model)]
        for control, p in p_values_against_controls(trials, errors).items():
            label = f"p (Holm) that its MAE is below that of {control}"
            rows.append((model, Path(data).name, label, p, len(errors)))
    return rows


def p_values_against_controls(trials: TrialTable, errors: dict[str, float]) -> dict[str, float]:
    """Return the p-value against each control: each task's sign turned by chance, Holm over controls."""
    p_values = []
    for control in CONTROLS:
        control_errors = by_task(trials, control)
        improvement = np.array([control_errors[task] - errors[task] for task in errors])
        p_values.append(sign_flip_p_value(improvement))
    return dict(zip(CONTROLS, holm(p_values), strict=True))


def clean(trials: TrialTable, model: str) -> TrialTable:
    return trials.where((trials.text("model") == model) & (trials.text("perturbation") == "clean"))


def by_task(trials: TrialTable, model: str) -> dict[str, float]:
    mine = clean(trials, model)
    wrong = np.abs(np.round(mine.number("level")) - mine.number("truth_level"))
    tasks = mine.text("task")
    return {str(task): float(wrong[tasks == task].mean()) for task in dict.fromkeys(tasks)}


def auc_row(trials: TrialTable, model: str, data: str) -> Row:
    """Return the success AUC, mean over the tasks that have both successes and others."""
    mine = clean(trials, model)
    score, done, tasks = mine.vectors("probabilities", 5)[:, 4], mine.number("truth_level") == 5, mine.text("task")
    areas = [auc(score[tasks == task], done[tasks == task]) for task in dict.fromkeys(tasks)]
    return model, data, "success AUC, mean over tasks", float(np.nanmean(areas)), int(np.isfinite(areas).sum())


def set_rows(trials: TrialTable, model: str) -> list[tuple[str, float, int]]:
    """Return how often the true level is in the set of 90 %, and how many levels are in it."""
    mine = clean(trials, model)
    raws = [str(raw) for raw in mine.text("raw")]
    if not all("set90" in raw for raw in raws):
        return []
    sets = [json.loads(raw)["set90"] for raw in raws]
    inside = [int(level) in levels for level, levels in zip(mine.number("truth_level"), sets, strict=True)]
    sizes = [len(levels) for levels in sets]
    return [
        ("90 % set holds the level", float(np.mean(inside)), len(sets)),
        ("levels in the 90 % set", float(np.mean(sizes)), len(sets)),
    ]


def order_rows(trials: TrialTable, model: str, successes: set[str]) -> list[tuple[str, Numbers]]:
    """Half of what the correlation with time loses when the clip is reversed, of all clips and of successes."""
    mine = trials.where((trials.text("model") == model) & (trials.text("perturbation") == "reverse"))
    sensitivity = (mine.number("clean_order") - order_correlations(mine)) / 2
    success = np.array([name in successes for name in mine.text("episode")])
    named = [("order sensitivity", sensitivity), ("order sensitivity on successes", sensitivity[success])]
    return [(what, values) for what, values in named if np.isfinite(values).any()]


def counterfactual_rows(name: str, model: RewardModel, clips: Sequence[Episode], data: str) -> list[Row]:
    successes = [clip for clip in clips if clip.label.level == 5]
    cases: dict[str, tuple[Sequence[Episode], Callable[[Sequence[Episode]], float]]] = {
        "mean level of a still first frame": (
            [rearrange(c, np.zeros(len(c.clip), np.int64)) for c in clips],
            mean_level(model),
        ),
        "mean level of a success under another task": (under_another_task(successes), mean_level(model)),
        "mean level of a success under the contrary": (under_contrary(successes), mean_level(model)),
        "MAE under training phrasings": (phrased(clips, "train"), error(model)),
        "MAE under held-out phrasings": (phrased(clips, "held_out"), error(model)),
    }
    return [(name, data, what, measure(shown), len(shown)) for what, (shown, measure) in cases.items()]


def still(clip: Episode) -> Episode:
    return rearrange(clip, np.zeros(len(clip.clip), np.int64))


def answers(model: RewardModel, clips: Sequence[Episode]) -> list[float]:
    found = [answer for start in range(0, len(clips), 16) for answer in model.score(clips[start : start + 16])]
    return [answer.level if isinstance(answer, Score) else np.nan for answer in found]


def mean_level(model: RewardModel) -> Callable[[Sequence[Episode]], float]:
    return lambda clips: float(np.nanmean(answers(model, clips)))


def error(model: RewardModel) -> Callable[[Sequence[Episode]], float]:
    return lambda clips: float(np.nanmean(np.abs(np.array(answers(model, clips)) - [c.label.level for c in clips])))


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


if __name__ == "__main__":
    main()
