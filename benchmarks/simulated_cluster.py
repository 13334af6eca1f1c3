"""What a run on 64 GPUs costs its command: the real driver and a real Ray, workers that answer without computing.

    python benchmarks/simulated_cluster.py [--trials 200000] [--workers 64] [--hosts 4] [--latency 0.4] [--out X.json]

`--hosts` Ray processes hold `--workers` asynchronous workers. Each answers a batch of 8 trials after `--latency`
seconds, as a model on a GPU of its own would, so two cores can play a cluster. All that the command does is real: it
plans the trials, sends jobs, takes answers in and writes them. For every tenth of the run the table has trials per
second, the processor time of the command for a trial, its memory and the files of the run. The efficiency on a calm
machine is computed from this time by the simulation in capacity_plan.py. Then the command is killed in the middle of a
second run, and started again: seconds until the next answer, and processor time of the command until then.
"""

import argparse
import asyncio
import json
import os
import pickle
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import ray

from capacity_plan import Constants, Plan, simulate
from rewardlab.api import stress_plan
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Trial
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation import worker_pool
from rewardlab.evaluation.engines.ray_cluster import RayEngine, RayWorker
from rewardlab.evaluation.plan import (
    FORECAST_COLUMNS,
    Job,
    PlannedTrial,
    ScoringContext,
    bundle_jobs,
    conditions,
    finished_trials,
    plan_trials,
)
from rewardlab.evaluation.scoring import failed_trials
from scale import processor_seconds, resident_mb, write_dataset

BATCH = 8  # trials that a model answers at once
_POLL_SECONDS = 1.0


class Host:
    """A Ray process with many workers: each takes jobs and tells what a worker tells, but only waits in between."""

    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.context: ScoringContext | None = None
        self.news: dict[int, asyncio.Queue[bytes]] = {}
        self.running: set[asyncio.Task[None]] = set()

    async def begin(self, seat: int, payload: bytes, _threads: int) -> str:
        """Take the place of a worker."""
        self.context = self.context or cloudpickle.loads(payload).args[0]
        self.news[seat] = asyncio.Queue()
        self._say(seat, "ready", None)
        return str(ray.get_runtime_context().get_node_id())

    async def send(self, seat: int, message: bytes) -> None:
        """Start a job."""
        task = asyncio.get_running_loop().create_task(self._score(seat, pickle.loads(message)))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def receive(self, seat: int) -> tuple[list[bytes], None]:
        """Return what the worker has told, after waiting for it a little."""
        queue = self.news[seat]
        try:
            told = [await asyncio.wait_for(queue.get(), _POLL_SECONDS)]
        except TimeoutError:
            return [], None
        while not queue.empty():
            told.append(queue.get_nowait())
        return told, None

    async def stop(self, seat: int) -> None:
        """Give the place back."""
        del self.news[seat]

    def _say(self, seat: int, kind: str, content: object) -> None:
        if seat in self.news:
            self.news[seat].put_nowait(pickle.dumps((kind, content)))

    async def _score(self, seat: int, job: Job) -> None:
        assert self.context is not None
        shown: dict[tuple[str, str, int], list[PlannedTrial]] = {}
        for planned in job.episodes:
            self._say(seat, "prepare", [trial.id for trial in planned.trials])
            for trial in planned.trials:
                shown.setdefault((planned.episode.id, trial.perturbation, trial.severity), []).append(trial)
        for group in shown.values():
            self._say(seat, "prepare", [trial.id for trial in group])
        trials = job.trials
        for start in range(0, len(trials), BATCH):
            drafts = failed_trials(job, self.context, trials[start : start + BATCH], "the worker died")
            self._say(seat, "begin", drafts)
            await asyncio.sleep(self.latency * len(drafts) / BATCH)
            self._say(seat, "end", [replace(each, status="scored", level=3.0, reason=None) for each in drafts])
        self._say(seat, "idle", None)


