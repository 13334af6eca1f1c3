"""A study as an ordinary run: one trial per sampled episode, so that metrics and the report page are the usual ones.

The study knows one question per step, whether the task is more than half done, and two answers. So a trial asks it
about one step, each step in turn over the episodes, and truth and answer are level 5 (yes) or 1 (no). Success accuracy
is then the study's accuracy, from one step per episode instead of all; all predictions are in `progress`.
"""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rewardlab.analysis.run_summary import save_summary
from rewardlab.core.command_settings import as_command
from rewardlab.core.run import Run, locked, start_run
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN, Trial
from rewardlab.core.version import __version__
from rewardlab.studies.perturbation_paper.simulated.montecarlo_plan import MonteCarloPlan
from rewardlab.studies.perturbation_paper.simulated.sampler import predictions
from rewardlab.studies.perturbation_paper.simulated.simulation_results import SimulationResults
from rewardlab.studies.perturbation_paper.simulated.study_config import Condition, StudyConfig, Values

YES, NO = 5, 1
_GROUPS = 101  # the bootstrap draws tasks; episodes are independent, but no group may hold one step of a ramp only


def write_run(plan: MonteCarloPlan, results: SimulationResults, folder: Path) -> Run:
    """Write every sampled episode of the study into a run folder."""
    run = start_run(folder, _record(plan, results))
    with locked(run):
        for model, condition, values in _sampled(results):
            run.append(list(_trials(results, model, condition, values)))
        run.compact()
        save_summary(run)
    return run


def _sampled(results: SimulationResults) -> Iterator[tuple[str, Condition, Values]]:
    study, seed = results.study, results.seed
    for outcome in results.outcomes:
        values = predictions(study, outcome.condition, outcome.competence, seed)
        yield outcome.condition.model, outcome.condition, values
        if outcome.condition.model == study.voters:
            values = predictions(study, outcome.condition, outcome.competence, seed, vote=True)
            yield voted_name(study), outcome.condition, values


def voted_name(study: StudyConfig) -> str:
    """Return the name of the real vote in runs and tables."""
    return f"{study.voters} vote"


def _trials(results: SimulationResults, model: str, condition: Condition, values: Values) -> Iterator[Trial]:
    study, truth = results.study, results.study.truth
    clean = condition.severity == 0
    drawn = digest(repr(study), results.seed, model, condition.category, condition.severity)
    for number, row in enumerate(values):
        step = number % study.steps
        right = bool(truth[step] > 0.5)
        episode = f"{condition.category}-{number}"
        yield Trial(
            id=digest(drawn, number),
            model=model,
            episode=episode,
            video=episode,
            subset="simulated",
            task=f"group {number % _GROUPS}",
            perturbation=CLEAN if clean else f"simulated_{condition.category}",
            category=CLEAN if clean else condition.category,
            severity=condition.severity,
            seed=results.seed,
            expectation="same",
            truth_level=YES if right else NO,
            truth_success=right,
            truth_progress=tuple(truth.tolist()),
            instruction=f"Is the task more than half done at step {step + 1} of {study.steps}?",
            shown=tuple(range(study.steps)),
            frames_hash="",
            status="scored",
            level=float(YES if row[step] > 0.5 else NO),
            progress=tuple(row.tolist()),
        )


def _record(plan: MonteCarloPlan, results: SimulationResults) -> dict[str, object]:
    study = results.study
    settings = json.loads(json.dumps(asdict(plan), default=str))
    judged = [*study.models, *([voted_name(study)] if results.votes else [])]
    conditions = len(results.outcomes) + len(results.votes)
    return {
        "kind": "montecarlo",
        "plan": {"study": json.loads(json.dumps(asdict(study))), "seed": plan.seed, "reliable_at": plan.reliable_at},
        "settings": settings
        | {
            "data": "the simulated study",
            "frames": f"{study.steps} steps",
            "limit": None,
            "perturbations": [f"simulated_{category}" for category in study.categories],
        },
        "judged": judged,
        "command": as_command("montecarlo", plan),
        "episodes": study.episodes * len(study.categories),
        "cells": study.episodes * conditions,
        "skipped": [],
        "versions": {"rewardlab": __version__, "python": platform.python_version(), "numpy": version("numpy")},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
