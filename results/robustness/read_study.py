"""Prints the tables of this page and of ../vlm from strata.csv and contrasts.csv; the README has the plan's rules.

    python results/robustness/read_study.py [FOLDER]

FOLDER, by default this one, is what `rewardlab study perturbation` wrote.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

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
Row = dict[str, str]
Question = tuple[str, str, str, str, str, str, int]  # two models, what differs, stratum, category, severity, the side


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
    for metric, title in MEASURES.items():
        less = {(r["less"], r["stratum"]): r for r in contrasts
                if r["model"] == ARMS["tuned"] and r["category"] == "clean" and r["metric"] == metric}  # fmt: skip
        found = {m: [less.get((m, s)) for s in STRATA] for m in dict.fromkeys(m for m, _ in less)}
        show(f"tuned less, {title}", STRATA, found, "difference")
    print("\nhypotheses\n\n| hypothesis | balanced accuracy | success AUC | decision |")
    for name, questions in hypotheses().items():
        print(f"| {name} | " + " | ".join(decide(contrasts, questions)) + " |")


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
    low, high = ("lost_low", "lost_high") if number == "lost" else ("low", "high")
    ends = f" [{float(row[low]):.2f}, {float(row[high]):.2f}]" if row[low] else ""
    return f"{float(row[number]):.2f}{ends}"


def hypotheses() -> dict[str, list[Question]]:
    """Return what each hypothesis of the plan asks; a side of 1 is that the first is more."""
    general, tuned, ensemble, _, plain, perturbed = ARMS.values()
    blind = ["blank", "text-only"]
    return {
        "1: general loses more than tuned, visual": [(tuned, general, "lost", "known tasks", "visual", WORST, -1)],
        "2: tuned loses more than general, semantic": [(tuned, general, "lost", "known tasks", "semantic", WORST, 1)],
        "3: the ensemble is higher than tuned in every category": [
            (ensemble, tuned, "difference", "known tasks", c, WORST, 1) for c in CATEGORIES
        ],
        "4: tuned is higher than general on unseen tasks": [
            (tuned, general, "difference", "unseen tasks", "clean", "0", 1)
        ],
        "5: tuned sees more than the controls, known tasks": [
            (tuned, m, "difference", "known tasks", "clean", "0", 1) for m in (*blind, *MOTION)
        ],
        "5: tuned sees more than the controls, real clips": [
            (tuned, m, "difference", "real clips", "clean", "0", 1) for m in (*blind, *MOTION)
        ],
        **{
            f"pair: clean frames alone lose more, {c}": [(plain, perturbed, "lost", "known tasks", c, WORST, 1)]
            for c in CATEGORIES
        },
    }


def decide(contrasts: list[Row], questions: list[Question]) -> Iterator[str]:
    """Yield the weakest difference of each primary measure, and whether all of both are on the side that was said."""
    places = {(r["model"], r["less"], r["stratum"], r["category"], r["severity"], r["metric"]): r for r in contrasts}
    answers = []
    for metric in (BALANCED, AUC):
        asked = []
        for one, other, number, stratum, category, severity, side in questions:
            row = places.get((one, other, stratum, category, severity, metric))
            turned = row is None
            if row is None:
                row = places[other, one, stratum, category, severity, metric]
            low, high = ("lost_low", "lost_high") if number == "lost" else ("low", "high")
            value, ends = float(row[number]), sorted((float(row[low]), float(row[high])))
            if turned:
                value, ends = -value, [-ends[1], -ends[0]]
            asked.append((side * value, value, ends, ends[0] > 0 if side > 0 else ends[1] < 0,
                          ends[1] < 0 if side > 0 else ends[0] > 0))  # fmt: skip
        _, value, ends, _, _ = min(asked)
        answers.append((all(each[3] for each in asked), any(each[4] for each in asked)))
        yield f"{value:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]"
    if all(yes for yes, _ in answers):
        yield "supported"
    else:
        yield "contradicted" if all(no for _, no in answers) else "inconclusive"


if __name__ == "__main__":
    main()
