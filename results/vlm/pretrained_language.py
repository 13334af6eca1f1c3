r"""Prints whether pretrained language helps: two trainings alike but for the weights of the language model.

    python results/vlm/pretrained_language.py FOLDER language.csv   # FOLDER/pretrained and FOLDER/random, as below
    python results/vlm/pretrained_language.py language.csv          # a table that was made so

Each of the two folders is what `train_smol.py levels` left, with the answers of `train_smol.py probe` as probes.csv:
the first by the following, the second from `blank` in place of `smol`.

    python results/vlm/train_smol.py forget smol blank
    python results/vlm/train_smol.py render rollouts50 --counts 75 0 40
    python results/vlm/train_smol.py captions rollouts50 smol aligned --per-task 75 --epochs 4 --batch-size 32
    python results/vlm/train_smol.py levels rollouts50 aligned lang/pretrained --per-task 75 --lr 2e-4 \
        --epochs 5 --compile
    python results/vlm/train_smol.py probe rollouts50 lang/pretrained lang/pretrained/probes.csv

Intervals are 95 % bootstrap over tasks.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parent.parent
sys.path.append(str(RESULTS / "ablation"))
from read_ablation import interval  # noqa: E402

LANGUAGE = ("pretrained", "random")
Answer = tuple[str, str, str, str]  # of which tasks, what was asked, the task and the level


def collect(folder: Path, out: Path) -> None:
    pretrained, drawn = (list(answers(folder / each)) for each in LANGUAGE)
    with out.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(("tasks", "asked", "task", "level", *LANGUAGE))
        for (asked, said), (same, other) in zip(pretrained, drawn, strict=True):
            assert asked == same, (asked, same)
            writer.writerow((*asked, f"{said:.3f}", f"{other:.3f}"))


def answers(folder: Path) -> Iterator[tuple[Answer, float]]:
    for line in (folder / "validation.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield (
            ("trained", f"validation: {row['source']}", row["episode"].rsplit("-", 1)[0], str(row["level"])),
            row["said"],
        )
    with (folder / "probes.csv").open() as handle:
        for row in csv.DictReader(handle):
            tasks = "unseen" if row["unseen"] == "1" else "trained"
            yield (tasks, row["probe"], row["task"], row["level"]), float(row["said"])


def report(path: Path) -> None:
    with path.open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    columns = "".join(f"{each:>22}" for each in (*LANGUAGE, "random less"))
    print(f"{'mean error of the level':<44}{columns}{'constant':>12}")
    for tasks, asked in dict.fromkeys((row["tasks"], row["asked"]) for row in rows):
        some = [row for row in rows if (row["tasks"], row["asked"]) == (tasks, asked)]
        if asked not in ("blank", "other", "contrary"):  # what these should be worth is not known
            level, *said = (np.array([float(row[name]) for row in some]) for name in ("level", *LANGUAGE))
            task = np.array([row["task"] for row in some])
            pretrained, drawn = (np.abs(each - level) for each in said)
            best = min(np.abs(level - value).mean() for value in range(1, 6))
            cells = [interval(each, task) for each in (pretrained, drawn, drawn - pretrained)]
            print(
                f"{f'{tasks}, {asked} ({len(some)})':<44}" + "".join(f"{cell:>22}" for cell in cells) + f"{best:>12.2f}"
            )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        collect(Path(sys.argv[1]), Path(sys.argv[2]))
    report(Path(sys.argv[-1]))
