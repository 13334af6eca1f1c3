"""Reads what `rewardlab train pocket` keeps of its probes: how the networks judge rollouts they were not trained on.

    rewardlab train pocket --folds 0,1,2,3,4 --dinov2 dinov2_vits14.onnx --out runs/pocket
    python results/pocket/read_probes.py runs/pocket/pocket-fold*-probes.npz --out probes.csv

Every number is a row: file, tasks (seen or unseen), what, value, n. MAE and AUC are means over tasks.
"""

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import permutation_test, rankdata, spearmanr

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.tasks import unseen_tasks

Row = tuple[str, str, str, float, int]
LEVELS = np.arange(1, 6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probes", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("probes.csv"))
    arguments = parser.parse_args()
    rows = [row for path in arguments.probes for row in probe_rows(path)]
    with arguments.out.open("w", newline="") as handle:
        csv.writer(handle).writerows([("file", "tasks", "what", "value", "n"), *rows])
    for row in rows:
        print(f"{row[0]:24} {row[1]:8} {row[2]:48} {row[3]:7.3f} {row[4]:5}")


def probe_rows(path: Path) -> Iterator[Row]:
    fold = int(re.search(r"fold(\d)", path.name).group(1))
    with np.load(path) as table:
        found = {name: table[name] for name in table.files}
    for split in ("seen", "unseen"):
        for what, (value, count) in split_numbers(found, unseen_tasks(fold), split == "unseen").items():
            yield path.name.removesuffix("-probes.npz"), split, what, float(value), count


def split_numbers(
    found: dict[str, NDArray[Any]], unseen: tuple[str, ...], wanted: bool
) -> dict[str, tuple[float, int]]:
    def part(probe: str) -> dict[str, NDArray[Any]]:
        names = [name for name in found if name.startswith(f"{probe}/")]
        chosen = np.isin(found[f"{probe}/task"], unseen) == wanted
        return {name.split("/")[1]: found[name][chosen] for name in names}

    own = part("own")
    truth, tasks, probs = own["level"], own["task"], softmax(own["logits"].astype(float), axis=1)
    done = truth == 5
    areas = [auc(probs[tasks == task, 4], done[tasks == task]) for task in np.unique(tasks)]
    backwards = part("reversed")["progress"]
    numbers = {
        "MAE": (over_tasks(np.abs(median(probs) - truth), tasks), len(truth)),
        "MAE of the best constant": (min(over_tasks(np.abs(c - truth), tasks) for c in LEVELS), len(truth)),
        "success accuracy": (((median(probs) == 5) == done).mean(), len(truth)),
        "success AUC": (np.nanmean(areas), len(truth)),
        "order sensitivity on successes": (order(own["progress"][done], backwards[done]), done.sum()),
    }
    for name in ("held_out",):
        other = part(name)
        wrong = np.abs(median(softmax(other["logits"].astype(float), axis=1)) - other["level"])
        numbers[f"MAE, {name}"] = (over_tasks(wrong, other["task"]), len(wrong))
    for name in ("still", "other_thing"):
        levels = median(softmax(part(name)["logits"].astype(float), axis=1))
        numbers[f"mean level, {name}"] = (levels.mean(), len(levels))
    own_mean = dict(zip(own["row"].tolist(), probs @ LEVELS, strict=True))
    contrary = part("contrary")
    means = softmax(contrary["logits"].astype(float), axis=1) @ LEVELS
    told = [own_mean[row] > mean + 0.5 for row, mean in zip(contrary["row"].tolist(), means, strict=True)]
    return numbers | {"contraries told apart": (np.mean(told), len(told))}


def median(probs: NDArray[Any]) -> NDArray[Any]:
    return 1 + (probs.cumsum(axis=1) < 0.5).sum(axis=1)


def over_tasks(values: NDArray[Any], tasks: NDArray[Any]) -> float:
    return float(np.mean([values[tasks == task].mean() for task in np.unique(tasks)]))


def auc(score: NDArray[Any], positive: NDArray[Any]) -> float:
    """The chance that a success gets more than another clip; nan where a task has only one of them."""
    ones, zeros = positive.sum(), (~positive).sum()
    if not ones or not zeros:
        return float("nan")
    return float((rankdata(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def sign_flip_p_value(gains: NDArray[Any]) -> float:
    """Return the one-sided p-value that tasks gain nothing: the sign of each task's gain is turned by chance."""
    settings = {"n_resamples": 99_999, "rng": rng_for(0, "signs")}  # fewer choices of signs than that are all tried
    test = permutation_test((gains,), np.sum, permutation_type="samples", alternative="greater", **settings)
    return float(test.pvalue)


def order(forward: NDArray[Any], backward: NDArray[Any]) -> float:
    """Half of what the correlation with time loses when the clip is reversed."""
    time = np.arange(forward.shape[1])
    lost = [spearmanr(time, f).statistic - spearmanr(time, b).statistic for f, b in zip(forward, backward, strict=True)]
    return float(np.nanmean(lost) / 2)


if __name__ == "__main__":
    main()
