"""How long a plan takes on how many machines, and what gives way first: a cost model, and a simulation that checks it.

    python benchmarks/capacity_plan.py [--measure] [--models 100] [--seconds-per-cell 0.05] [--workers 1000]
    python benchmarks/capacity_plan.py --gpus 1,8,64 [--price 3]     # one model of 4B over known datasets, and its cost

Every stage has a constant that is measured here (`--measure` writes benchmarks/results/constants.json anew).
Workers decode, perturb and score; one command plans, takes trials in and writes them. The model says how long each of
them is busy; the longest decides. The simulation plays jobs through workers and command, event by event.
"""

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cloudpickle
import numpy as np

from rewardlab.api import stress_plan
from rewardlab.core.episode import hold_frames
from rewardlab.core.summary import CONTROL_ORDER
from rewardlab.data import open_dataset
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.plan import bundle_jobs, plan_trials
from rewardlab.evaluation.scoring import perturb_trials
from scale import write_dataset

CONSTANTS = Path(__file__).parent / "results" / "constants.json"
SIMULATED = Path(__file__).parent / "results" / "simulated_cluster.json"
CONDITIONS = 33  # of `quick` at four severities, and clean
SIZES = (1_000, 10_000, 100_000, 1_000_000)  # episodes
KNOWN = {"RoboRewardBench": 2_831, "DROID": 100_000, "OXE": 1_000_000}  # episodes, the last two rounded
# Seconds for a trial of Qwen3-VL-4B on an H200, 480 x 640 pixels: benchmarks/results/feature_reuse.txt. `quick` has at
# each severity four changes with new frames, two of the instruction and two of the order.
CLEAN_SECONDS = 0.1163
QUICK_SECONDS = (0.1662 + 16 * 0.0710 + 8 * 0.0085 + 8 * 0.0538) / CONDITIONS


OPENING = """
import sys, time
from rewardlab.data import open_dataset
from rewardlab.data.video import read_digests
open_dataset("sample")
started = time.process_time()
episodes = open_dataset(sys.argv[1]).episodes
read_digests(episodes)
hashes = [episode.hash for episode in episodes]
print((time.process_time() - started) / len(episodes))
"""


@dataclass(frozen=True)
class Constants:
    """Seconds and bytes, as measured on one core."""

    open_episode: float  # the command reads the row, opens the video and digests it, seconds
    known_episode: float  # the same where an earlier command has read the file
    episode_bytes: float  # of an episode in the memory of the command
    decode_episode: float  # a worker decodes the frames that will be shown, seconds
    perturb_cell: float  # a worker makes one changed clip, seconds
    command_cell: float  # the command plans a cell, takes its trial in and writes it, seconds
    stored_cell: float  # bytes of a trial in Parquet
    joined_cell: float  # bytes of a trial in memory while a run is joined and summed up
    sent_episode: float  # bytes of an episode, frames aside, that every worker is sent when it starts
    worker_episode_bytes: float  # of an episode in the memory of every worker


@dataclass(frozen=True)
class Plan:
    """What is to be scored, with which model speed, on how many workers under how many commands."""

    episodes: int
    models: int
    seconds_per_cell: float  # a model's time for one cell on one worker
    workers: int
    commands: int = 1  # runs over parts of the data, joined afterwards
    conditions: int = CONDITIONS
    command_gb: float = 64.0  # memory of the machine of a command

    @property
    def cells(self) -> int:
        """Return how many cells there are in all."""
        return self.episodes * self.models * self.conditions


def worker_seconds(plan: Plan, cost: Constants) -> float:
    """Return what one episode takes a worker: decoded once, perturbed once per condition, scored by every model."""
    asked = plan.models * plan.conditions * plan.seconds_per_cell
    return cost.decode_episode + plan.conditions * cost.perturb_cell + asked


def stages(plan: Plan, cost: Constants) -> dict[str, float]:
    """Return how many seconds each stage is busy, were it alone."""
    each = plan.models * plan.conditions
    asked = each * plan.seconds_per_cell
    share = plan.episodes / plan.workers
    return {
        "decoding": share * cost.decode_episode,
        "perturbing": share * plan.conditions * cost.perturb_cell,
        "scoring": share * asked,
        "the command": plan.episodes * each * cost.command_cell / plan.commands,
        "opening the data": plan.episodes * cost.open_episode / plan.commands,
    }


def hours(plan: Plan, cost: Constants) -> float:
    """Return the time of a plan: the data are opened first; then workers and command work side by side."""
    busy = stages(plan, cost)
    workers = busy["decoding"] + busy["perturbing"] + busy["scoring"]
    return (busy["opening the data"] + max(workers, busy["the command"])) / 3600


