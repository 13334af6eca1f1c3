"""Prints the table of this folder's README from rates.csv: python results/guard/read_rates.py.

Claims are clips that the model calls a success. Withheld at random, as many claims as the guard withholds would lower
false success by their share: that is the baseline of the last column.
"""

import csv
from pathlib import Path

RATES = Path(__file__).resolve().parent / "rates.csv"
FALSE, FOUND = "false success {} guard", "successes found {} guard"


def main() -> None:
    with RATES.open(encoding="utf-8") as handle:
        rows = {(row["data"], row["condition"], row["measure"]): row for row in csv.DictReader(handle)}
    head = ("", "clips", "false success without", "with", "successes found without", "with")
    print("| " + " | ".join((*head, "clips withheld", "claims withheld", "false success falls by")) + " |")
    for data in ("known", "unseen"):
        for condition in ("clean", "perturbed"):
            own = {measure: row for (*where, measure), row in rows.items() if where == [data, condition]}
            rate = {measure: float(row["rate"]) for measure, row in own.items()}
            sides = ((FALSE.format("without"), FALSE.format("with")), (FOUND.format("without"), FOUND.format("with")))
            claims = sum(rate[without] * int(own[without]["clips"]) for without, _ in sides)
            withheld = rate["withheld"] * int(own["withheld"]["clips"])
            fall = own["fall of false success"]
            cells = [f"{rate[each]:.1%}" for pair in sides for each in pair]
            interval = (
                f"{rate['fall of false success']:.0%} [{100 * float(fall['low']):.0f}, {100 * float(fall['high']):.0f}]"
            )
            shares = [f"{rate['withheld']:.1%}", f"{withheld / claims:.0%}", interval]
            print("| " + " | ".join((f"{data} tasks, {condition}", own["withheld"]["clips"], *cells, *shares)) + " |")


if __name__ == "__main__":
    main()
