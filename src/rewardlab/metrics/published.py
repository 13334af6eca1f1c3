"""The published RoboRewardBench table: what 22 models score per subset, to be shown beside our own numbers.

Source: table 10 of "RoboReward: General-Purpose Vision-Language Reward Models for Robotics" (Lee, Wagenmaker,
Pertsch et al.): group-wise mean absolute error on levels 1 to 5, lower is better, as printed there.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

TABLE = "roborewardbench_table10.csv"


@dataclass(frozen=True)
class PublishedRow:
    """One model of the published table: its overall error as printed, and its error on each subset."""

    model: str
    overall: float
    subsets: dict[str, float]

    def macro_mae(self) -> float:
        """Return the mean over subsets, which the printed overall error is to three decimals."""
        return sum(self.subsets.values()) / len(self.subsets)


def published_rows() -> list[PublishedRow]:
    """Return the published table, best model first."""
    text = files("rewardlab.metrics").joinpath(TABLE).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [
        PublishedRow(
            row["model"],
            float(row["overall"]),
            {name: float(value) for name, value in row.items() if name not in ("model", "overall")},
        )
        for row in rows
    ]
