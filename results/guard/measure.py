"""What guards do to tasks and perturbations that they were not fitted on: abstention, false success, risk-coverage.

    python results/guard/measure.py --tasks known
    python results/guard/measure.py KNOWN UNSEEN --out FOLDER
    python results/guard/measure.py --again results/guard/pocket-plain

KNOWN and UNSEEN are rollouts of the tasks that the model was trained on and of those it was not, the tasks of fold 0;
`--tasks` prints either list. `--again` makes every table anew from the clips that are kept in a folder. The tasks are
in five folds. For each fold a guard is fitted on all other tasks, clean and under FITTED, by the functions behind
`rewardlab fit guard`, and judged on the tasks of the fold, clean and under JUDGED. Rates are means over clips of all
folds; intervals are percentiles of 2,000 bootstrap draws over tasks.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import rankdata

from rewardlab.api import stress_plan
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.fit_calibration import split_trials
from rewardlab.evaluation.fit_guard import (
    GuardTerms,
    clip_risks,
    evaluated_clips,
    fitted_guard,
    passed_claims,
    probed_model,
)
from rewardlab.models import name_model
from rewardlab.models.guard import Guard
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import unseen_tasks

RATE, FOLDS, SPLIT_SEED = 0.17, 5, 0
MODEL = "pocket-plain"  # it was not trained on fold 0; `pocket` knows all tasks
CLIPS = "clips.npz"
FITTED = (("gaussian_noise", "motion_blur", "drop_uniform"), (2,))
JUDGED = (("defocus_blur", "fog", "typo_keyboard", "hold_last"), (3, 4))
DRAWS = 2_000

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Row = dict[str, object]


@dataclass(frozen=True, eq=False)
class Clips:
    """Clips judged by a guard that never saw their task; `condition` is clean, perturbed or as fitted."""

    data: NDArray[np.str_]
    condition: NDArray[np.str_]
    fold: NDArray[np.int64]
    task: NDArray[np.str_]
    claimed: Flags
    passed: Flags
    success: Flags
    risk: Numbers
    probability: Numbers  # of success, as the model states it; nan where it states none

    def where(self, mask: Flags) -> "Clips":
        return Clips(*(values[mask] for values in vars(self).values()))

    def of(self, data: str, condition: str) -> "Clips":
        return self.where((self.data == data) & (self.condition == condition))


def tasks_of(data: str) -> list[str]:
    return [task for task in TASKS if (task in unseen_tasks(0)) == (data == "unseen")]


def fold_of_task() -> dict[str, int]:
    """Return the fold of every task; each has its share of known and of unseen tasks."""
    return {task: place % FOLDS for data in ("known", "unseen") for place, task in enumerate(tasks_of(data))}


def trials_of(
    model: str, folders: dict[str, str], asked: tuple[Sequence[str], Sequence[int]], runs: Path, workers: int
) -> TrialTable:
    """Return the model's answers about all rollouts, clean and under these perturbations."""
    probe, tables = probed_model(name_model(model)), []
    for name, data in folders.items():
        given = {"models": probe, "data": data, "perturbations": tuple(asked[0]), "severities": tuple(asked[1])}
        given |= {"controls": False, "workers": workers, "quiet": True, "out": runs / f"guard-{name}-{asked[0][0]}"}
        tables.append(evaluate(stress_plan(given)).trials().arrow)
    return TrialTable(pa.concat_tables(tables))


def judge(guard: Guard, trials: TrialTable, fold: int, *, as_fitted: bool) -> Clips:
    """Return clips of one fold as a guard that was fitted on the others leaves them."""
    clips = evaluated_clips(trials)
    risks = clip_risks(guard, clips)
    passed = passed_claims(guard, clips, risks)
    tasks, known = clips.tasks.astype(str), tasks_of("known")
    data = np.where(np.isin(tasks, known), "known", "unseen")
    condition = np.where(clips.clean, "clean", "perturbed")
    if as_fitted:
        condition = np.full(len(tasks), "as fitted")
    logit = np.array([row.get("success_logit", math.nan) for row in clips.rows])
    stated = 1 / (1 + np.exp(-logit))
    return Clips(data, condition, np.full(len(tasks), fold), tasks, clips.claimed, passed, clips.success, risks, stated)


def judged_in_folds(fitted: TrialTable, judged: TrialTable) -> tuple[Clips, list[Guard], list[int]]:
    """Fit a guard on the other tasks of each fold; return all judged clips, the guards, and tasks per threshold."""
    parts, guards, tasks = [], [], []
    fold_of = fold_of_task()
    in_fold = [np.array([fold_of[str(task)] for task in trials.text("task")]) for trials in (fitted, judged)]
    for fold in range(FOLDS):
        order, threshold = map(evaluated_clips, split_trials(fitted.where(in_fold[0] != fold), SPLIT_SEED, 2))
        guard = fitted_guard(order, threshold, GuardTerms(RATE, "abstain", 0))
        guards.append(guard)
        tasks.append(len(set(threshold.tasks[~threshold.success])))
        parts.append(judge(guard, judged.where(in_fold[1] == fold), fold, as_fitted=False))
        parts.append(judge(guard, fitted.where(in_fold[0] == fold), fold, as_fitted=True))
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Clips(*(np.concatenate(column) for column in columns)), guards, tasks


