"""Puts the answers of all mixtures and seeds into one table, and prints what they say.

    python results/ablation/read_ablation.py FOLDER answers.csv     # FOLDER/MIXTURE-seedN as train vlm leaves them
    python results/ablation/read_ablation.py answers.csv            # any table of episode, source, level and answers

Intervals are 95 % bootstrap over tasks; a mixture's answer to an example is the mean error over its seeds.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

DRAWS = 2000
DEMONSTRATED = {  # tasks of which only successes were learned from
    "button-press-topdown", "door-unlock", "drawer-close", "faucet-close", "handle-press", "plate-slide-back",
}  # fmt: skip
WITH_FAILURES, SUCCESSES_ALONE = "tasks with failures", "successes alone"  # original clips of either kind of task


def collect(folder: Path, out: Path) -> None:
    found = {}
    for path in sorted(each.with_name("training.json") for each in folder.glob("*/validation.jsonl")):
        plan = json.loads(path.read_text())["plan"]
        lines = (path.parent / "validation.jsonl").read_text().splitlines()
        found[f"{plan['mixture']}-seed{plan['seed']}"] = [json.loads(line) for line in lines]
    first = next(iter(found.values()))
    with out.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(("episode", "source", "level", *found))
        for place, row in enumerate(first):
            said = [f"{rows[place]['said']:.3f}" for rows in found.values()]
            writer.writerow((row["episode"], row["source"], row["level"], *said))


def report(path: Path) -> None:
    with path.open() as handle:
        rows = list(csv.DictReader(handle))
    level = np.array([float(row["level"]) for row in rows])
    source = np.array([row["source"] for row in rows])
    task = np.array([row["episode"].rsplit("-", 1)[0] for row in rows])
    groups = {"all": np.ones(len(rows), bool)} | {each: source == each for each in dict.fromkeys(source.tolist())}
    demonstrated = np.isin(task, sorted(DEMONSTRATED))
    groups[WITH_FAILURES] = (source == "original") & ~demonstrated
    groups[SUCCESSES_ALONE] = (source == "original") & demonstrated
    names = list(rows[0])[3:]
    errors = {name: np.abs(np.array([float(row[name]) for row in rows]) - level) for name in names}
    mixtures = {name.rsplit("-seed", 1)[0]: [] for name in names}
    for name in names:
        mixtures[name.rsplit("-seed", 1)[0]].append(errors[name])
    means = {mixture: np.mean(some, axis=0) for mixture, some in mixtures.items()}
    print(f"{'':<16}" + "".join(f"{each:>24}" for each in groups))
    for mixture, error in means.items():
        cells = [interval(error[some], task[some]) for some in groups.values()]
        print(f"{mixture:<16}" + "".join(f"{cell:>24}" for cell in cells))
    best = [min(np.abs(level[some] - value).mean() for value in range(1, 6)) for some in groups.values()]
    print(f"{'best constant':<16}" + "".join(f"{value:>24.2f}" for value in best))
    for mixture, error in means.items():
        if "full" in means and mixture != "full":
            print(f"{mixture} less full, all: {interval(error - means['full'], task)}")


def interval(values: np.ndarray, task: np.ndarray) -> str:
    """Return the mean with its interval, tasks drawn anew."""
    tasks: Sequence[str] = sorted(set(task))
    sums = np.array([values[task == each].sum() for each in tasks])
    counts = np.array([(task == each).sum() for each in tasks])
    draws = np.random.default_rng(0).integers(len(tasks), size=(DRAWS, len(tasks)))
    low, high = np.quantile(sums[draws].sum(axis=1) / counts[draws].sum(axis=1), (0.025, 0.975))
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        collect(Path(sys.argv[1]), Path(sys.argv[2]))
    report(Path(sys.argv[-1]))
