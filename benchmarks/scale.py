"""Does a long run stay as it began? 200,000 cells, and how soon a plan of millions asks its first question.

    python benchmarks/scale.py [--cells 200000] [--engine processes] [--workers 2] [--out benchmarks/results/x.json]

Tiny clips, changes of the instruction only, and controls for models: all that is left is the runner. For every tenth of
the run it tells cells per second, also of processor time and as if the machine had been as fast as in the first tenth
(a fixed loop tells how fast it is), the memory of the command and of its workers, and how many Parquet files there are.
Then 3,000 episodes x the whole catalogue x 2 models: seconds until the first trial, and the peak memory until then.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rewardlab.api import stress_plan
from rewardlab.core.trial import Trial
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.plan import bundle_jobs, conditions, plan_trials

EPISODES = 3_000  # of the plan of millions
FRAMES, PIXELS = 8, 32
LOOP = 20_000  # rounds of the loop that tells how fast the machine is


def write_dataset(folder: Path, episodes: int) -> None:
    """Write so many tiny clips, each another file with words of its own."""
    folder.mkdir(parents=True)
    frames = np.random.default_rng(0).integers(0, 255, (FRAMES, PIXELS, PIXELS, 3), dtype=np.uint8)
    encode(frames, folder / "clip.mp4", fps=5)
    video, lines = (folder / "clip.mp4").read_bytes(), []
    (folder / "clip.mp4").unlink()
    (folder / "arm").mkdir()
    for number in range(episodes):  # an empty box of the container makes each copy another file
        (folder / "arm" / f"{number}.mp4").write_bytes(video + b"\0\0\0\x0cfree" + number.to_bytes(4))
        task = f"put the red cup number {number} on the plate"
        lines.append(json.dumps({"file_name": f"arm/{number}.mp4", "task": task, "reward": 1 + number % 5}))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")


def resident_mb(process: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1e3
    return 0.0


def children(process: int) -> list[int]:
    """Return the processes that it started, and theirs."""
    found = [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()]
    return found + [below for child in found for below in children(child)]


def processor_seconds(process: int) -> float:
    """Return the processor time of a process, which other programs on the machine change little."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loop_ms() -> float:
    """Return the processor time of a fixed loop: how fast the machine is just now, whatever else runs on it."""
    before, total = time.thread_time(), 0
    for number in range(LOOP):
        total += hash(str(number))
    return 1e3 * (time.thread_time() - before)


class Tenths:
    """Notes time, memory and files at the end of every tenth of a run, and every second how fast the machine is."""

    def __init__(self, run: stress.Run, cells: int) -> None:
        self.run, self.cells, self.done, self.rows = run, cells, 0, list[dict[str, float]]()
        self.started, self.looped, self.loops = 0.0, 0.0, list[float]()

    def take(self, trials: Sequence[Trial]) -> None:
        """Count trials; the clock starts with the first of them."""
        self.started = self.started or time.perf_counter()
        self.done += len(trials)
        if time.perf_counter() - self.looped > 1:
            self.looped = time.perf_counter()
            self.loops.append(loop_ms())
        if self.done >= (len(self.rows) + 1) * self.cells / 10:
            workers = children(os.getpid())
            self.rows.append(
                {
                    "cells": self.done,
                    "seconds": time.perf_counter() - self.started,
                    "command_mb": resident_mb(os.getpid()),
                    "workers_mb": sum(map(resident_mb, workers)),
                    "processor_seconds": sum(map(processor_seconds, (os.getpid(), *workers))),
                    "files": len(self.run.parts()),
                    "loop_ms": float(np.mean(self.loops)),
                }
            )
            self.loops.clear()
            self.looped = 0.0


def score(cells: int, engine: str, workers: int, folder: Path) -> list[dict[str, float]]:
    """Score so many cells and return what each tenth was like."""
    settings = {
        "models": ("length",),
        "data": str(folder / "data"),
        "perturbations": ("semantic",),
        "engine": engine,
        "workers": workers,
        "out": folder / "run",
    }
    plan = stress_plan(settings)
    each = len(conditions(stress.scoring_context(plan, ()), plan.severities)) * len(plan.every_model)
    write_dataset(folder / "data", -(-cells // each))
    contents, context = stress.open_plan(plan)
    run = stress.start_scoring(plan, context, contents)
    tenths = Tenths(run, run.record.trials)
    jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities), context.batch * len(context.models))
    stress.score_jobs(run, jobs, context, plan, (0, run.record.trials), tenths.take)
    return tenths.rows


FIRST_TRIAL = """
import resource, sys, time
started = time.perf_counter()
from rewardlab.api import stress_plan
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.plan import bundle_jobs, plan_trials
plan = stress_plan({"models": ("length", "constant"), "data": sys.argv[1], "perturbations": ("all",),
    "controls": False, "out": stress.Path(sys.argv[2]), "workers": 2, "quiet": True})
contents, context = stress.open_plan(plan)
run = stress.start_scoring(plan, context, contents)
jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities), context.batch * len(context.models))
def first(trials):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    print(run.record.trials, time.perf_counter() - started, time.process_time(), peak, flush=True)
    raise KeyboardInterrupt
try:
    stress.score_jobs(run, jobs, context, plan, (0, run.record.trials), first)
except stress.Interrupted:
    pass
"""


def first_trial(folder: Path) -> dict[str, float]:
    """Return how long a plan of millions takes to its first trial, the imports included, and in how much memory."""
    write_dataset(folder / "large", EPISODES)
    command = [sys.executable, "-c", FIRST_TRIAL, str(folder / "large"), str(folder / "large-run")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(("cells", "seconds", "processor_seconds", "peak_mb"), map(float, told), strict=True))


def tell(rows: list[dict[str, float]], planned: dict[str, float]) -> None:
    """Print both as tables."""
    heads = f"{'cells':>9} {'cells/s':>8} {'of one core':>12} {'at one pace':>12}"
    print(f"{heads} {'command':>9} {'workers':>9} {'files':>6}")
    before = {"cells": 0.0, "seconds": 0.0, "processor_seconds": 0.0}
    for row in rows:
        cells = row["cells"] - before["cells"]
        rate, own = (cells / (row[clock] - before[clock]) for clock in ("seconds", "processor_seconds"))
        paced = own * row["loop_ms"] / rows[0]["loop_ms"]
        memory = f"{row['command_mb']:>6.0f} MB {row['workers_mb']:>6.0f} MB"
        print(f"{row['cells']:>9,} {rate:>8,.0f} {own:>12,.0f} {paced:>12,.0f} {memory} {row['files']:>6}")
        row["cells_per_second"], row["cells_per_processor_second"], before = rate, own, row
        row["cells_per_processor_second_at_one_pace"] = paced
    waited = f"{planned['seconds']:.1f} s ({planned['processor_seconds']:.1f} s of one core)"
    first = f"first trial after {waited}, {planned['peak_mb']:.0f} MB"
    print(f"plan of {planned['cells']:,.0f} cells: {first}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--engine", default="processes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        planned = first_trial(folder)
        rows = score(chosen.cells, chosen.engine, chosen.workers, folder)
    finally:
        shutil.rmtree(folder)
    tell(rows, planned)
    if chosen.out:
        machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        content = {"engine": chosen.engine, "workers": chosen.workers, "tenths": rows, "planning": planned} | machine
        chosen.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
