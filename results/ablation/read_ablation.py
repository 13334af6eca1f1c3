"""Puts the answers of all mixtures and seeds into one table, and prints what they say.

    python results/ablation/read_ablation.py FOLDER answers.csv     # FOLDER/MIXTURE-seedN as train vlm leaves them
    python results/ablation/read_ablation.py FOLDER judged.csv --judged     # what `train_smol.py judge` wrote there
    python results/ablation/read_ablation.py answers.csv            # a table that was made so

Intervals are 95 % bootstrap over tasks; a mixture's error on an example is the mean over its seeds.
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
PERTURBED = "original, perturbed"
KEYS = ("episode", "source", "level", "under")  # of an example; then what each model says of it


def collect(folder: Path, judged: bool, out: Path) -> None:
    read, name = (read_table, "judged.csv") if judged else (read_validation, "validation.jsonl")
    found = {path.parent.name: read(path) for path in sorted(folder.glob(f"*/{name}"))}
    first = next(iter(found.values()))
    with out.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow((*KEYS, *found))
        for place, row in enumerate(first):
            said = [f"{float(rows[place]['said']):.3f}" for rows in found.values()]
            writer.writerow((*(row.get(key, "") for key in KEYS), *said))


def read_validation(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def report(path: Path) -> None:
    rows = read_table(path)
    level = np.array([float(row["level"]) for row in rows])
    task = np.array([row["episode"].rsplit("-", 1)[0] for row in rows])
    groups, means = groups_of(rows, task), errors_of_mixtures(rows, level)
    print(f"{'':<16}" + "".join(f"{each:>24}" for each in groups))
    for mixture, error in means.items():
        cells = [interval(error[some], task[some]) for some in groups.values()]
        print(f"{mixture:<16}" + "".join(f"{cell:>24}" for cell in cells))
    best = [min(np.abs(level[some] - value).mean() for value in range(1, 6)) for some in groups.values()]
    print(f"{'best constant':<16}" + "".join(f"{value:>24.2f}" for value in best))
    for mixture in [each for each in means if each != "full"]:
        more = means[mixture] - means["full"]
        print(
            f"{mixture} less full: "
            + "; ".join(f"{g} {interval(more[some], task[some])}" for g, some in groups.items())
        )


def groups_of(rows: Sequence[dict[str, str]], task: np.ndarray) -> dict[str, np.ndarray]:
    """Return which examples are of each kind; clean ones come first, those under perturbations last."""
    source = np.array([row["source"] for row in rows])
    clean = np.array([not row["under"] for row in rows])
    groups = {"all": clean} | {each: clean & (source == each) for each in dict.fromkeys(source.tolist())}
    demonstrated = np.isin(task, sorted(DEMONSTRATED))
    groups[WITH_FAILURES] = groups["original"] & ~demonstrated
    groups[SUCCESSES_ALONE] = groups["original"] & demonstrated
    return groups if clean.all() else groups | {PERTURBED: ~clean}


def errors_of_mixtures(rows: Sequence[dict[str, str]], level: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean error of each mixture over its seeds, for every example."""
    errors: dict[str, list[np.ndarray]] = {}
    for name in list(rows[0])[len(KEYS) :]:
        said = np.array([float(row[name]) for row in rows])
        errors.setdefault(name.rsplit("-seed", 1)[0], []).append(np.abs(said - level))
    return {mixture: np.mean(some, axis=0) for mixture, some in errors.items()}


def interval(values: np.ndarray, task: np.ndarray) -> str:
    """Return the mean with its interval, tasks drawn anew."""
    tasks: Sequence[str] = sorted(set(task))
    sums = np.array([values[task == each].sum() for each in tasks])
    counts = np.array([(task == each).sum() for each in tasks])
    draws = np.random.default_rng(0).integers(len(tasks), size=(DRAWS, len(tasks)))
    low, high = np.quantile(sums[draws].sum(axis=1) / counts[draws].sum(axis=1), (0.025, 0.975))
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    places = [Path(each) for each in sys.argv[1:] if each != "--judged"]
    if len(places) == 2:
        collect(places[0], "--judged" in sys.argv, places[1])
    report(places[-1])
