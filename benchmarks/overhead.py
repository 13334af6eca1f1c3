"""How much time the runner itself takes: a model that answers at once, and where the rest of the time goes.

    python benchmarks/overhead.py [--episodes N]

Prints cells per second and the share of time spent decoding, perturbing, scoring and writing, on one worker.
The rival is a plain loop that opens the video again for every cell, as scripts without a runner do.
The last line is `ratio: X`, the loop's time over ours.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2

from rewardlab.api import stress_plan
from rewardlab.core.settings import Execution
from rewardlab.core.trial import CLEAN, Score, Trial
from rewardlab.data.video import sample_frames
from rewardlab.evaluation import scoring as scoring
from rewardlab.evaluation.evaluate import (
    evaluate,
    load_episodes,
    scoring_context,
    start_scoring,
)
from rewardlab.evaluation.plan import Plan, bundle_jobs, plan_trials

PERTURBATIONS = ("brightness_up", "contrast_down", "typo_keyboard", "polite_filler", "hold_last", "drop_uniform")


class Instant:
    """A model that answers at once."""

    def score(self, episodes: object) -> list[Score]:
        return [Score(3.0)] * len(episodes)


class Stopwatch:
    """Adds up the time spent inside functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object, **named: object) -> object:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def profile(plan: Plan) -> tuple[int, float, dict[str, float]]:
    """Run every job in this process with stopwatches around the stages."""
    contents = load_episodes(plan)
    context = scoring_context(plan, contents.episodes)
    jobs = bundle_jobs(plan_trials(contents.episodes, context, plan.severities), 1)
    decode, perturb, ask, write = Stopwatch(), Stopwatch(), Stopwatch(), Stopwatch()
    originals = scoring._with_decoded_frames, scoring._perturbed, scoring._ask
    scoring._with_decoded_frames, scoring._perturbed, scoring._ask = (
        decode.around(originals[0]),
        perturb.around(originals[1]),
        ask.around(originals[2]),
    )
    trials: list[Trial] = []
    silent = scoring.Listeners(lambda _cells: None, lambda _drafts: None, trials.extend)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = start_scoring(replace(plan, out=Path(folder) / "run"), context, contents)
        for job in jobs:
            scoring.score_job(job, context, {"constant": Instant()}, silent)
            write.around(run.append)(trials[-len(job.trials) :])
        total = time.perf_counter() - started
    scoring._with_decoded_frames, scoring._perturbed, scoring._ask = originals
    watches = {"decoding": decode, "perturbing": perturb, "scoring": ask, "writing": write}
    return len(trials), total, {name: watch.seconds for name, watch in watches.items()}


def naive(plan: Plan) -> float:
    """Decode, perturb and score each cell alone."""
    contents = load_episodes(plan)
    context = scoring_context(plan, contents.episodes)
    started = time.perf_counter()
    for part in plan_trials(contents.episodes, context, plan.severities):
        for cell in part.trials:
            episode = part.episode
            if cell.perturbation == CLEAN:
                shown = sample_frames(episode, context.policy)
            else:
                perturbation = context.perturbation(cell.perturbation)
                before = sample_frames(episode, context.policy) if perturbation.stage == "sampled" else episode
                change = perturbation(before, cell.severity, context.seed, context.dataset).episode
                shown = change if perturbation.stage == "sampled" else sample_frames(change, context.policy)
            _ = shown.frames
            Instant().score([shown])
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=24)
    cv2.setNumThreads(1)
    given = {"models": "constant", "data": "sample", "perturbations": PERTURBATIONS, "controls": False}
    plan = stress_plan(given | {"limit": parser.parse_args().episodes})
    profile(plan)  # warm up: compiled kernels and the file cache
    cells, total, shares = profile(plan)
    print(f"one worker: {cells} cells in {total:.2f} s, {cells / total:,.0f} cells/s")
    for name, seconds in shares.items():
        print(f"  {name:<11}{seconds / total:6.1%}")
    print(f"  {'the rest':<11}{1 - sum(shares.values()) / total:6.1%}")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        evaluate(replace(plan, out=Path(folder) / "run", execution=Execution(workers=2)))
        wall = time.perf_counter() - started
    print(f"whole command, two workers: {cells / wall:,.0f} cells/s, checks and summary included")
    loop = naive(plan)
    print(f"plain loop, one process: {cells / loop:,.0f} cells/s")
    print(f"ratio: {loop / total:.1f}")


if __name__ == "__main__":
    main()
