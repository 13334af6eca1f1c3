"""Collecting: rollouts of every quality with their exact truth, streamed to a dataset folder; it can be resumed."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any

import numpy as np

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError, RewardlabError, RunError
from rewardlab.core.run import Run, locked, writable, writing
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.settings import setting
from rewardlab.h264 import encode
from rewardlab.worlds.metaworld.instructions import PHRASINGS, counterfactuals, draw_instruction
from rewardlab.worlds.metaworld.physics import MAX_STEPS, STEPS_PER_SECOND, TASKS, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy
from rewardlab.worlds.metaworld.render import camera_view
from rewardlab.worlds.metaworld.replay import RolloutRecord, record_json, video_steps
from rewardlab.worlds.metaworld.scene_edits import render_rollout
from rewardlab.worlds.metaworld.task_splits import SPLITS, split_of_task

RECORD = "collect.json"
METADATA = "metadata.jsonl"
SUBSET = "metaworld"
_CRF = 21
_ATTEMPTS = 12  # rollouts tried for a wanted level; rollouts are cheap beside pictures
# Where a wanted level is mostly found.
_LIKELY = {
    1: ("random", "other_task", "other_goal", "stops_early", "noise_high"),
    2: ("stops_early", "drops", "other_goal", "noise_high", "overshoots"),
    3: ("stops_early", "drops", "other_goal", "overshoots", "noise_mid"),
    4: ("stops_early", "drops", "overshoots", "retries", "noise_mid"),
    5: ("expert", "hesitates", "retries", "noise_low", "expert"),
}
# The progress at which a rollout that stops or lets go does so, for each wanted level.
_STOPS = {1: (0.01, 0.08), 2: (0.12, 0.35), 3: (0.42, 0.65), 4: (0.72, 0.95), 5: (0.98, 1.0)}


@dataclass(frozen=True)
class CollectPlan:
    """Record rollouts in a simulator with true progress, at any quality, in any world."""

    simulator: str = setting("the simulator: metaworld", positional=True)
    tasks: tuple[str, ...] = setting("tasks such as drawer-open, or all", ("all",))
    episodes: int = setting("episodes per task", 10)
    quality: tuple[str, ...] = setting("ways of doing the task such as expert or drops, or all", ("all",))
    world: tuple[str, ...] = setting(
        "plain, or changed worlds such as world_camera:3; each episode gets one", ("plain",)
    )
    camera: tuple[str, ...] = setting("cameras; each episode gets one of them", ("right",))
    balance: bool = setting("look for rollouts until every level is there equally often", False)
    counterfactuals: int = setting("rows with another instruction for the same video, at most so many each", 0)
    phrasings: str = setting("train or held_out phrasings of the instructions", "train")
    marker: bool = setting("show the goal as a marker; it gives the goal away", False)
    size: int = setting("side of the picture in pixels", 128)
    fps: float = setting("frames per second that are kept of the simulator's 80", 10.0)
    frames: tuple[int, ...] = setting("least and most frames of a video; the length is drawn without looking", (24, 48))
    seed: int = setting("seed of everything drawn by chance", 0)
    workers: int = setting("processes; 0 takes one per core", 0)
    out: Path = setting("dataset folder to write to", Path("collected"))

    def __post_init__(self) -> None:
        if self.simulator != "metaworld":
            raise PlanError(f"the simulator must be metaworld, got {self.simulator!r}")
        for names, catalog, what in ((self.tasks, TASKS, "task"), (self.quality, POLICIES, "quality")):
            for name in names:
                find({**dict.fromkeys(catalog), "all": None}, name, what)
        for camera in self.camera:
            camera_view(camera, self.size, self.marker)
        for text in self.world:
            _read_world(text)
        if self.phrasings not in PHRASINGS:
            raise PlanError(f"phrasings must be one of {', '.join(PHRASINGS)}, got {self.phrasings!r}")
        if len(self.frames) != 2 or not 2 <= self.frames[0] <= self.frames[1]:
            raise PlanError(f"frames must be least,most with at least 2, got {self.frames}")
        if self.episodes < 1 or self.workers < 0 or self.fps <= 0 or not 16 <= self.size <= 512:
            raise PlanError("episodes must be at least 1, workers not negative, fps above 0 and size from 16 to 512")
        if (self.frames[1] - 1) * self.stride > MAX_STEPS:
            raise PlanError(
                f"{self.frames[1]} frames at {self.fps:g} fps are more than the {MAX_STEPS} steps there are"
            )

    @property
    def stride(self) -> int:
        """Return how many steps lie between two frames."""
        return max(1, round(STEPS_PER_SECOND / self.fps))


@dataclass(frozen=True)
class Job:
    """One episode to make."""

    task: str
    index: int

    @property
    def stem(self) -> str:
        """Return the path of its files below the dataset folder, without the ending."""
        return f"{SUBSET}/{self.task}-{self.index:04d}"


@dataclass(frozen=True)
class Made:
    """The rows of one finished episode and the seconds that its parts took."""

    rows: tuple[dict[str, Any], ...]
    seconds: dict[str, float]


def collect(plan: CollectPlan) -> Counter[int]:
    """Make every episode of the plan that is not there yet; return how many rows there are at each level."""
    with writable(plan.out):
        (plan.out / SUBSET).mkdir(parents=True, exist_ok=True)
    with locked(Run(plan.out)):
        _claim(plan)
        jobs = jobs_of(plan)
        done = 0 if not (plan.out / METADATA).exists() else _repair(plan, jobs)
        started, spent = time.monotonic(), Counter[str]()
        with writable(plan.out), (plan.out / METADATA).open("a", encoding="utf-8") as handle:
            for number, made in enumerate(_made(plan, jobs[done:]), start=done + 1):
                handle.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.rows))
                handle.flush()
                spent.update(made.seconds)
                _tell(number, len(jobs), (number - done) / (time.monotonic() - started))
        _tell_shares(spent)
        return _write_splits(plan)


def jobs_of(plan: CollectPlan) -> list[Job]:
    """Return the episodes of a plan in their order in the dataset."""
    tasks = TASKS if "all" in plan.tasks else plan.tasks
    return [Job(task, index) for task in dict.fromkeys(tasks) for index in range(plan.episodes)]


def make(plan: CollectPlan, job: Job) -> Made:
    """Roll out, film and write one episode; what comes out depends on the plan's seed and the job alone."""
    clock = [time.perf_counter()]
    rng = rng_for(plan.seed, "collect", job.task, job.index)
    steps = int(rng.integers(plan.frames[0] - 1, plan.frames[1])) * plan.stride
    view = camera_view(str(rng.choice(np.array(plan.camera))), plan.size, plan.marker)
    world = str(rng.choice(np.array(plan.world)))
    trajectory, quality = _rollout(plan, job, steps)
    clock.append(time.perf_counter())
    facts = RolloutRecord(
        job.task, trajectory.seed, steps, plan.stride, float(trajectory.progress[-1]), view, _changes(world, rng)
    )
    frames = render_rollout(trajectory, video_steps(steps, plan.stride).tolist(), view, facts.changes)
    clock.append(time.perf_counter())
    video, fps = plan.out / f"{job.stem}.mp4", STEPS_PER_SECOND / plan.stride
    with writing(video) as partial:
        encode(frames, partial, fps, crf=_CRF)
    with writing(plan.out / f"{job.stem}.npy") as partial, partial.open("wb") as handle:
        np.save(handle, trajectory.actions)
    clock.append(time.perf_counter())
    extra = {"file": f"{job.stem}.npy", "video": sha256(video.read_bytes()).hexdigest()[:16]}
    row = {"file_name": f"{job.stem}.mp4", "fps": fps, "quality": quality, "world_change": world}
    row |= {"world": record_json(trajectory, facts) | extra}
    return Made(_rows(plan, trajectory, row, rng), dict(zip(("simulate", "render", "encode"), np.diff(clock).tolist())))


