"""What a training with folds says of tasks, kinds, verbs and laboratories that it never saw.

    rewardlab train pocket --variants pocket-large --folds 0 --dinov2 dinov2_vits14.onnx --demonstrations droid
    python results/pocket/folds.py runs/pocket --variant pocket-large --out folds.csv

The clips are the validation clips of each fold: Meta-World rollouts of seen and unseen tasks, tabletop rollouts about
an unseen kind, an unseen verb or both, and demonstrations of the laboratories that the fold holds out. Every number is
a row: source, what, value, the ends of its 95 % interval, clips. Levels are medians of the network's probabilities
before calibration; `calibrated` ones are mapped as the exporter does it, each fold by what the others say (with one
fold, by its own). MAE and AUC are means over tasks, intervals bootstraps over tasks, or over clips without tasks.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import auc
from numpy.typing import NDArray
from scipy.special import softmax

from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket.inference import mapped_probabilities
from rewardlab.training.pocket import PocketSettings, pocket_settings
from rewardlab.training.pocket.calibration import Predictions, fit_novelty_calibration, probed, probed_clips
from rewardlab.worlds.metaworld.tasks import FOLDS

LEVELS, DRAWS = np.arange(1, 6), 2000
Floats = NDArray[np.float64]


class Row(NamedTuple):
    source: str
    what: str
    value: float
    low: float
    high: float
    clips: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", default="pocket")
    parser.add_argument("--out", type=Path, default=Path("folds.csv"))
    given = parser.parse_args()
    folds = tuple(str(f) for f in range(FOLDS) if (given.folder / f"{given.variant}-fold{f}-probes.npz").exists())
    settings = pocket_settings(variants=given.variant, folds=folds, out=given.folder, dinov2="as trained")
    rows = [*before_calibration(settings), *calibrated(settings)]
    with given.out.open("w", newline="") as handle:
        csv.writer(handle).writerows([Row._fields, *((*r[:2], *(f"{v:.4f}" for v in r[2:5]), r.clips) for r in rows)])
    for row in rows:
        print(f"{row.source:24} {row.what:40} {row.value:5.2f} [{row.low:.2f}, {row.high:.2f}] {row.clips:5} clips")


def before_calibration(settings: PocketSettings) -> list[Row]:
    """Return what the networks themselves say, over all folds."""
    each = [(training, probed(settings, training)) for training in settings.trainings]

    def joined(probe: str, name: str) -> NDArray[np.float64]:
        return np.concatenate([found[f"{probe}/{name}"] for _, found in each])

    rows: list[Row] = []
    own, truth = _probabilities(joined("own", "logits")), joined("own", "level")
    task = joined("own", "task")
    seen = np.concatenate([~np.isin(found["own/task"], settings.unseen(run.fold)) for run, found in each])
    for source, chosen in (("Meta-World, seen", seen), ("Meta-World, unseen", ~seen)):
        rows += _errors(source, own[chosen], truth[chosen], task[chosen])
    if "tabletop/logits" in each[0][1]:
        probs, truth, kind = (joined("tabletop", name) for name in ("logits", "level", "task"))
        for unseen in np.unique(kind):
            chosen = kind == unseen
            rows += _errors(f"tabletop, unseen {unseen}", _probabilities(probs[chosen]), truth[chosen], None)
        other = _median(_probabilities(joined("tabletop_other", "logits"))).astype(float)
        rows.append(_row("tabletop", "mean level, asked for another thing", other, None))
    if "demonstrations/logits" in each[0][1]:
        for name in ("other", "half", "backwards"):
            rows.append(_row("demonstrations", f"own above {name}", _own_above([f for _, f in each], name), None))
        own_level = _median(_probabilities(joined("demonstrations", "logits"))).astype(float)
        rows.append(_row("demonstrations", "mean level", own_level, None))
    return rows


def calibrated(settings: PocketSettings) -> list[Row]:
    """Return the errors after calibration, and what the 90 % sets hold, by group of clips."""
    found: dict[str, list[tuple[Floats, ...]]] = {}
    for training in settings.trainings:
        fitted, clips = fit_novelty_calibration(settings, training), probed_clips(settings, training)
        weight, bias = (np.array(fitted["calibration"][part]) for part in ("weight", "bias"))
        probs = mapped_probabilities(clips.features, weight, bias)
        held = probs >= fitted["conformal"]
        columns = (np.abs(_median(probs) - clips.level), held[np.arange(len(held)), clips.level - 1], held.sum(1))
        for group in np.unique(clips.group):
            found.setdefault(str(group), []).append(tuple(column[clips.group == group] for column in columns))
    names = ("calibrated MAE", "90 % set holds the level", "levels in it")
    return [
        _row(group, name, np.concatenate([part[at] for part in parts]).astype(float), None)
        for group, parts in sorted(found.items())
        for at, name in enumerate(names)
    ]


def _errors(source: str, probs: Floats, truth: Floats, task: NDArray[np.str_] | None) -> list[Row]:
    error = np.abs(_median(probs) - truth)
    mean, done = probs @ LEVELS, truth == 5
    if task is None:
        area = _interval(lambda drawn: auc(mean[drawn], done[drawn]), len(truth))
        return [_row(source, "MAE", error, None), Row(source, "success AUC", *area, len(truth))]
    areas = np.array([auc(mean[task == each], done[task == each]) for each in np.unique(task)])
    area = _interval(lambda drawn: float(np.nanmean(areas[drawn])), len(areas))
    return [_row(source, "MAE", error, task), Row(source, "success AUC", *area, len(truth))]


def _row(source: str, what: str, values: Floats, task: NDArray[np.str_] | None) -> Row:
    means = values if task is None else np.array([values[task == each].mean() for each in np.unique(task)])
    return Row(source, what, *_interval(lambda drawn: float(means[drawn].mean()), len(means)), len(values))


def _interval(statistic: Callable[[NDArray[np.int64]], float], count: int) -> tuple[float, float, float]:
    rng = rng_for(0, "folds")
    drawn = [statistic(rng.integers(count, size=count)) for _ in range(DRAWS)]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return statistic(np.arange(count)), float(low), float(high)


def _own_above(folds: list[Predictions], name: str) -> Floats:
    """Return for every held-out demonstration how often it scores higher than its copies; a tie counts half."""
    parts = []
    for found in folds:
        own = _probabilities(found["demonstrations/logits"]) @ LEVELS
        other = (_probabilities(found[f"demonstrations_{name}/logits"]) @ LEVELS).reshape(-1, len(own))
        parts.append(((own > other) + 0.5 * (own == other)).mean(0))
    return np.concatenate(parts)


def _probabilities(logits: NDArray[np.float32]) -> Floats:
    return np.asarray(softmax(logits.astype(np.float64), axis=1))


def _median(probs: Floats) -> NDArray[np.int64]:
    return np.asarray(1 + (probs.cumsum(axis=1) < 0.5).sum(axis=1))


if __name__ == "__main__":
    main()
