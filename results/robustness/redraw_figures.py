"""Draw the three figures again from the tables beside this file, without the run: to restyle them, or for a PDF.

python results/robustness/redraw_figures.py [--suffix .svg .png .pdf]
"""

import argparse
import csv
import math
import re
from pathlib import Path

from matplotlib.figure import Figure

from rewardlab.analysis.figure_style import save_figure
from rewardlab.analysis.findings import REFERENCE
from rewardlab.metrics.condition_contrasts import ContrastEstimate
from rewardlab.perturbations.contract import SEVERITIES
from rewardlab.studies.perturbation_paper.measured.measured_figures import (
    draw_measured_accuracy,
    draw_measured_losses,
    draw_measured_tau,
    model_labels,
)
from rewardlab.studies.perturbation_paper.measured.paper_models_and_tasks import CATEGORIES, GROUPS, group_of, roles_of
from rewardlab.studies.perturbation_paper.paper_results import STATED_ACCURACY, STATED_TAU
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.task_splits import split_of_task

HERE = Path(__file__).parent
Row = dict[str, str]


def rows(name: str) -> list[Row]:
    return list(csv.DictReader((HERE / name).read_text(encoding="utf-8").splitlines()))


def estimate(row: Row, value: str) -> ContrastEstimate:
    numbers = (math.nan if row[name] == "" else float(row[name]) for name in (value, "low", "high"))
    return ContrastEstimate(*numbers, clusters=int(row.get("clusters", 0)))


def figures() -> dict[str, Figure]:
    right = [r for r in rows("every.csv") if r["metric"] == "success_accuracy"]
    found = {(r["model"], r["category"], int(r["severity"])): r for r in right}
    taus = {(r["model"], int(r["severity"])): r for r in rows("figure2.csv")}
    lost = {(r["model"], r["group"]): estimate(r, "loss") for r in rows("figure3.csv")}
    judged = list(dict.fromkeys(model for model, _ in taus))
    roles = roles_of(judged)
    labels, run = model_labels(judged, roles), f"Run: {command()}"
    accuracies = {
        c: {m: [estimate(found[m, c, s], "value") for s in SEVERITIES] for m in (*judged, REFERENCE)}
        for c in CATEGORIES
    }
    stated = {(model, c): STATED_ACCURACY[role][c] for role, model in roles.items() for c in CATEGORIES}
    told = {(model, s): value for role, model in roles.items() for s, value in STATED_TAU.get(role, {}).items()}
    curves = {m: [estimate(taus[m, s], "tau") for s in SEVERITIES] for m in judged}
    mean = f"Within an episode, mean over {', '.join(CATEGORIES)}. Where either is constant there is none."
    return {
        "figure1": draw_measured_accuracy(accuracies, labels, stated, [run]),
        "figure2": draw_measured_tau(curves, labels, told, [mean, run]),
        "figure3": draw_measured_losses(lost, labels, tasks(), [run]),
    }


def tasks() -> dict[str, list[str]]:
    """Return the tasks of the run by kind: all of the training and of the test split, as README.md says."""
    held_out = sorted(task for task in PROGRESS_SPECS if split_of_task(task) in ("train", "test"))
    return {group: [task for task in held_out if group_of(task) == group] for group in GROUPS}


def command() -> str:
    """Return the command of the run, as claims.md has it."""
    line = re.search(r"from `(rewardlab stress [^`]*)`", (HERE / "claims.md").read_text(encoding="utf-8"))
    assert line is not None
    return line[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suffix", nargs="+", default=[".svg", ".png"])
    suffixes = parser.parse_args().suffix
    for name, figure in figures().items():
        for suffix in suffixes:
            save_figure(figure, HERE / f"{name}{suffix}")


if __name__ == "__main__":
    main()
