"""Prints the tables of this folder's README from comparison.json, and draws its figure.

python results/objectives/read_comparison.py [--figure]

--again makes every value, interval and p-value anew from the rewards of single clips in rewards.npz.
"""

import sys
from dataclasses import replace
from pathlib import Path

from rewardlab.evaluation.objective_comparison import Comparison, read_comparison, read_rewards

HERE = Path(__file__).parent
SHOWN = {"across": "across", "env_across": "across, env reward", "success_auc": "success AUC", "mae": "MAE"}
SURE = 0.05  # of a p-value after Holm


def main() -> None:
    comparison = read_comparison(HERE)
    if "--again" in sys.argv:
        cells, tests = read_rewards(HERE).table()
        comparison = replace(comparison, cells=cells, contrasts=tests)
    backbones = list(dict.fromkeys(cell.backbone for cell in comparison.cells))
    whole = [group for group in comparison.groups if "," not in group]
    for group in sorted(comparison.groups, key=lambda group: "," in group):
        print(f"\n{group}\n\n{head(comparison, group, backbones)}")
        print(*table(comparison, group, backbones), sep="\n")
    for group in whole:
        print(f"\nless triplet, {group}\n\n{head(comparison, group, backbones)}")
        print(*contrasts(comparison, group, backbones), sep="\n")
    if "--figure" in sys.argv:
        draw(comparison, backbones, whole)


def measured(comparison: Comparison, group: str) -> list[str]:
    """Return the measures of which a group has values: not every world has a reward of its own."""
    there = {cell.measure for cell in comparison.cells if cell.group == group and cell.value is not None}
    return [measure for measure in SHOWN if measure in there]


def head(comparison: Comparison, group: str, backbones: list[str]) -> str:
    """Return the first row of a table."""
    names = (f"{SHOWN[measure]}, {b}" for measure in measured(comparison, group) for b in backbones)
    return "| objective | " + " | ".join(names) + " |"


def table(comparison: Comparison, group: str, backbones: list[str]) -> list[str]:
    """Return a row of every objective and control."""
    values = {(c.objective, c.backbone, c.measure): c.value for c in comparison.cells if c.group == group}
    lines = []
    for name in [entry.name for entry in comparison.objectives] + list(comparison.controls):
        numbers = [values[name, backbone, measure] for measure in measured(comparison, group) for backbone in backbones]
        lines.append(f"| {name} | " + " | ".join("" if n is None else f"{n:.2f}" for n in numbers) + " |")
    return lines


def contrasts(comparison: Comparison, group: str, backbones: list[str]) -> list[str]:
    """Return the difference to triplet of every objective, with a star where it is significant after Holm."""
    found = {(c.objective, c.backbone, c.measure): c for c in comparison.contrasts if c.group == group}
    lines = []
    for name in [entry.name for entry in comparison.objectives if entry.name != comparison.against]:
        each = [found[name, backbone, measure] for measure in measured(comparison, group) for backbone in backbones]
        cells = [f"{c.difference:+.2f} [{c.low:.2f}, {c.high:.2f}]{'*' * (c.p_holm < SURE)}" for c in each]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def draw(comparison: Comparison, backbones: list[str], groups: list[str]) -> None:
    """Draw how much more often each objective orders frames rightly than triplet, with its interval."""
    from matplotlib import rc_context

    from rewardlab.reporting.figures import PAGE, PALETTE, STYLE, fix_layout, new_panels, save_figure

    names = [entry.name for entry in comparison.objectives if entry.name != comparison.against]
    with rc_context(STYLE):
        figure, panels = new_panels(PAGE, 2.8, len(groups))
        for axes, group in zip(panels, groups, strict=True):
            for place, backbone in enumerate(backbones):
                key = (backbone, group, "across")
                some = {c.objective: c for c in comparison.contrasts if (c.backbone, c.group, c.measure) == key}
                each = [some[name] for name in names]
                value = [c.difference for c in each]
                ends = ([c.difference - c.low for c in each], [c.high - c.difference for c in each])
                where = [row + 0.3 * place - 0.15 for row in range(len(names))]
                axes.errorbar(value, where, xerr=ends, fmt="osD"[place], color=PALETTE[place], label=backbone)
            axes.axvline(0, color="black", linewidth=0.8)
            axes.set(xlabel="across, less that of triplet", title=group)
            axes.set_yticks(range(len(names)), names)
        panels[-1].legend(loc="lower left")
        panels[0].invert_yaxis()
        figure.set_layout_engine("constrained")
        save_figure(fix_layout(figure), HERE / "across.svg")


if __name__ == "__main__":
    main()
