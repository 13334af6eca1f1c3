"""How fast the simulated study is sampled, against a loop over episodes with scipy.stats.kendalltau.

    python benchmarks/montecarlo_speed.py

Both run in this process on one core and take turns, so that a busy machine slows both alike. The loop does what a
script does: draw the noise of one episode, accuracy with NumPy, tau with SciPy. Ours measures accuracy, tau-b, the
calibration error and the mean absolute error, with their standard errors.
The last line is `ratio: X`, our episodes per second over the loop's at T = 4.
"""

import os
import time
from collections.abc import Callable

import numpy as np
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.studies.perturbation_paper.equation import Condition, StudyConfig
from rewardlab.studies.perturbation_paper.sampler import sample

CONDITION, COMPETENCE, SEED = Condition("general", "visual", 2), 0.56, 0
ROUNDS = 5
SIZES = {4: (2_000, 1_000_000, 3_000), 100: (1_000, 40_000, 50)}  # T: episodes of the loop, ours, least ratio


def loop(study: StudyConfig) -> tuple[float, float]:
    """Return mean accuracy and mean tau, one episode at a time."""
    rng = rng_for(SEED, "loop", study.steps)
    truth, scale, fresh = study.truth, float(study.scale(COMPETENCE)), np.sqrt(1 - study.rho**2)
    accuracies, taus = [], []
    for _ in range(study.episodes):
        noise = rng.standard_normal(study.steps)
        for step in range(1, study.steps):
            noise[step] = study.rho * noise[step - 1] + fresh * noise[step]
        predicted = truth + scale * noise
        accuracies.append(np.mean((predicted > 0.5) == (truth > 0.5)))
        taus.append(kendalltau(predicted, truth).statistic)
    return float(np.mean(accuracies)), float(np.mean(taus))


def ours(study: StudyConfig) -> tuple[float, float]:
    """Return the same two from the sampler."""
    found = sample(study, CONDITION, COMPETENCE, SEED)
    return found["accuracy"].value, found["tau"].value


def rate(function: Callable[[StudyConfig], tuple[float, float]], study: StudyConfig) -> float:
    """Return episodes per second of one pass."""
    started = time.perf_counter()
    function(study)
    return study.episodes / (time.perf_counter() - started)


def compare(steps: int) -> float:
    """Print both rates for one length of episode and return the ratio of their medians."""
    few, many, least = SIZES[steps]
    slow, fast = StudyConfig(steps=steps, episodes=few), StudyConfig(steps=steps, episodes=many)
    ours(StudyConfig(steps=steps, episodes=10))  # compile, or load what was compiled
    rates = [(rate(loop, slow), rate(ours, fast)) for _ in range(ROUNDS)]
    per_loop, per_ours = (float(np.median(column)) for column in zip(*rates, strict=True))
    ratio = per_ours / per_loop
    (accuracy, tau), (our_accuracy, our_tau) = loop(slow), ours(fast)
    print(f"T = {steps}: loop {per_loop:,.0f} episodes/s, ours {per_ours:,.0f} episodes/s, ratio {ratio:,.0f}", end="")
    print(
        f" (at least {least:,} wanted); accuracy {accuracy:.3f} and {our_accuracy:.3f}, tau {tau:.3f} and {our_tau:.3f}"
    )
    return ratio


def main() -> None:
    import numba  # noqa: F401  # else the first second would go through NumPy

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ratios = {steps: compare(steps) for steps in SIZES}
    print(f"ratio: {ratios[4]:.0f}")


if __name__ == "__main__":
    main()
