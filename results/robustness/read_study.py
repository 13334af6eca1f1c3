"""Prints the tables of this page and of ../vlm from strata.csv and contrasts.csv; the README has the plan's rules.

    python results/robustness/read_study.py [FOLDER]

FOLDER, by default this one, is what `rewardlab study perturbation` wrote.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rewardlab.core.run import open_run
from rewardlab.training.holdout import draw_split
from rewardlab.worlds.metaworld.tasks import unseen_tasks

sys.path.append(str(Path(__file__).resolve().parent.parent / "ablation"))
from read_ablation import interval

BALANCED, AUC, ERROR = "balanced_success_accuracy", "success_auc_within_subset", "micro_mae"
MEASURES = {BALANCED: "balanced accuracy", AUC: "success AUC", ERROR: "error of the level"}
STRATA = ("known tasks", "unseen tasks", "tabletop", "real clips")
CATEGORIES = ("visual", "semantic", "temporal", "domain")
NAMES = ("general", "tuned", "ensemble", "pair", "trained-plain", "trained-perturbed")
ARMS = {name: f"{name}, 3 trainings" for name in NAMES}
SHIPPED = ("pocket-large", "pocket", "pocket-plain")
MOTION = ("motion", "end-motion", "change")
SHOWN = (*ARMS.values(), *SHIPPED, "blank", "text-only", "length", *MOTION)
WORST = "4"
NEEDED = ("model", "episode", "subset", "task", "perturbation", "severity", "level", "truth_level", "drawn")
Row = dict[str, str]
Question = tuple[str, str, str, str, str, str]  # what should be more, than what, in which number; where


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    strata, contrasts = (rows(folder / name) for name in ("strata.csv", "contrasts.csv"))
    for metric, title in MEASURES.items():
        clean = {(r["model"], r["stratum"]): r for r in strata if r["category"] == "clean" and r["metric"] == metric}
        show(f"undisturbed, {title}", STRATA, {m: [clean.get((m, s)) for s in STRATA] for m in SHOWN})
    own = {(r["model"], r["stratum"]): r for r in strata if r["metric"] == "instruction_grounding"}
    show("own instruction above another task's", STRATA, {m: [own.get((m, s)) for s in STRATA] for m in SHOWN})
    for metric, title in MEASURES.items():
        worst = {(r["model"], r["stratum"], r["category"]): r for r in strata if worst_of(r, metric)}
        found = {m: [worst.get((m, "known tasks", c)) for c in CATEGORIES] for m in (*ARMS.values(), *SHIPPED)}
        show(f"lost at severity 4 on known tasks, {title}", CATEGORIES, found, "lost")
    flips = {(r["model"], r["category"]): r for r in strata
             if r["stratum"] == "clips without labels" and worst_of(r, "flip_rate")}  # fmt: skip
    found = {m: [flips.get((m, c)) for c in CATEGORIES] for m in (*ARMS.values(), *SHIPPED)}
    show("share of clips whose level changes at severity 4, clips without labels", CATEGORIES, found)
    both = (ARMS["trained-plain"], ARMS["trained-perturbed"], "known tasks", WORST)
    gaps = [r for r in contrasts if (r["model"], r["less"], r["stratum"], r["severity"]) == both]
    pair = {(r["metric"], r["category"]): r for r in gaps}
    found = {title: [pair.get((metric, c)) for c in CATEGORIES] for metric, title in MEASURES.items()}
    show("what trained-plain loses more than trained-perturbed, known tasks", CATEGORIES, found, "lost")
    if (folder / "run").exists():
        print("\nthe same in levels, by whether trained-perturbed was trained on that perturbation\n")
        print("| category | trained on | not |\n| visual | " + " | ".join(by_training(folder / "run")) + " |")
    for metric, title in MEASURES.items():
        less = {(r["less"], r["stratum"]): r for r in contrasts
                if r["model"] == ARMS["tuned"] and r["category"] == "clean" and r["metric"] == metric}  # fmt: skip
        found = {m: [less.get((m, s)) for s in STRATA] for m in dict.fromkeys(m for m, _ in less)}
        show(f"tuned less, {title}", STRATA, found, "difference")
    print("\nhypotheses\n\n| hypothesis | balanced accuracy | success AUC | decision |")
    for name, questions in hypotheses().items():
        print(f"| {name} | " + " | ".join(decide(contrasts, questions)) + " |")


def by_training(run: Path) -> Iterator[str]:
    """Yield how many levels more the error of `trained-plain` grows, for perturbations of training and for others."""
    trials = open_run(run).trials(("id", "status", *NEEDED))
    severity, perturbation = trials.number("severity"), trials.text("perturbation").astype(str)
    asked = ((perturbation == "random:visual") & (severity == int(WORST))) | (perturbation == "clean")
    known = trials.matches("subset", "metaworld") & ~np.isin(trials.text("task").astype(str), unseen_tasks(0))
    some = trials.where(asked & known & trials.matches("status", "scored"))
    error = np.abs(some.number("level") - some.number("truth_level"))
    cells = zip(*(some.text(name).tolist() for name in ("model", "perturbation", "episode")), strict=True)
    found = dict(zip(cells, zip(error, some.text("task"), some.text("drawn"), strict=True), strict=True))
    taught = draw_split().train_perturbations
    for of_training in (True, False):
        more, tasks = [], []
        for (model, change, episode), (value, task, drawn) in found.items():
            if change == "clean" or "pockets-" not in model or (drawn in taught) != of_training:
                continue
            plain = -1 if "/pocket-fold" in model else 1
            more.append(plain * (value - found[model, "clean", episode][0]))
            tasks.append(task)
        # the mean of plain plus the mean of minus perturbed, as many of each
        yield interval(2 * np.array(more), np.array(tasks))


def rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def worst_of(row: Row, metric: str) -> bool:
    return row["severity"] == WORST and row["metric"] == metric


def show(title: str, columns: tuple[str, ...], found: dict[str, list[Row | None]], number: str = "value") -> None:
    """Print a table with a row of every model."""
    print(f"\n{title}\n\n| model | " + " | ".join(columns) + " |")
    for model, cells in found.items():
        print(f"| `{model.removesuffix(', 3 trainings')}` | " + " | ".join(cell(each, number) for each in cells) + " |")


def cell(row: Row | None, number: str) -> str:
    """Return a number with its interval."""
    if row is None or not row[number]:
        return ""
    ends = ends_of(number)
    return text(*(float(row[name]) for name in (number, *ends))) if row[ends[0]] else f"{float(row[number]):.2f}"


def ends_of(number: str) -> tuple[str, str]:
    """Return the columns with the interval of a number."""
    return ("lost_low", "lost_high") if number == "lost" else ("low", "high")


def text(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def hypotheses() -> dict[str, list[Question]]:
    """Return what each hypothesis of the plan asks."""
    general, tuned, ensemble, _, plain, perturbed = ARMS.values()
    controls = ("blank", "text-only", *MOTION)
    asked: dict[str, list[Question]] = {
        "1: general loses more than tuned, visual": [(general, tuned, "lost", "known tasks", "visual", WORST)],
        "2: tuned loses more than general, semantic": [(tuned, general, "lost", "known tasks", "semantic", WORST)],
        "3: the ensemble is higher than tuned in every category": [
            (ensemble, tuned, "difference", "known tasks", c, WORST) for c in CATEGORIES
        ],
        "4: tuned is higher than general on unseen tasks": [
            (tuned, general, "difference", "unseen tasks", "clean", "0")
        ],
    }
    for stratum in ("known tasks", "real clips"):
        places = [(tuned, control, "difference", stratum, "clean", "0") for control in controls]
        asked[f"5: tuned sees more than the controls, {stratum}"] = places
    for c in CATEGORIES:
        asked[f"`trained-plain` loses more than `trained-perturbed`, {c}"] = [
            (plain, perturbed, "lost", "known tasks", c, WORST)
        ]
    return asked


def decide(contrasts: list[Row], questions: list[Question]) -> Iterator[str]:
    """Yield the least difference by each primary measure, and whether all are above 0, or one of each is below."""
    place = ("model", "less", "stratum", "category", "severity", "metric")
    rows = {tuple(row[name] for name in place): row for row in contrasts}
    above, below = [], []
    for metric in (BALANCED, AUC):
        found = [difference(rows, question, metric) for question in questions]
        above.append(all(low > 0 for _, low, _ in found))
        below.append(any(high < 0 for _, _, high in found))
        yield text(*min(found))
    yield "supported" if all(above) else "contradicted" if all(below) else "inconclusive"


def difference(rows: dict[tuple[str, ...], Row], question: Question, metric: str) -> tuple[float, float, float]:
    """Return how much more one is than the other, with its interval; the table may have it the other way round."""
    one, other, number, *place = question
    row, turned = rows.get((one, other, *place, metric)), rows.get((other, one, *place, metric))
    if row is not None:
        value, low, high = (float(row[name]) for name in (number, *ends_of(number)))
        return value, low, high
    assert turned is not None, f"{one} and {other} are not compared"
    value, low, high = (-float(turned[name]) for name in (number, *reversed(ends_of(number))))
    return value, low, high


if __name__ == "__main__":
    main()
