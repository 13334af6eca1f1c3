"""What pocket is worth on tasks that it never saw, over all folds of a training, with the calibration that ships.

    rewardlab train pocket --folds 0,1,2,3,4 --dinov2 dinov2_vits14.onnx --out runs/pocket
    python results/pocket/over_folds.py runs/pocket --out over_folds.csv

The clips are the validation rollouts of every task; each fold is calibrated on what the other folds say, as the
exporter does it. Every task is a row: tasks (seen: mean over the folds that saw it), task, what, value, n; the rows of
probes are over the clips of all tasks. The last lines printed are means over tasks, with the p-value that pocket is
no better than a blind judge: signs of the tasks'
differences turned by chance, Holm over the judges. The constants are 1 to 5, the best chosen with hindsight.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from read_probes import auc, median, sign_flip_p_value

from rewardlab.metrics.paired_differences import holm
from rewardlab.models.pocket.inference import mapped_probabilities
from rewardlab.training.pocket import PocketSettings, Training, pocket_settings
from rewardlab.training.pocket.calibration import ProbedClips, fit_novelty_calibration, probed_clips

LEVELS = np.arange(1, 6)
NAMES = {
    "held_out": "MAE, held-out phrasings",
    "still": "mean level of a still frame",
    "other_thing": "mean level of a success under the instruction for another thing in the scene",
    "contrary": "contraries told apart",
}
Numbers = dict[str, tuple[float, int]]
Calibrations = dict[Training, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", default="pocket")
    parser.add_argument("--out", type=Path, default=Path("over_folds.csv"))
    arguments = parser.parse_args()
    folds = tuple(f for f in range(5) if (arguments.folder / f"{arguments.variant}-fold{f}-probes.npz").exists())
    settings = pocket_settings(variants=(arguments.variant,), folds=folds, out=arguments.folder)
    calibrations = {training: fit_novelty_calibration(settings, training) for training in settings.trainings}
    tables, probes = by_split(settings, calibrations), probe_rows(settings, calibrations)
    with arguments.out.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(("tasks", "task", "what", "value", "n"))
        for split, table in tables.items():
            writer.writerows(
                (split, task, what, f"{value:.6g}", n)
                for task, numbers in table.items()
                for what, (value, n) in numbers.items()
            )
        writer.writerows((split, "all", what, f"{value:.6g}", n) for split, what, value, n in probes)
    for split, table in tables.items():
        for line in summary(table):
            print(f"{split:7} {line}")
    for split, what, value, n in probes:
        print(f"{split:7} {what:32} {value:6.3f}   {n} clips")


def by_split(settings: PocketSettings, calibrations: Calibrations) -> dict[str, dict[str, Numbers]]:
    """Return the numbers of every task, the mean over the folds in which it was seen, and over those it was not."""
    found: dict[str, dict[str, list[Numbers]]] = {split: defaultdict(list) for split in ("seen", "unseen")}
    for training, fitted in calibrations.items():
        for task, unseen, numbers in task_numbers(settings, training, fitted):
            found["unseen" if unseen else "seen"][task].append(numbers)
    return {split: {task: joined(many) for task, many in sorted(tasks.items())} for split, tasks in found.items()}


def joined(many: list[Numbers]) -> Numbers:
    return {what: (float(np.nanmean([m[what][0] for m in many])), sum(m[what][1] for m in many)) for what in many[0]}


def task_numbers(
    settings: PocketSettings, training: Training, fitted: dict[str, Any]
) -> Iterator[tuple[str, bool, Numbers]]:
    clips, told = answer(settings, training, "own", fitted)
    raw = np.exp(clips.features[:, :5])  # the log-probabilities as the network gave them
    for task in np.unique(clips.task):
        own = clips.task == task
        yield (
            str(task),
            bool(clips.unseen[own][0]),
            numbers_of(clips.level[own], raw[own] / raw[own].sum(1, keepdims=True), told[own], fitted["conformal"]),
        )


def probe_rows(settings: PocketSettings, calibrations: Calibrations) -> list[tuple[str, str, float, int]]:
    """Return the mean over folds of what the calibrated answer makes of probes whose states were kept."""
    found: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for training, fitted in calibrations.items():
        with np.load(settings.out / f"{training.name}-probes.npz") as kept:
            probes = [probe for probe in NAMES if f"{probe}/state" in kept.files]
            rows = {probe: kept[f"{probe}/row"] for probe in ("own", *probes)}
        told = {probe: answer(settings, training, probe, fitted) for probe in ("own", *probes)}
        means = dict(zip(rows["own"].tolist(), told["own"][1] @ LEVELS, strict=True))
        for probe in probes:
            clips, probs = told[probe]
            values = {
                "held_out": np.abs(median(probs) - clips.level),
                "contrary": [
                    means[row] > mean + 0.5 for row, mean in zip(rows[probe].tolist(), probs @ LEVELS, strict=True)
                ],
            }.get(probe, median(probs))
            for split, chosen in (("seen", ~clips.unseen), ("unseen", clips.unseen)):
                found[split, NAMES[probe]].append((float(np.mean(np.array(values)[chosen])), int(chosen.sum())))
    return [(*key, float(np.mean([v for v, _ in many])), sum(n for _, n in many)) for key, many in found.items()]


def answer(
    settings: PocketSettings, training: Training, probe: str, fitted: dict[str, Any]
) -> tuple[ProbedClips, NDArray[np.float64]]:
    clips = probed_clips(settings, training, probe)
    weight, bias = (np.array(fitted["calibration"][part]) for part in ("weight", "bias"))
    return clips, mapped_probabilities(clips.features, weight, bias)


def numbers_of(level: NDArray[np.int64], raw: NDArray[np.float64], told: NDArray[np.float64], least: float) -> Numbers:
    sets, done, n = told >= least, level == 5, len(level)
    values = {
        "MAE": np.abs(median(told) - level).mean(),
        "MAE before calibration": np.abs(median(raw) - level).mean(),
        "success accuracy": ((median(told) == 5) == done).mean(),
        "success AUC": auc(told[:, 4], done),
        "success AUC before calibration": auc(raw[:, 4], done),
        "90 % set holds the level": sets[np.arange(n), level - 1].mean(),
        "levels in the 90 % set": sets.sum(axis=1).mean(),
        "MAE of random": np.abs(level[:, None] - LEVELS).mean(),
        **{f"MAE of constant {c}": np.abs(level - c).mean() for c in LEVELS},
    }
    return {what: (float(value), n) for what, value in values.items()}


def summary(table: dict[str, Numbers]) -> Iterator[str]:
    whats = list(next(iter(table.values())))
    means = {what: float(np.nanmean([numbers[what][0] for numbers in table.values()])) for what in whats}
    for what in whats:
        yield f"{what:32} {means[what]:6.3f}   {len(table)} tasks"
    blind = ["MAE of random", *(f"MAE of constant {c}" for c in LEVELS)]
    p_values = holm(
        [sign_flip_p_value(np.array([n[judge][0] - n["MAE"][0] for n in table.values()])) for judge in blind]
    )
    for judge, p in zip(blind, p_values, strict=True):
        yield f"p (Holm) that MAE is below the {judge}: {p:.2g}"


if __name__ == "__main__":
    main()