def bootstrap(tasks: NDArray[np.str_], *columns: Flags) -> tuple[Numbers, Numbers]:
    """Return the sums of the columns, and their sums in every draw of tasks."""
    codes = np.unique(tasks, return_inverse=True)[1]
    counts = np.array([np.bincount(codes, column, minlength=codes.max() + 1) for column in columns])
    picks = rng_for(0, "guard bootstrap").integers(0, counts.shape[1], (DRAWS, counts.shape[1]))
    return counts.sum(axis=1), counts[:, picks].sum(axis=2)


def rate(flags: Flags, of: Flags, tasks: NDArray[np.str_]) -> Row:
    """Return the share of `of` where `flags` hold, with its interval over tasks."""
    (above, below), (drawn_above, drawn_below) = bootstrap(tasks, flags & of, of)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"rate": above / below if below else np.nan, **interval(drawn_above / drawn_below)}


def interval(draws: Numbers) -> Row:
    known = draws[np.isfinite(draws)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
    return {"low": float(low), "high": float(high)}


def rate_rows(clips: Clips, data: str, condition: str) -> list[Row]:
    part = clips.of(data, condition)
    failed, everything = ~part.success, np.ones_like(part.success)
    measures = {
        "false success without guard": (part.claimed, failed),
        "false success with guard": (part.passed, failed),
        "successes found without guard": (part.claimed, part.success),
        "successes found with guard": (part.passed, part.success),
        "withheld": (part.claimed & ~part.passed, everything),
    }
    head = {"data": data, "condition": condition}
    rows = [{**head, "measure": name, "clips": int(of.sum()), **rate(flags, of, part.task)}
            for name, (flags, of) in measures.items()]  # fmt: skip
    rows += [{**head, "measure": name, "clips": int(failed.sum()), **found} for name, found in falls(part).items()]
    known = np.isfinite(part.probability)
    return [*rows, *({**head, "measure": name, "clips": int(known.sum()), **found}
                     for name, found in calibration(part.where(known)).items())]  # fmt: skip


def falls(part: Clips) -> dict[str, Row]:
    """Return by which share false success falls, and what random withholding of as many claims leaves of that gain."""
    wrong, left = part.claimed & ~part.success, part.passed & ~part.success
    counted, drawn = bootstrap(part.task, wrong, left, part.claimed, part.passed)
    with np.errstate(invalid="ignore", divide="ignore"):
        fell, by_chance = ([1 - some[place + 1] / some[place] for some in (counted, drawn)] for place in (0, 2))
    names = "fall of false success", "fall by random withholding", "fall beyond random withholding"
    found = (fell, by_chance, [one - other for one, other in zip(fell, by_chance, strict=True)])
    return {name: {"rate": float(value), **interval(draws)} for name, (value, draws) in zip(names, found, strict=True)}


def calibration(part: Clips) -> dict[str, Row]:
    """Return how far the stated probability of success is from the share of successes, and its Brier score."""
    codes = np.unique(part.task, return_inverse=True)[1]
    picks = rng_for(0, "guard bootstrap").integers(0, codes.max(initial=0) + 1, (DRAWS, codes.max(initial=0) + 1))
    gap, error = part.probability - part.success, (part.probability - part.success) ** 2
    found = {}
    for name, values in (("stated less true success", gap), ("Brier score of success", error)):
        sums, counts = np.bincount(codes, values), np.bincount(codes)
        draws = sums[picks].sum(axis=1) / counts[picks].sum(axis=1)
        found[name] = {"rate": float(values.mean()), **interval(draws)}
    return found if len(codes) else {}


def curve_rows(clips: Clips, data: str, condition: str) -> list[Row]:
    """Return false success, and how many passed claims are wrong, over the share of claims that pass."""
    part, found = clips.of(data, condition), list[Row]()
    for share in np.linspace(0, 1, 21):
        most = np.quantile(part.risk[part.claimed], share) if share else -np.inf
        passed = part.claimed & (part.risk <= most)
        wrong = {f"wrong of passed {key}": value
                 for key, value in rate(~part.success, passed, part.task).items()}  # fmt: skip
        false = {f"false success {key}": value
                 for key, value in rate(passed, ~part.success, part.task).items()}  # fmt: skip
        found.append({"data": data, "condition": condition, "claims passed": round(float(share), 2), **false, **wrong})
    return found


def guard_rows(clips: Clips, guards: Sequence[Guard], tasks: Sequence[int]) -> list[Row]:
    """Return what each of the guards came to."""
    rows = list[Row]()
    for fold, guard in enumerate(guards):
        mine = clips.where(clips.fold == fold)
        clean = mine.of("known", "clean")
        row: Row = {"fold": fold, "threshold": guard.threshold, "tasks for the threshold": tasks[fold]}
        row["known clean withheld"] = float((clean.claimed & ~clean.passed).mean())
        for data in ("known", "unseen"):
            failed = mine.of(data, "perturbed").where(~mine.of(data, "perturbed").success)
            row[f"{data} perturbed false success without"] = float(failed.claimed.mean())
            row[f"{data} perturbed false success with"] = float(failed.passed.mean())
        rows.append(row)
    return rows


def task_mean_row(clips: Clips, data: str) -> Row:
    """Return what the guarantee bounds: the mean over tasks of the share of failed clips that pass, as fitted."""
    kept = clips.where((clips.condition == "as fitted") & ((clips.data == data) | (data == "all")))
    part = kept.where(~kept.success)
    shares = np.array([part.passed[part.task == task].mean() for task in np.unique(part.task)])
    picks = rng_for(0, "guard bootstrap").integers(0, len(shares), (DRAWS, len(shares)))
    row: Row = {"data": data, "condition": "as fitted", "measure": "false success with guard, mean over tasks"}
    return {**row, "clips": len(part.task), "rate": float(shares.mean()), **interval(shares[picks].mean(axis=1))}


def auc_row(clips: Clips, data: str) -> Row:
    """Return how often a false claim has a higher risk than a true one."""
    part = clips.where((clips.data == data) & clips.claimed & (clips.condition != "as fitted"))
    ranks, false = rankdata(part.risk), ~part.success
    area = (ranks[false].sum() - false.sum() * (false.sum() + 1) / 2) / (false.sum() * (~false).sum())
    row: Row = {"data": data, "condition": "clean and perturbed", "measure": "AUC of risk among claims"}
    return {**row, "clips": len(part.task), "rate": float(area), "low": np.nan, "high": np.nan}


def write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        shown = [{key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
                 for row in rows]  # fmt: skip
        writer.writerows(shown)


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw false success over the share of claims that pass, with its interval over tasks; needs the extra figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "guard"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, data in zip(axes, ("known", "unseen"), strict=True):
        for condition, colour in (("clean", "#0072b2"), ("perturbed", "#d55e00")):
            mine = [row for row in rows if (row["data"], row["condition"]) == (data, condition)]
            passed, middle, low, high = (
                np.array([row[key] for row in mine], dtype=np.float64)
                for key in ("claims passed", "false success rate", "false success low", "false success high")
            )
            axis.plot(passed, middle, color=colour, label=condition)
            axis.fill_between(passed, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set(title=f"{data} tasks", xlabel="share of claimed successes that pass, lowest risk first")
    axes[0].set_ylabel("failed clips that pass as successes")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="two folders: rollouts of known tasks, and of unseen ones")
    parser.add_argument("--tasks", choices=("known", "unseen"))
    parser.add_argument("--out", type=Path, default=Path("guard"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--model", default=MODEL, help="such as pocket:FOLDER/VARIANT")
    parser.add_argument("--again", type=Path, help="folder with the clips of a measurement")
    asked = parser.parse_args()
    if asked.tasks:
        print(",".join(tasks_of(asked.tasks)))
        return
    if asked.again:
        with np.load(asked.again / CLIPS) as table:
            write_tables(Clips(**table), asked.again)
        return
    if len(asked.data) != 2:
        parser.error("expected two folders of rollouts, of known tasks and of unseen ones")
    if known := set(name_model(asked.model).trained_tasks) & set(tasks_of("unseen")):
        parser.error(
            f"{asked.model} was trained on {len(known)} of the unseen tasks; name a variant of fold 0 by --model"
        )
    folders = dict(zip(("known", "unseen"), asked.data, strict=True))
    answers = [trials_of(asked.model, folders, each, asked.runs, asked.workers) for each in (FITTED, JUDGED)]
    clips, guards, tasks = judged_in_folds(*answers)
    asked.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(asked.out / CLIPS, **vars(clips))
    write(asked.out / "guards.csv", guard_rows(clips, guards, tasks))
    write_tables(clips, asked.out)


def write_tables(clips: Clips, out: Path) -> None:
    """Write every rate and the figure, from the clips alone."""
    parts = [(data, condition) for data in ("known", "unseen") for condition in ("clean", "perturbed")]
    rows = [row for part in parts for row in rate_rows(clips, *part)]
    rows += [task_mean_row(clips, data) for data in ("all", "known", "unseen")]
    rows += [auc_row(clips, "known"), auc_row(clips, "unseen")]
    write(out / "rates.csv", rows)
    curves = [row for part in parts for row in curve_rows(clips, *part)]
    write(out / "risk_coverage.csv", curves)
    draw(out / "risk_coverage.svg", curves)
    for row in rows:
        print(*(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()), sep="\t")


if __name__ == "__main__":
    main()