class _Method:
    def __init__(self, method: Any, seat: int) -> None:
        self.method, self.seat = method, seat

    def remote(self, *given: object) -> Any:
        return self.method.remote(self.seat, *given)


class Seat:
    """One of the workers of a host, called like an actor of its own."""

    def __init__(self, host: Any, seat: int) -> None:
        self.begin, self.send = _Method(host.begin, seat), _Method(host.send, seat)
        self.receive, self.stop = _Method(host.receive, seat), _Method(host.stop, seat)


class SimulatedEngine(RayEngine):
    """The Ray engine, on whose cluster each host has many workers."""

    cores = 0  # type: ignore[assignment]

    def __init__(self, hosts: int, workers: int, latency: float) -> None:
        super().__init__(Execution(engine="ray"), local_only=True)
        actor = ray.remote(Host).options(num_cpus=0, max_concurrency=4 * workers)
        self.cores, self.hosts = workers, [actor.remote(latency) for _ in range(hosts)]
        self.seats: list[Seat] = []

    def start(self, payload: bytes, threads: int) -> RayWorker:
        """Give the next place."""
        if self._payload[0] is not payload:
            self._payload = payload, ray.put(payload)
        self.seats.append(Seat(self.hosts[len(self.seats) % len(self.hosts)], len(self.seats)))
        return RayWorker(self.seats[-1], [], self._payload[1], threads)

    def close(self) -> None:
        """Leave the cluster."""
        ray.shutdown()


class Tenths:
    """Notes time, processor time, memory and files of the command at the end of every tenth of a run."""

    def __init__(self, run: stress.Run, trials: int) -> None:
        self.run, self.trials, self.done, self.rows = run, trials, 0, list[dict[str, float]]()
        self.started, self.used = 0.0, 0.0

    def take(self, trials: Sequence[Trial]) -> None:
        """Count trials; the clocks start with the first of them."""
        if not self.started:
            self.started, self.used = time.perf_counter(), time.process_time()
            print("first trial", flush=True)
        if self.done < self.trials / 2 <= self.done + len(trials):
            print("half of the trials", flush=True)
        self.done += len(trials)
        if self.done >= (len(self.rows) + 1) * self.trials / 10:
            row = {
                "trials": self.done,
                "seconds": time.perf_counter() - self.started,
                "command_seconds": time.process_time() - self.used,
                "command_mb": resident_mb(os.getpid()),
                "files": len(self.run.parts()),
            }
            self.rows.append(row)