def memory_gb(plan: Plan, cost: Constants) -> float:
    """Return the memory of one command: its episodes, and its trials when they are joined at the end."""
    return (plan.episodes * cost.episode_bytes + plan.cells * cost.joined_cell) / plan.commands / 1e9


def bottleneck(plan: Plan, cost: Constants) -> str:
    """Return what gives way first: the memory of the command, or the stage that is busy longest."""
    if memory_gb(plan, cost) > plan.command_gb:
        return "memory of the command"
    busy = stages(plan, cost)
    return max(busy, key=lambda name: busy[name])


def commands_needed(plan: Plan, cost: Constants) -> int:
    """Return into how many runs the data must be split so that no command holds workers up or runs out of memory."""
    busy = stages(plan, cost)
    slow = busy["the command"] * plan.commands / (busy["decoding"] + busy["perturbing"] + busy["scoring"])
    full = memory_gb(plan, cost) * plan.commands / plan.command_gb
    return max(1, int(np.ceil(slow)), int(np.ceil(full)))


def simulate(plan: Plan, cost: Constants, *, episodes: int, spread: float = 0.5, seed: int = 0) -> float:
    """Return episodes per second of one command and its workers, played event by event over so many episodes.

    A worker that has finished an episode waits until the command has taken its trials in. Times of workers are drawn
    from a gamma distribution with this spread (standard deviation over mean): videos are not equally long.
    """
    rng = np.random.default_rng(seed)
    mean, taking = worker_seconds(plan, cost), plan.models * plan.conditions * cost.command_cell
    shape = 1 / spread**2
    work = rng.gamma(shape, mean / shape, episodes + plan.workers)
    finished = list(work[: plan.workers])  # when each worker comes back with an episode
    heapq.heapify(finished)
    free = 0.0  # when the command can take the next one in
    for number in range(episodes):
        free = max(free, heapq.heappop(finished)) + taking
        heapq.heappush(finished, free + work[plan.workers + number])
    return episodes / free


def model_rate(plan: Plan, cost: Constants) -> float:
    """Return the episodes per second that the cost model says of one command and its workers."""
    taking = plan.models * plan.conditions * cost.command_cell
    return min(plan.workers / (worker_seconds(plan, cost) + taking), 1 / taking)


