"""Do the factory's negatives teach to tell failures from successes? `python negatives.py WORK --vision V --text T`.

Everything in one go: experts of 40 tasks are recorded, the factory works on their successes, models are trained with
and without what it made, and judged on rollouts of every quality with other seeds, of those tasks and of ten others.
V is TinyViT-5M and T all-MiniLM-L6-v2, as `rewardlab train objective` takes them. Each step goes on where it stopped.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import unseen_tasks

HERE = Path(__file__).parent
FACTORY = "rewrite,counterfactual,clip,validate"
# Which objectives learn from which rows.
TRAININGS = {
    "both": (
        *("triplet_without", "triplet_with", "levels_without", "levels_with", "rewind_without", "rewind_with"),
        "triplet_by_video",
    ),
    "clips": ("triplet_with", "levels_with", "rewind_with"),
    "commands": ("triplet_with", "levels_with", "rewind_with"),
}
LEFT_OUT = {"both": "", "clips": "counterfactual", "commands": "clip"}
SEED_OF_JUDGED = 1000


def read_words() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--vision", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--tasks", default="", help="tasks to train on; by default the 40 that are not in fold 0")
    parser.add_argument("--unseen", default="", help="tasks that are judged only; by default the ten of fold 0")
    parser.add_argument("--experts", type=int, default=12, help="expert rollouts of each task")
    parser.add_argument("--judged", type=int, default=24, help="judged rollouts of each task, of every quality in turn")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--frames", type=int, default=12, help="frames of a clip in training")
    parser.add_argument("--views", type=int, default=3, help="looks of each training clip")
    return parser.parse_args()


def rewardlab(log: Path, *words: object) -> None:
    """Run a command of rewardlab; what it prints goes to a file, whose end is shown where it fails."""
    run(log, "-m", "rewardlab", *words)


def run(log: Path, *words: object) -> None:
    """Run Python with these words."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    threads = {"OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with log.open("ab") as file:
        done = subprocess.run(
            [sys.executable, *map(str, words)], env={**os.environ, **threads}, stdout=file, stderr=subprocess.STDOUT
        )
    if done.returncode:
        end = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise SystemExit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{end}")


def make_rows(words: argparse.Namespace, number: int, tasks: tuple[str, ...]) -> None:
    """Record experts of some tasks, let the factory work on the successes, and choose rows to train on."""
    part, log = words.work / f"part{number}", words.work / f"part{number}.log"
    part.mkdir(parents=True, exist_ok=True)
    filming = ("--fps", 5, "--frames", "20,30", "--size", 112, "--workers", 1)
    chosen = ("--tasks", ",".join(tasks), "--episodes", words.experts, "--quality", "expert")
    rewardlab(log, "collect", "metaworld", *chosen, *filming, "--out", part / "experts")
    run(log, HERE / "subset_rows.py", part / "experts", part / "successes", "--successes")
    rewardlab(log, "augment", part / "successes", "--stage", FACTORY, "--out", part / "made", "--quiet")
    for name, without in LEFT_OUT.items():
        less = ("--without", without) if without else ()
        run(log, HERE / "subset_rows.py", part / "made" / "validate", part / name, "--hide-progress", *less)


def record_judged(words: argparse.Namespace, tasks: tuple[str, ...]) -> None:
    """Record rollouts of every quality with other seeds; only their last frame is looked at."""
    chosen = ("--tasks", ",".join(tasks), "--episodes", words.judged, "--quality", "all", "--seed", SEED_OF_JUDGED)
    filming = ("--fps", 2, "--frames", "7,12", "--size", 112, "--workers", words.processes)
    rewardlab(words.work / "judged.log", "collect", "metaworld", *chosen, *filming, "--out", words.work / "judged")


def train(words: argparse.Namespace, name: str, parts: int) -> None:
    """Train every objective on one choice of rows."""
    data = ",".join(str(words.work / f"part{number}" / name) for number in range(parts))
    objectives = ",".join(f"without_negatives:{objective}" for objective in TRAININGS[name])
    rewardlab(
        words.work / f"{name}.log",
        *("train", "objective", objectives, "--backbone", f"tinyvit={words.vision}+{words.text}", "--data", data),
        *("--out", words.work / "trained" / name, "--seeds", words.seeds, "--steps", words.steps, "--batch-size", 128),
        *("--align-steps", words.steps, "--holdout", 0.01, "--perturbations", "none", "--stop-after", "train"),
        *("--against", objectives.split(",")[0], "--device", words.device, "--workers", 1),
        *("--frames", words.frames, "--views", words.views),
    )


def main() -> None:
    """Do all of it."""
    words, started = read_words(), time.monotonic()
    words.work.mkdir(parents=True, exist_ok=True)
    unseen = tuple(words.unseen.split(",")) if words.unseen else unseen_tasks(0)
    tasks = tuple(words.tasks.split(",")) if words.tasks else tuple(task for task in TASKS if task not in unseen)
    parts = min(words.processes, len(tasks))

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s: {what}", flush=True)

    with ThreadPoolExecutor(words.processes) as pool:
        list(pool.map(lambda number: make_rows(words, number, tasks[number::parts]), range(parts)))
        say("the factory is done")
    record_judged(words, tasks + unseen)
    say("rollouts to judge are recorded")
    with ThreadPoolExecutor(min(words.processes, len(TRAININGS))) as pool:
        list(pool.map(lambda name: train(words, name, parts), TRAININGS))
    say("models are trained")
    out, log = words.work / "training.json", words.work / "compare.log"
    run(log, HERE / "compare_training.py", words.work / "judged", words.work / "trained", out, words.device)
    say(f"judged: {out}")
    print(log.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
