"""What a fitted guard does to clips it was not fitted on: false success, abstention, risk-coverage curves.

    python results/guard/measure.py GUARD.json NAME=DATA ... --out FOLDER

Each dataset is scored clean and under perturbations that the guard was not fitted on, at severities 3 and 4. Rates are
means over clips; intervals are percentiles of 2,000 bootstrap draws over tasks.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from rewardlab.core.seeding import rng_for
from rewardlab.models import name_model
from rewardlab.models.guard.guard_file import read_guard
from rewardlab.runner.guard_fit import JudgedClips, clip_risks, judged_clips, probed_model
from rewardlab.runner.scoring_settings import ScoringSettings
from rewardlab.runner.stress import StressPlan, run_stress

PERTURBATIONS = ("defocus_blur", "fog", "typo_keyboard", "hold_last")
DRAWS = 2_000


def rate_and_interval(flags: np.ndarray, of: np.ndarray, tasks: np.ndarray) -> tuple[float, float, float]:
    """Return the share of `of` where `flags` hold, and its interval over tasks."""
    codes = np.unique(tasks.astype(str), return_inverse=True)[1]
    above, below = np.bincount(codes, flags & of), np.bincount(codes, of)
    picks = rng_for(0, "guard bootstrap").integers(0, len(above), (DRAWS, len(above)))
    with np.errstate(invalid="ignore"):
        draws = above[picks].sum(axis=1) / below[picks].sum(axis=1)
    low, high = np.nanpercentile(draws, [2.5, 97.5]) if below.sum() else (np.nan, np.nan)
    return float(above.sum() / below.sum()) if below.sum() else float("nan"), float(low), float(high)


def rows_of(name: str, clips: JudgedClips, risks: np.ndarray, threshold: float) -> list[dict[str, object]]:
    passed = clips.claimed & (risks <= threshold)
    found = []
    for condition, mask in (("clean", clips.clean), ("perturbed", ~clips.clean)):
        parts = {
            "false success": (clips.claimed, passed, ~clips.success & mask),
            "success found": (clips.claimed, passed, clips.success & mask),
            "withheld": (np.zeros_like(passed), clips.claimed & ~passed, mask),
        }
        for measure, (without, with_guard, of) in parts.items():
            for guard, flags in (("without", without), ("with", with_guard)):
                rate, low, high = rate_and_interval(flags, of, clips.tasks)
                row = {"data": name, "condition": condition, "measure": measure, "guard": guard}
                found.append(row | {"clips": int(of.sum()), "rate": rate, "low": low, "high": high})
    return found


def curve_of(name: str, clips: JudgedClips, risks: np.ndarray) -> list[dict[str, object]]:
    """Return false success among failures over the share of claims that pass."""
    found = []
    for share in np.linspace(0, 1, 21):
        threshold = np.quantile(risks[clips.claimed], share) if share else -np.inf
        passed = clips.claimed & (risks <= threshold)
        rate, low, high = rate_and_interval(passed, ~clips.success, clips.tasks)
        wrong = rate_and_interval(~clips.success, passed, clips.tasks)
        found.append({"data": name, "claims passed": float(share), "false success": rate, "low": low, "high": high,
                      "wrong of passed": wrong[0]})  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guard", type=Path)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/guard"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    file = read_guard(asked.guard)
    threshold = -np.inf if file.guard.threshold is None else file.guard.threshold
    probe, rows, curves = probed_model(name_model(file.model)), [], []
    for each in asked.data:
        name, _, data = each.partition("=")
        scoring = ScoringSettings(workers=1, quiet=True, out=asked.runs / f"guard-{name}")
        plan = StressPlan((probe.name,), data, PERTURBATIONS, (3, 4), controls=False, scoring=scoring)
        clips = judged_clips(run_stress(plan, [probe]).trials())
        risks = clip_risks(file.guard, clips)
        rows += rows_of(name, clips, risks, threshold)
        curves += curve_of(name, clips, risks)
    for path, table in (("rates.csv", rows), ("risk_coverage.csv", curves)):
        with (asked.out / path).open("w", newline="") as opened:
            writer = csv.DictWriter(opened, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    for row in rows:
        print(*(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()), sep="\t")


if __name__ == "__main__":
    main()
