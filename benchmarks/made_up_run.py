"""A run of as many cells as wanted with drawn answers: the plan, the cells and the ids are real, no model is asked.

python benchmarks/made_up_run.py make FOLDER CELLS
python benchmarks/made_up_run.py compact FOLDER     (join its parts)
python benchmarks/made_up_run.py resume FOLDER      (read what `stress` needs to go on)
"""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.random import Generator

from rewardlab.api import stress_plan
from rewardlab.core.episode import Episode
from rewardlab.core.run import Run
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.trial import CLEAN, Trial
from rewardlab.data import dataset_folder, open_dataset
from rewardlab.evaluation import evaluate as stress
from rewardlab.evaluation.plan import (
    FORECAST_COLUMNS,
    PlannedTrial,
    ScoringContext,
    conditions,
    plan_trials,
)
from rewardlab.evaluation.summary import save_summary

SHOWN = 16
EPISODES_PER_TASK, EPISODES_PER_PART = 3, 10
WITH_PROBABILITIES, WITH_PROGRESS, WITH_TEXT = {"pocket"}, {"pocket", "length"}, {"random", "oracle"}


def make(folder: Path, cells: int, perturbations: str = "all") -> Run:
    """Write a run of so many cells, in parts, as `stress` leaves it when it is stopped at the very end."""
    data = folder.with_name(f"{folder.name}-data")
    plan = stress_plan({"models": "pocket", "data": data, "perturbations": perturbations, "out": folder})
    per_episode = len(conditions(stress.scoring_context(plan, ()), plan.severities)) * len(plan.every_model)
    copy_episodes(data, -(-cells // per_episode))
    contents = open_dataset(str(data))
    context = stress.scoring_context(plan, contents.episodes)
    drawn = replace(plan, command="no command: the answers of this run are drawn")
    run = stress.start_scoring(drawn, context, contents)
    waiting: list[Trial] = []
    left = cells
    for number, planned in enumerate(plan_trials(contents.episodes, context, plan.severities), start=1):
        waiting += drawn_trials(planned.episode, planned.trials[:left], context)
        left -= len(planned.trials[:left])
        if number % EPISODES_PER_PART == 0:
            run.append(waiting)
            waiting = []
    run.append(waiting)
    return run


def copy_episodes(folder: Path, number: int) -> None:
    """Write a dataset of so many episodes: copies of the shipped clips that differ in nothing that is seen."""
    source = dataset_folder("sample")
    rows = [json.loads(line) for line in (source / "metadata.jsonl").read_text().splitlines()]
    lines = []
    for place in range(number):
        row = rows[place % len(rows)]
        name = Path(row["file_name"]).with_stem(f"clip-{place}")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / row["file_name"], folder / name)
        with (folder / name).open("ab") as video:  # an empty box of the container, so that each copy is another file
            video.write(b"\0\0\0\x0cfree" + place.to_bytes(4))
        task = f"{row['task']}, as in lesson {place // EPISODES_PER_TASK}"
        level = 1 + place % 5
        lines.append(json.dumps(row | {"file_name": str(name), "task": task, "reward": level, "success": level == 5}))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")


def drawn_trials(episode: Episode, cells: tuple[PlannedTrial, ...], context: ScoringContext) -> Iterator[Trial]:
    """Yield the trials of one episode, of which a few were dropped and a few failed."""
    rng = rng_for(0, "made-up answers", episode.id)
    clean = unanswered(episode, context)
    for cell, luck in zip(cells, rng.random(len(cells)), strict=True):
        trial = of_cell(clean, cell, context)
        if luck < 0.04:
            yield replace(trial, status="dropped", expectation="undefined", reason=f"no {cell.perturbation} here")
        elif luck < 0.06:
            yield replace(trial, reason="expected a number from 1 to 5, got none", raw="I cannot say. " * 8)
        else:
            yield answered(trial, rng)


def unanswered(episode: Episode, context: ScoringContext) -> Trial:
    """Return what the trials of an episode have in common."""
    return Trial(
        id="",
        model="",
        episode=episode.id,
        video=episode.clip.source.digest,
        subset=episode.provenance.subset,
        task=episode.provenance.task,
        perturbation=CLEAN,
        category=CLEAN,
        severity=0,
        seed=context.seed,
        expectation="same",
        truth_level=episode.label.level,
        truth_success=episode.label.success,
        truth_progress=tuple(np.linspace(0, 1, SHOWN).tolist()) if episode.label.success else None,
        instruction=episode.instruction,
        shown=tuple(np.linspace(0, len(episode.clip) - 1, SHOWN).astype(int).tolist()),
        frames_hash="",
        status="failed",
    )


def of_cell(clean: Trial, cell: PlannedTrial, context: ScoringContext) -> Trial:
    """Return the trial of one cell of an episode."""
    shown = digest(clean.episode, cell.perturbation, cell.severity)
    mine = replace(clean, id=cell.id, model=cell.model, severity=cell.severity, frames_hash=shown)
    if cell.perturbation == CLEAN:
        return mine
    perturbation = context.perturbations[cell.perturbation]
    return replace(
        mine,
        perturbation=perturbation.name,
        category=perturbation.category,
        expectation=perturbation.expect,
        instruction=f"{clean.instruction} ({perturbation.name})",
    )


def answered(trial: Trial, rng: Generator) -> Trial:
    """Return the trial with an answer that is the truth more or less, more so for less severe changes."""
    truth = 3 if trial.truth_level is None else trial.truth_level
    level = float(np.clip(truth + rng.normal(0, 0.4 + 0.3 * trial.severity), 1, 5))
    odds = np.exp(-np.abs(np.arange(1, 6) - level) * 1.5)
    progress = np.cumsum(rng.random(SHOWN)) / SHOWN
    return replace(
        trial,
        status="scored",
        level=level,
        probabilities=tuple((odds / odds.sum()).tolist()) if trial.model in WITH_PROBABILITIES else None,
        progress=tuple(progress.tolist()) if trial.model in WITH_PROGRESS else None,
        raw=f"The gripper moved; frame {rng.integers(SHOWN)} shows it. " * 4 if trial.model in WITH_TEXT else None,
        seconds=float(rng.random()),
    )


def main() -> None:
    job, folder, *options = sys.argv[1:]
    if job == "make":
        make(Path(folder), int(options[0]), *options[1:])
    elif job == "compact":
        Run(Path(folder)).compact()
    elif job == "summary":
        save_summary(Run(Path(folder)))
    else:
        print(len(Run(Path(folder)).trials(FORECAST_COLUMNS)))


if __name__ == "__main__":
    main()