def measure() -> Constants:
    """Measure every constant on this machine, in processor time of one core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dataset(folder / "data", 2_000)
        joined = 1_200  # results/speed
        return Constants(*opening(folder), *preparing(), *commanding(folder), joined, *sending(folder))


def opening(folder: Path) -> tuple[float, float, float]:
    """Return the seconds that an episode costs the command for the first time and again, and its bytes."""
    time.sleep(3)  # files that have just changed are not remembered
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    command = [sys.executable, "-c", OPENING, str(folder / "data")]
    first, again = (float(subprocess.check_output(command)) for _ in range(2))
    tracemalloc.start()
    held = open_dataset(str(folder / "data")).episodes
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return first, again, size / len(held)


def sending(folder: Path) -> tuple[float, float]:
    """Return how large an episode is on its way to a worker, and in the memory of that worker."""
    plan = stress_plan({"models": ("length",), "data": str(folder / "data"), "perturbations": ("semantic",)})
    _, context = stress.open_plan(plan)
    sent = cloudpickle.dumps(context)
    tracemalloc.start()
    held = cloudpickle.loads(sent)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(sent) / len(held.dataset), size / len(held.dataset)


def preparing() -> tuple[float, float]:
    """Return the seconds that decoding a shipped clip and perturbing it once take, after a first pass that compiles."""
    plan = stress_plan({"models": ("length",), "data": "sample", "controls": False, "limit": 12})
    contents, context = stress.open_plan(plan)
    planned = list(plan_trials(contents.episodes, context, plan.severities))
    cells = sum(len(list(perturb_trials(each, context))) for each in planned)
    started = time.process_time()
    for each in planned:
        hold_frames(each.episode.clip, np.unique(each.episode.clip.order))
    decoded = time.process_time()
    for each in planned:
        list(perturb_trials(each, context))
    both = time.process_time() - decoded
    return (decoded - started) / len(planned), max(0.0, both - (decoded - started)) / cells


def commanding(folder: Path) -> tuple[float, float]:
    """Return the seconds and the stored bytes that a cell costs the command."""
    settings = {"models": ("length",), "data": str(folder / "data"), "perturbations": ("semantic",), "quiet": True}
    plan = stress_plan(settings | {"limit": 20, "workers": 2, "out": folder / "run"})
    contents, context = stress.open_plan(plan)
    run = stress.start_scoring(plan, context, contents)
    jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities), context.batch * len(context.models))
    started = time.process_time()
    stress.score_jobs(run, jobs, context, plan, (0, run.record.trials), lambda _trials: None)
    seconds = time.process_time() - started
    run.compact()
    return seconds / run.record.trials, sum(path.stat().st_size for path in run.parts()) / run.record.trials


def tell(chosen: argparse.Namespace, cost: Constants) -> None:
    """Print the plan at every size, as it is and with as many commands as it takes."""
    head = f"{'episodes':>9} {'cells':>14} {'hours':>8} {'first bottleneck':>22}"
    print(f"{head} {'commands':>9} {'hours':>8} {'stored':>9}")
    for episodes in SIZES:
        plan = Plan(episodes, chosen.models, chosen.seconds_per_cell, chosen.workers)
        split = Plan(episodes, chosen.models, chosen.seconds_per_cell, chosen.workers, commands_needed(plan, cost))
        row = f"{episodes:>9,} {plan.cells:>14,} {hours(plan, cost):>8,.1f} {bottleneck(plan, cost):>22}"
        stored = plan.cells * cost.stored_cell / 1e9
        print(f"{row} {split.commands:>9,} {hours(split, cost):>8,.1f} {stored:>6,.1f} GB")
    plan = Plan(1_000, chosen.models, chosen.seconds_per_cell, chosen.workers)
    for workers in (1, 10, 100, 1_000, 10_000):
        one = Plan(1_000, plan.models, plan.seconds_per_cell, workers)
        played = simulate(one, cost, episodes=20 * workers)
        print(f"{workers:>6,} workers: {played:>9.3f} episodes/s played, {model_rate(one, cost):>9.3f} by the model")


def tell_known(gpus: list[int], price: float, cost: Constants) -> None:
    """Print how long one model of 4B takes for known datasets with a worker on each GPU, and what that costs."""
    head = f"{'dataset':<15} {'run':<5} {'trials':>10} {'GPUs':>4} {'hours':>7} {'cost':>6} {'opening':>7}"
    print(f"{head} {'command':>8} {'memory':>7} {'worker':>7} {'commands':>8} {'hours':>7}")
    for name, episodes in KNOWN.items():
        for run, conditions, seconds in (("clean", 1, CLEAN_SECONDS), ("quick", CONDITIONS, QUICK_SECONDS)):
            for workers in gpus:
                plan = Plan(episodes, 1, seconds, workers, conditions=conditions)
                busy, taken, held = stages(plan, cost), hours(plan, cost), episodes * cost.worker_episode_bytes / 1e9
                split = replace(plan, commands=max(commands_needed(plan, cost), -(-workers // 8)))
                row = (
                    f"{name:<15} {run:<5} {plan.cells:>10,} {workers:>4} {taken:>7.2f} {taken * workers * price:>6,.0f}"
                )
                row += f" {busy['opening the data'] / 3600 / taken:>7.0%} {busy['the command'] / 3600 / taken:>8.0%}"
                row += f" {memory_gb(plan, cost):>4.1f} GB {held:>4.1f} GB"
                print(f"{row} {split.commands:>8} {hours(split, cost):>7.2f}")
    for name, episodes in KNOWN.items():
        first, again = episodes * cost.open_episode / 60, episodes * cost.known_episode / 60
        print(f"{name}: opened in {first:.1f} minutes on one core, again in {again:.1f}")
    for models, what in ((1, "without controls"), (1 + len(CONTROL_ORDER), "with all controls")):
        plan = Plan(1, models, QUICK_SECONDS / models, 1)
        most = worker_seconds(plan, cost) / (CONDITIONS * models * cost.command_cell)
        print(f"quick {what}: one command keeps up with {most:,.0f} GPUs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seconds-per-cell", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--gpus", help="numbers of GPUs: tell time and cost of one model over known datasets")
    parser.add_argument("--price", type=float, default=3.0, help="of an hour of a GPU and its cores")
    chosen = parser.parse_args()
    if chosen.measure:
        CONSTANTS.parent.mkdir(parents=True, exist_ok=True)
        CONSTANTS.write_text(json.dumps(asdict(measure()), indent=2) + "\n")
    cost = Constants(**json.loads(CONSTANTS.read_text()))
    if chosen.gpus:  # workers on other machines cost the command more than those of its own
        taking = json.loads(SIMULATED.read_text())["command_seconds_per_trial"]
        gpus = [int(number) for number in chosen.gpus.split(",")]
        tell_known(gpus, chosen.price, replace(cost, command_cell=taking))
    else:
        tell(chosen, cost)


if __name__ == "__main__":
    main()
