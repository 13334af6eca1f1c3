"""Real runs, killed at random moments: the parent, one of its workers, or the whole group of processes."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from rewardlab.core.run import Run
from rewardlab.core.seeding import rng_for

VICTIMS = ("parent", "worker", "group")
_RUN = """
import sys
from pathlib import Path
from rewardlab.api import stress_plan
from rewardlab.evaluation.evaluate import evaluate

perturbations = ("fixed_pattern_noise", "polite_filler", "truncate_end", "resolution")
settings = {"models": ("length",), "data": "sample", "perturbations": perturbations, "limit": 6, "controls": False}
evaluate(stress_plan(settings | {"workers": 2, "batch_size": 2, "out": Path(sys.argv[1])}))
"""


@dataclass
class KillOutcomes:
    """What came of a campaign: kills by victim, and what went wrong, in words."""

    by_victim: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.by_victim.values())


def kill_campaign(folder: Path, kills: int, seed: int) -> KillOutcomes:
    """Kill runs at random moments until there were so many kills; every run must end as the undisturbed one did."""
    rng, outcomes = rng_for(seed, "kills"), KillOutcomes()
    started = time.monotonic()
    calm = _start(folder / "calm")
    calm.wait()
    seconds = time.monotonic() - started
    expected = _table(folder / "calm")
    number = 0
    while outcomes.kills < kills:
        number += 1
        out = folder / f"run{number}"
        _disturbed(out, rng, seconds, outcomes)
        finished = subprocess.run(_command(out), capture_output=True, text=True, check=False)
        if finished.returncode != 0 or "Traceback" in finished.stderr:
            outcomes.bad.append(f"run {number}: exit {finished.returncode}: {finished.stderr[-300:]}")
        elif not _table(out).equals(expected):
            outcomes.bad.append(f"run {number}: other trials than the undisturbed run")
    return outcomes


def _disturbed(out: Path, rng: np.random.Generator, seconds: float, outcomes: KillOutcomes) -> None:
    """Start the run and kill; where only a worker was killed the run must go on by itself to its end."""
    victim = VICTIMS[int(rng.integers(len(VICTIMS)))]
    process = _start(out)
    before: set[str] = set()
    try:
        process.wait(seconds * rng.random())
    except subprocess.TimeoutExpired:
        before = _finished(out)
        outcomes.by_victim[victim] += _kill(victim, process, rng)
        if victim == "worker":
            process.wait()
            if process.returncode != 0:
                outcomes.bad.append(f"{out.name}: a killed worker ended the run with exit {process.returncode}")
        process.wait()
    if not before <= _finished(out):
        outcomes.bad.append(f"{out.name}: finished cells were lost")


def _kill(victim: str, process: "subprocess.Popen[bytes]", rng: np.random.Generator) -> int:
    """Kill, and return how many kills that was: none where there was no such process any more."""
    if victim == "parent":
        process.kill()
        return 1
    workers = _children(process.pid)
    if victim == "group":
        for pid in (process.pid, *workers):
            _kill_process(pid)
        return 1
    return _kill_process(workers[int(rng.integers(len(workers)))]) if workers else 0


def _kill_process(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _children(pid: int) -> list[int]:
    """Return the processes that this one started."""
    if not Path("/proc/self/stat").exists():  # macOS
        found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in found.splitlines()]
        return [child for child, parent in pairs if parent == pid]
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            fields = path.read_text().rpartition(")")[2].split()
            children += [int(path.parent.name)] if int(fields[1]) == pid else []
    return children


def _start(out: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(_command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(out: Path) -> list[str]:
    return [sys.executable, "-c", _RUN, str(out)]


def _finished(out: Path) -> set[str]:
    """Return the cells that are on disk; a run killed at its very start has no folder yet."""
    if not (out / "run.json").exists():
        return set()
    return set(Run(out).trials().arrow["id"].to_pylist())


def _table(out: Path) -> pa.Table:
    return Run(out).trials().arrow.drop_columns(["seconds"])
