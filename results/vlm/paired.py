"""Prints `smol` beside pocket and every control on the same clips and frames, from the study of ../robustness/plan.md.

    python results/vlm/paired.py [FOLDER]

FOLDER, by default results/robustness, holds strata.csv and contrasts.csv of `rewardlab study perturbation`.
"""

import csv
import sys
from pathlib import Path

STRATA = ("known tasks", "unseen tasks", "tabletop", "real clips")
MEASURES = {
    "balanced_success_accuracy": "balanced accuracy",
    "success_auc_within_subset": "success AUC",
    "micro_mae": "error of the level",
}
Rows = list[dict[str, str]]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "robustness"
    strata, contrasts = (rows(folder / name) for name in ("strata.csv", "contrasts.csv"))
    for metric, title in MEASURES.items():
        show(title, [row for row in strata if row["metric"] == metric], "model", "value")
        tuned = {row["model"] for row in strata if row["plays"] == "tuned"}
        less = [row for row in contrasts if row["metric"] == metric and row["model"] in tuned]
        show(f"tuned less, {title}", less, "less", "difference")


def rows(path: Path) -> Rows:
    """Return the undisturbed rows of a table."""
    with path.open(encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row["category"] == "clean"]


def show(title: str, found: Rows, name: str, number: str) -> None:
    """Print a row of every model, with a column of every stratum that it has."""
    there = [stratum for stratum in STRATA if any(row["stratum"] == stratum for row in found)]
    cells = {(row[name], row["stratum"]): row for row in found}
    print(f"\n{title}\n\n| model | " + " | ".join(there) + " |")
    for model in dict.fromkeys(row[name] for row in found):
        print(f"| `{model}` | " + " | ".join(cell(cells.get((model, stratum)), number) for stratum in there) + " |")


def cell(row: dict[str, str] | None, number: str) -> str:
    """Return a number with its interval."""
    if row is None or not row[number]:
        return ""
    ends = f" [{float(row['low']):.2f}, {float(row['high']):.2f}]" if row["low"] else ""
    return f"{float(row[number]):.2f}{ends}"


if __name__ == "__main__":
    main()
