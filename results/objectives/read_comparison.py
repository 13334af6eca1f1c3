"""Prints the tables of this folder's README from comparison.json.

python results/objectives/read_comparison.py
"""

from pathlib import Path

from rewardlab.evaluation.objective_comparison import Comparison, read_comparison

HERE = Path(__file__).parent
SHOWN = {"across": "across", "success_auc": "success AUC", "mae": "MAE", "voc": "VOC", "robustness_auc": "robustness"}


def main() -> None:
    comparison = read_comparison(HERE)
    for group in ("seen tasks", "unseen tasks", "seen tasks, several steps", "unseen tasks, several steps"):
        print(f"\n{group} ({comparison.groups[group]})\n")
        for line in table(comparison, group):
            print(line)


def table(comparison: Comparison, group: str) -> list[str]:
    backbones = list(dict.fromkeys(cell.backbone for cell in comparison.cells))
    values = {(c.objective, c.backbone, c.measure): c.value for c in comparison.cells if c.group == group}
    lines = ["| objective | " + " | ".join(f"{SHOWN[m]}, {b}" for m in SHOWN for b in backbones) + " |"]
    lines.append("|---" * (1 + len(SHOWN) * len(backbones)) + "|")
    for name in [entry.name for entry in comparison.objectives] + list(comparison.controls):
        numbers = [values[name, backbone, measure] for measure in SHOWN for backbone in backbones]
        lines.append(f"| {name} | " + " | ".join("" if n is None else f"{n:.2f}" for n in numbers) + " |")
    return lines


if __name__ == "__main__":
    main()