def score(chosen: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """Score the dataset of the folder with the simulated cluster and return what each tenth was like."""

    @contextmanager
    def engine(*_: object, **__: object) -> Iterator[SimulatedEngine]:
        made = SimulatedEngine(chosen.hosts, chosen.workers, chosen.latency)
        try:
            yield made
        finally:
            made.close()

    vars(worker_pool)["open_engine"] = engine
    contents, context, plan = opened(folder)
    run = stress.start_scoring(plan, context, contents)
    tenths = Tenths(run, run.record.trials)
    kept = finished_trials(run.trials(FORECAST_COLUMNS), plan, context) if run.parts() else None
    done = set() if kept is None else set(kept.arrow["id"].to_pylist())
    planned = plan_trials(context.dataset, context, plan.severities, done)
    jobs = bundle_jobs(planned, context.batch * len(context.models))
    stress.score_jobs(run, jobs, context, plan, (len(done), run.record.trials), tenths.take)
    return tenths.rows


def opened(folder: Path) -> tuple[Any, ScoringContext, Any]:
    settings = {"models": ("length",), "data": str(folder / "data"), "perturbations": ("semantic",)}
    plan = stress_plan(settings | {"engine": "ray", "workers": 0, "out": folder / "run", "quiet": True})
    contents, context = stress.open_plan(plan)
    return contents, context, plan


def trials_per_episode() -> int:
    """Return how many trials the plan has for an episode."""
    plan = stress_plan({"models": ("length",), "data": "sample", "perturbations": ("semantic",)})
    return len(conditions(stress.scoring_context(plan, ()), plan.severities)) * len(plan.every_model)


def restart(chosen: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Kill the command in the middle of a run; return what was kept, and what the next needs until it has an answer."""
    command = [sys.executable, __file__, "--score", str(folder)]
    command += [f"--{name}={vars(chosen)[name]}" for name in ("workers", "hosts", "latency")]
    half = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert half.stdout is not None
    for line in half.stdout:
        if line.startswith("half"):
            break
    os.killpg(half.pid, signal.SIGKILL)
    half.wait()
    kept = len(stress.open_run(folder / "run").trials(("id", "status")))
    before = time.perf_counter()
    again = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert again.stdout is not None
    again.stdout.readline()
    found = {"kept": kept, "seconds": time.perf_counter() - before, "command_seconds": processor_seconds(again.pid)}
    os.killpg(again.pid, signal.SIGKILL)
    again.wait()
    return found


def computed_efficiency(chosen: argparse.Namespace, command_seconds: float) -> float:
    """Return the rate over that of a command which takes no time, as the simulation of the capacity plan plays it."""
    plan = Plan(1, 1, chosen.latency / BATCH, chosen.workers, conditions=BATCH)
    cost = Constants(**(dict.fromkeys(Constants.__dataclass_fields__, 0.0) | {"command_cell": command_seconds}))
    return simulate(plan, cost, episodes=200 * chosen.workers) * chosen.latency / chosen.workers


def tell(chosen: argparse.Namespace, rows: list[dict[str, float]]) -> dict[str, float]:
    """Print the table, and return what follows for so many workers."""
    print(f"{'trials':>9} {'trials/s':>9} {'ms of the command':>18} {'memory':>8} {'files':>6}")
    before = {"trials": 0.0, "seconds": 0.0, "command_seconds": 0.0}
    for row in rows:
        trials = row["trials"] - before["trials"]
        rate = trials / (row["seconds"] - before["seconds"])
        own = 1e3 * (row["command_seconds"] - before["command_seconds"]) / trials
        print(f"{row['trials']:>9,.0f} {rate:>9,.0f} {own:>18.3f} {row['command_mb']:>5.0f} MB {row['files']:>6.0f}")
        before = row
    last, ideal = rows[-1], chosen.workers * BATCH / chosen.latency
    own = last["command_seconds"] / last["trials"]
    found = {"ideal_rate": ideal, "rate": last["trials"] / last["seconds"], "command_seconds_per_trial": own}
    found |= {
        "efficiency": found["rate"] / ideal,
        "computed_efficiency": computed_efficiency(chosen, own),
        "command_busy": own * ideal,
        "most_workers": chosen.latency / BATCH / own,
    }
    print(
        f"{chosen.workers} workers: {found['rate']:,.0f} of {ideal:,.0f} trials/s ({found['efficiency']:.0%}); "
        f"with a core of its own the command, busy {found['command_busy']:.0%} of it, allows "
        f"{found['computed_efficiency']:.0%}, and it keeps up with {found['most_workers']:,.0f} workers"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--latency", type=float, default=0.4, help="seconds for a batch of 8")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--score", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.score:
        score(chosen, chosen.score)
        return
    folder = Path(tempfile.mkdtemp())
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # files are remembered from the first run to the restart alone
    try:
        write_dataset(folder / "data", -(-chosen.trials // trials_per_episode()))
        rows = score(chosen, folder)
        shutil.rmtree(folder / "run")
        again = restart(chosen, folder)
    finally:
        shutil.rmtree(folder)
    found = tell(chosen, rows)
    waited = f"{again['seconds']:.1f} s, {again['command_seconds']:.1f} s of it the command's processor time"
    print(f"killed with {again['kept']:,} trials kept, started again: next trial after {waited}")
    if chosen.out:
        machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        settings = {name: vars(chosen)[name] for name in ("trials", "workers", "hosts", "latency")}
        content = settings | found | {"restart": again, "tenths": rows} | machine
        chosen.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
