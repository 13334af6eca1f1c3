"""Keeps what the study's numbers are computed from, small enough to commit.

    python results/robustness/keep_trials.py robustness results/robustness/run
    rewardlab study perturbation results/robustness/run results/robustness

Rounds progress, probabilities and seconds to three decimals and leaves out what no number needs (answers as text,
hashes of frames and trials). Every file of results/robustness is written from the kept run, never from the whole one,
so that anyone can write it again from a clone; a test does.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rewardlab.core.run import Run
from rewardlab.core.trial import Trial

DECIMALS = 3


def main(source: Path, target: Path) -> None:
    trials = sorted(Run(source).trials().rows(), key=lambda t: (t.model, t.episode, t.perturbation, t.severity))
    (target / "trials").mkdir(parents=True)
    (target / "run.json").write_bytes((source / "run.json").read_bytes())
    Run(target).append([kept(trial, number) for number, trial in enumerate(trials)])


def kept(trial: Trial, number: int) -> Trial:
    return replace(
        trial,
        id=f"{number:06d}",
        truth_progress=rounded(trial.truth_progress),
        probabilities=rounded(trial.probabilities),
        progress=rounded(trial.progress),
        raw=None,
        reason=None,
        frames_hash="",
        instruction="",
        shown=(),
        seconds=round(trial.seconds, DECIMALS),
    )


def rounded(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(round(value, DECIMALS) for value in values)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
