"""What Ray costs beside the process pool: two workers, a model that takes 50 ms for a cell.

    python benchmarks/ray_overhead.py [--cells 600] [--rounds 3] [--address auto] [--out FILE.json]

Both engines score the same cells in turns. `scoring` is the time from the first trial to the last; `whole` has the
start of the workers in it, and that of a Ray cluster on this machine, unless `--address` names one that runs. The last
line is `overhead: X %`, of scoring, by the medians; the one before says the same of the whole.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rewardlab.core.old_settings import build_plan
from rewardlab.core.trial import Score, Trial
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.plan import bundle_jobs, plan_trials
from rewardlab.models import name_model
from scale import write_dataset

SECONDS_PER_CELL = 0.05
PER_EPISODE = 25  # conditions: clean, and six changes at four severities
CHANGES = ("typo_keyboard", "polite_filler", "gaussian_noise", "brightness_up", "hold_last", "drop_uniform")


class Patient:
    """A model that takes its time and no processor."""

    def score(self, episodes: Sequence[object]) -> list[Score]:
        time.sleep(SECONDS_PER_CELL * len(episodes))
        return [Score(3.0)] * len(episodes)


class Stopwatch:
    def __init__(self) -> None:
        self.first, self.last, self.counted = 0.0, 0.0, 0

    def take(self, trials: Sequence[Trial]) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.counted += len(trials)


def measure(engine: str, data: Path, out: Path, address: str | None = None) -> dict[str, float]:
    """Score the dataset on an engine and return the seconds it took."""
    model = name_model(Patient())
    settings = {"models": (model.spec,), "data": str(data), "perturbations": CHANGES, "controls": False}
    settings |= {"engine": engine, "workers": 2, "out": out, "quiet": True, "max_failures": 0}
    settings |= {"address": address} if engine == "ray" else {}
    plan = build_plan(stress.StressPlan, settings)
    contents, context = stress.open_plan(plan, [model])
    run = stress.start_scoring(plan, context, contents, stress.RunOrigin("stress", "benchmarks/ray_overhead.py"))
    jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities), context.batch)
    watch, started = Stopwatch(), time.perf_counter()
    stress.score_jobs(run, jobs, context, plan.scoring, (0, run.record.cells), watch.take)
    assert watch.counted == run.record.cells
    return {"scoring": watch.last - watch.first, "whole": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", help="the Ray cluster to join; without it one is started for every run")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    folder, found = Path(tempfile.mkdtemp()), dict[str, list[dict[str, float]]]()
    try:
        write_dataset(folder / "data", -(-chosen.cells // PER_EPISODE))
        for turn in range(chosen.rounds):
            for engine in ("processes", "ray"):
                taken = measure(engine, folder / "data", folder / f"{engine}-{turn}", chosen.address)
                found.setdefault(engine, []).append(taken)
                print(f"{engine:>9}: scoring {taken['scoring']:.2f} s, whole {taken['whole']:.2f} s", flush=True)
    finally:
        shutil.rmtree(folder)
    overhead = {
        part: _median(found["ray"], part) / _median(found["processes"], part) - 1 for part in ("whole", "scoring")
    }
    print(f"overhead with the start: {overhead['whole']:.1%}\noverhead: {overhead['scoring']:.1%}")
    if chosen.out:
        about = {"cells": chosen.cells, "cluster": "running" if chosen.address else "started for each run"}
        about |= {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps({"seconds": found, "overhead": overhead} | about, indent=2) + "\n")


def _median(rounds: list[dict[str, float]], part: str) -> float:
    return median(taken[part] for taken in rounds)


if __name__ == "__main__":
    main()