def _rollout(plan: CollectPlan, job: Job, steps: int) -> tuple[Trajectory, str]:
    """Return a rollout and its quality; where levels are balanced, the one nearest to the level that is wanted."""
    wanted = 1 + job.index % 5
    tried: list[tuple[int, Trajectory, str]] = []
    for attempt in range(_ATTEMPTS if plan.balance else 1):
        rng = rng_for(plan.seed, "rollout", job.task, job.index, attempt)
        seed = int(rng.integers(2**31))
        quality = _quality(plan, job, rng)
        limit = float(rng.uniform(*_STOPS[wanted])) if plan.balance else None
        trajectory = simulate(job.task, seed, steps, make_policy(quality, job.task, seed, limit))
        tried.append((abs(trajectory.readings[-1].level - wanted), trajectory, quality))
        if tried[-1][0] == 0:
            break
    _, trajectory, quality = min(tried, key=lambda found: found[0])
    return trajectory, quality


def _quality(plan: CollectPlan, job: Job, rng: np.random.Generator) -> str:
    allowed = list(POLICIES) if "all" in plan.quality else list(plan.quality)
    if not plan.balance:
        return allowed[job.index % len(allowed)]
    likely = [name for name in _LIKELY[1 + job.index % 5] if name in allowed]
    names = likely if likely and rng.random() < 0.8 else allowed
    return pick(names, rng)


