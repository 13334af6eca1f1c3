"""Prints the tables of this folder's README from the rates of both models: python results/guard/read_rates.py.

Claims are clips that the model calls a success. Withheld at random, as many claims as the guard withholds would lower
false success by their share: that is the baseline.
"""

import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ("pocket-0.1", "pocket-plain")
PARTS = [(data, condition) for data in ("known", "unseen") for condition in ("clean", "perturbed")]
Rates = dict[str, dict[str, str]]


def main() -> None:
    for model in MODELS:
        rates = {part: rates_of(model, *part) for part in PARTS}
        print(f"\n{model}, the guard\n")
        show("", "clips", "false success without", "with", "successes found without", "with", "clips withheld")
        for part, own in rates.items():
            sides = ("false success {} guard", "successes found {} guard")
            cells = [percent(own[side.format(which)]) for side in sides for which in ("without", "with")]
            show(named(part), own["withheld"]["clips"], *cells, percent(own["withheld"]))
        print(f"\n{model}, false success falls\n")
        show("", "with the guard by", "by random withholding", "difference, points")
        for part, own in rates.items():
            both = (interval(own[f"fall {by}"], "%") for by in ("of false success", "by random withholding"))
            show(named(part), *both, interval(own["fall beyond random withholding"]))
        print(f"\n{model}, calibration\n")
        show("", "stated less true success, points", "Brier score")
        for part, own in rates.items():
            error = own["Brier score of success"]
            shown = f"{float(error['rate']):.2f} [{float(error['low']):.2f}, {float(error['high']):.2f}]"
            show(named(part), interval(own["stated less true success"]), shown)


def rates_of(model: str, data: str, condition: str) -> Rates:
    with (HERE / model / "rates.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return {row["measure"]: row for row in rows if (row["data"], row["condition"]) == (data, condition)}


def named(part: tuple[str, str]) -> str:
    return f"{part[0]} tasks, {part[1]}"


def percent(row: dict[str, str]) -> str:
    return f"{float(row['rate']):.1%}"


def interval(row: dict[str, str], unit: str = "") -> str:
    rate, low, high = (100 * float(row[key]) for key in ("rate", "low", "high"))
    return f"{rate:.0f}{unit} [{low:.0f}, {high:.0f}]"


def show(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
