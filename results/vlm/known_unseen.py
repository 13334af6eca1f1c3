r"""Prints what `smol` knows, beside a constant, from the run that is kept here.

    python results/vlm/known_unseen.py

Intervals are 95 % bootstraps over tasks. --figure draws the errors under change. The run and probes.csv were made by
the following; SEEN and UNSEEN are the two lines of `python results/pocket/measure.py --tasks`:

    rewardlab collect metaworld --tasks SEEN --episodes 10 --balance --camera right,left --seed 77 --out seen
    rewardlab collect metaworld --tasks UNSEEN --episodes 30 --balance --camera right,left --seed 78 --out unseen
    mkdir -p new-rollouts/metaworld && cp seen/metaworld/* unseen/metaworld/* new-rollouts/metaworld/
    cat seen/metadata.jsonl unseen/metadata.jsonl > new-rollouts/metadata.jsonl
    rewardlab stress hf:smol-reward new-rollouts --name smol --frames uniform:8 \
        --perturbations random:visual,random:semantic,random:temporal,random:domain --out study
    python results/robustness/keep_trials.py study results/vlm/run
    rewardlab stress hf:smol-reward sample-sim --limit 25 --perturbations all --name smol --frames uniform:8 --out full
    python results/vlm/train_smol.py render probes --counts 1 0 40
    python results/vlm/train_smol.py probe probes smol-reward probes.csv
"""

import csv
import re
import sys
from pathlib import Path

import numpy as np

from rewardlab.core.run import open_run
from rewardlab.core.trial_table import TrialTable
from rewardlab.worlds.metaworld.tasks import unseen_tasks

RESULTS = Path(__file__).resolve().parent.parent
sys.path.append(str(RESULTS / "ablation"))
from read_ablation import interval  # noqa: E402

PROBES = {
    "its own": "own",
    "a held-out phrasing": "held_out",
    "the contrary": "contrary",
    "another task's": "other",
    "'do the task'": "blank",
}
SMOL, CATEGORIES = "hf:smol-reward", ("visual", "semantic", "temporal", "domain")


def main() -> None:
    own = open_run(RESULTS / "vlm" / "run").trials()
    smol, controls = (of(own, name) for name in (SMOL, "constant"))
    print("clean rollouts, the same for all\n")
    print("| mean error of the level | 400 of trained tasks | 300 of unseen tasks |")
    rows = {"`smol`": (smol,), "`constant`": (controls,), "`smol` less `constant`": (smol, controls)}
    for name, pair in rows.items():
        print_row(name, [error(*pair, unseen=side) for side in (False, True)])
    print("\nat severity 4\n")
    print("| mean error of the level | clean | " + " | ".join(CATEGORIES) + " |")
    for name, trials in (("`smol`", smol), ("`constant`", controls)):
        print_row(name, [error(trials, category=each) for each in ("clean", *CATEGORIES)])
    print_row("`smol` less `constant`", [error(smol, controls, category=each) for each in ("clean", *CATEGORIES)])
    print("\nwhat it answers for a success\n")
    print("| instruction | trained tasks | unseen tasks |")
    for name, probe in PROBES.items():
        print_row(name, [answer(probe, unseen) for unseen in ("0", "1")])
    if "--figure" in sys.argv:
        draw(smol, controls)


def answer(probe: str, unseen: str) -> str:
    """Return the mean expected level that `smol` gives to successes under an instruction."""
    with (RESULTS / "vlm" / "probes.csv").open(encoding="utf-8") as handle:
        rows = [row for row in csv.DictReader(handle) if row["unseen"] == unseen]
    successes = {row["row"] for row in rows if row["probe"] == "own" and row["level"] == "5"}
    said = [float(row["said"]) for row in rows if row["probe"] == probe and row["row"] in successes]
    return f"{np.mean(said):.1f} ({len(said)})"


def draw(smol: "Answers", controls: "Answers") -> None:
    """Draw the mean errors, clean and at severity 4, with their intervals."""
    from matplotlib import rc_context

    from rewardlab.reporting.figures import COLUMN, PALETTE, STYLE, fix_layout, new_panels, save_figure

    with rc_context(STYLE):
        figure, (axes,) = new_panels(COLUMN, 2.4)
        for place, (name, trials) in enumerate((("smol", smol), ("constant, which sees nothing", controls))):
            cells = [error(trials, category=each) for each in ("clean", *CATEGORIES)]
            value, low, high = np.array([re.findall(r"[\d.]+", cell) for cell in cells], np.float64).T
            where = np.arange(len(cells)) + 0.2 * place - 0.1
            axes.errorbar(where, value, (value - low, high - value), fmt="os"[place], color=PALETTE[place], label=name)
        axes.set_xticks(range(len(cells)), ["clean", *CATEGORIES])
        axes.set(ylabel="mean error of the level", ylim=(0, 2))
        axes.legend(loc="lower right")
        figure.set_layout_engine("constrained")
        save_figure(fix_layout(figure), RESULTS / "vlm" / "errors.svg")


Answers = dict[tuple[str, str], tuple[str, float]]  # by category and episode: its task, and the error of the level


def of(trials: TrialTable, model: str) -> Answers:
    """Return the errors of a model on clean clips and at severity 4, where the true level is known."""
    some = trials.where(trials.matches("model", model) & np.isin(trials.number("severity"), (0, 4)))
    error = np.abs(some.number("level") - some.number("truth_level"))
    keys = zip(some.text("category"), some.text("episode"), some.text("task"), error, strict=True)
    return {(category, episode): (task, value) for category, episode, task, value in keys if not np.isnan(value)}


def error(one: Answers, less: Answers | None = None, *, category: str = "clean", unseen: bool | None = None) -> str:
    """Return the mean error, or the difference of two on the same clips, with its interval over tasks."""
    held_out = unseen_tasks(0)
    keys = [key for key, (task, _) in one.items() if key[0] == category and unseen in (None, task in held_out)]
    keys = sorted(key for key in keys if less is None or key in less)
    values = np.array([one[key][1] - (less[key][1] if less else 0) for key in keys])
    return interval(values, np.array([one[key][0] for key in keys]))


def print_row(name: str, cells: list[str]) -> None:
    print("| " + " | ".join([name, *cells]) + " |")


if __name__ == "__main__":
    main()