def _rows(
    plan: CollectPlan, trajectory: Trajectory, row: dict[str, Any], rng: np.random.Generator
) -> tuple[dict[str, Any], ...]:
    kept = video_steps(len(trajectory.actions), plan.stride)
    last = trajectory.readings[-1]
    row |= {
        "task_id": trajectory.task,
        "split": split_of_task(trajectory.task),
        "embodiment": "Sawyer, simulated",
        "camera": row["world"]["camera"],
        "license": "MIT",
        "source": "Meta-World",
    }
    told = {
        "task": draw_instruction(trajectory, plan.phrasings, rng),
        "reward": last.level,
        "success": last.success,
        "progress": [round(float(value), 4) for value in trajectory.progress[kept]],
    }
    others = counterfactuals(trajectory, rng)
    chosen = [others[i] for i in sorted(rng.permutation(len(others))[: plan.counterfactuals])]
    more = [
        row | {"task": o.text, "reward": o.level, "success": o.level == 5, "counterfactual": o.kind} for o in chosen
    ]
    return (row | told, *more)


def _read_world(text: str) -> tuple[str, int]:
    """Read `plain` or `NAME:SEVERITY`."""
    if text == "plain":
        return text, 0
    from rewardlab.perturb.domain.rerendered_world import WORLD_EDITS

    name, _, severity = text.partition(":")
    find(WORLD_EDITS, name, "changed world")
    if severity not in ("1", "2", "3", "4"):
        raise PlanError(f"a changed world needs a severity from 1 to 4, such as {name}:3, got {text!r}")
    return name, int(severity)


def _changes(text: str, rng: np.random.Generator) -> tuple[tuple[str, tuple[float, ...]], ...]:
    name, severity = _read_world(text)
    if not severity:
        return ()
    from rewardlab.perturb.domain.rerendered_world import WORLD_EDITS

    entry = WORLD_EDITS[name]
    return ((entry.edit, entry.sample(entry.table[severity - 1], rng)),)


def _claim(plan: CollectPlan) -> None:
    """Write down what is collected here, or check that it is the same; clear away what a killed run left behind."""
    settings = json.loads(json.dumps(asdict(replace(plan, workers=0)), default=str))
    settings.pop("out")
    path = plan.out / RECORD
    if path.exists() and json.loads(path.read_text()) != settings:
        raise RunError(f"{plan.out} holds a collection with other settings; choose another --out or remove that folder")
    with writing(path) as partial:
        partial.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    for rest in (plan.out / SUBSET).glob(".*.tmp"):
        rest.unlink(missing_ok=True)


def _repair(plan: CollectPlan, jobs: list[Job]) -> int:
    """Return how many episodes are finished; the last one is made anew if the run was killed while writing its rows."""
    path = plan.out / METADATA
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    names = [json.loads(line)["file_name"] for line in lines if line.endswith("\n")]
    whole = (plan.out / "splits").exists()
    torn = None if whole or not names else names[-1]
    kept = [line for line, name in zip(lines, names) if name != torn]
    with writing(path) as partial:
        partial.write_text("".join(kept), encoding="utf-8")
    done = list(dict.fromkeys(name for name in names if name != torn))
    if done != [f"{job.stem}.mp4" for job in jobs[: len(done)]]:
        raise RunError(f"{path} does not hold the episodes of this plan in order; collect into another folder")
    return len(done)


def _write_splits(plan: CollectPlan) -> Counter[int]:
    """Write the file names of each split, and return how many rows there are at each level."""
    rows = [json.loads(line) for line in (plan.out / METADATA).read_text(encoding="utf-8").splitlines()]
    with writable(plan.out / "splits"):
        (plan.out / "splits").mkdir(exist_ok=True)
        for split in SPLITS:
            names = dict.fromkeys(row["file_name"] for row in rows if row["split"] == split)
            (plan.out / "splits" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return Counter(int(row["reward"]) for row in rows)


def _made(plan: CollectPlan, jobs: list[Job]) -> Iterator[Made]:
    """Yield the finished episodes in the order of the jobs, whoever makes them."""
    workers = min(plan.workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        yield from (make(plan, job) for job in jobs)
        return
    pool = [_start(plan) for _ in range(workers)]
    try:
        yield from _shared(pool, jobs)
    finally:
        for worker in pool:
            worker.kill()
            worker.communicate()  # closes its pipes


def _shared(pool: list["subprocess.Popen[str]"], jobs: list[Job]) -> Iterator[Made]:
    queue, finished, following = iter(enumerate(jobs)), dict[int, Made](), 0
    with DefaultSelector() as busy:
        for worker, (number, job) in zip(pool, islice(queue, len(pool))):
            busy.register(_give(worker, job), EVENT_READ, (number, worker))
        while busy.get_map():
            for key, _ in busy.select():
                number, worker = key.data
                busy.unregister(key.fileobj)
                finished[number] = _take(worker, jobs[number])
                for more, job in islice(queue, 1):
                    busy.register(_give(worker, job), EVENT_READ, (more, worker))
            while following in finished:
                yield finished.pop(following)
                following += 1


def _start(plan: CollectPlan) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "rewardlab.collect.metaworld"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert worker.stdin
    worker.stdin.write(json.dumps(asdict(plan), default=str) + "\n")
    return worker


def _give(worker: "subprocess.Popen[str]", job: Job) -> IO[str]:
    assert worker.stdin and worker.stdout
    with suppress(BrokenPipeError):  # it died: reading its answer will say so
        worker.stdin.write(json.dumps(asdict(job)) + "\n")
    return worker.stdout


def _take(worker: "subprocess.Popen[str]", job: Job) -> Made:
    assert worker.stdout
    line = worker.stdout.readline()
    if not line:
        raise RunError(
            f"a worker died while it made {job.stem}; run the same command again: finished episodes are kept"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise RunError(f"{job.stem} could not be made: {answer['error']}")
    return Made(tuple(answer["rows"]), answer["seconds"])


def _serve() -> None:
    """Be a worker: read a plan and then jobs, one JSON object a line, and answer each with a line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not end up among the answers
    settings = json.loads(sys.stdin.readline())
    lists = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
    plan = CollectPlan(**settings | lists | {"out": Path(settings["out"])})
    for line in sys.stdin:
        try:
            answers.write(json.dumps(asdict(make(plan, Job(**json.loads(line))))) + "\n")
        except RewardlabError as error:
            answers.write(json.dumps({"error": str(error)}) + "\n")


def _tell(done: int, total: int, rate: float) -> None:
    """Show how far the collection is: a line that renews itself on a terminal, every tenth part elsewhere."""
    left = (total - done) / max(rate, 1e-9)
    line = f"collected {done:,} of {total:,} episodes, {60 * rate:.0f} a minute, {left:.0f} s left"
    if sys.stderr.isatty():
        print(f"\r{line} ", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done == total or done % max(1, total // 10) == 0:
        print(line, file=sys.stderr)


def _tell_shares(spent: "Counter[str]") -> None:
    total = sum(spent.values())
    if total:
        print("time: " + ", ".join(f"{name} {spent[name] / total:.0%}" for name in spent), file=sys.stderr)


if __name__ == "__main__":
    _serve()
