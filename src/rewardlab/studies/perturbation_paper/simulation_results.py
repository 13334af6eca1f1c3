"""Results of a sampled study, and the same as an ordinary run."""

import json
import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core import __version__
from rewardlab.core.run import Run, start_run
from rewardlab.core.seeding import digest
from rewardlab.core.storage import locked
from rewardlab.core.trial import CLEAN, Trial
from rewardlab.evaluation.summary import save_summary
from rewardlab.metrics.robustness import severity_threshold
from rewardlab.studies.perturbation_paper.equation import (
    MEASURES,
    Condition,
    StudyConfig,
    Values,
    clipped,
    closed_form,
    mean_over_drift,
    vote_accuracy,
)
from rewardlab.studies.perturbation_paper.sampler import (
    SampledMean,
    draw_competence,
    predictions,
    sample,
    smallest_mistake,
)


@dataclass(frozen=True)
class ConditionResult:
    """One condition: expected and spread over the noise of Eq. 1, given the competence drawn, and sampled."""

    condition: Condition
    competence: float  # as drawn
    expected: dict[str, float]
    spread: dict[str, float]  # standard deviation that the noise of Eq. 1 alone causes
    given: dict[str, float]  # the closed form at the competence drawn
    sampled: dict[str, SampledMean]


@dataclass(frozen=True)
class VoteResult:
    """A real majority vote under one condition; only its accuracy has a closed form."""

    condition: Condition
    expected: float  # at the competence of Eq. 1 without its noise
    given: float  # at the competence drawn
    sampled: dict[str, SampledMean]


@dataclass(frozen=True)
class SimulationResults:
    """Everything that a study gave."""

    study: StudyConfig
    seed: int
    outcomes: tuple[ConditionResult, ...]
    tasks: tuple[ConditionResult, ...]
    votes: tuple[VoteResult, ...]

    def find(self, model: str, category: str, severity: int) -> ConditionResult:
        """Return the outcome of one condition."""
        wanted = Condition(model, category, severity)
        return next(outcome for outcome in self.outcomes if outcome.condition == wanted)

    def clean_accuracy(self, model: str) -> float:
        """Return the closed form of a model's accuracy on clean episodes."""
        centre = np.array(self.study.models[model].alpha)
        return float(mean_over_drift(self.study, centre)["accuracy"][0])


@dataclass(frozen=True)
class ReliableRange:
    """How far a curve stays at or above the level, both ways; None: not even at the start, or nowhere below it."""

    last_reliable: int | None
    first_failing: int | None


def run_study(study: StudyConfig, seed: int) -> SimulationResults:
    """Sample every condition of a study beside its closed form."""
    outcomes = _outcomes(study, study.conditions(), seed)
    voting = [outcome for outcome in outcomes if outcome.condition.model == study.voters]
    votes: list[VoteResult] = []
    for outcome in voting:
        scales = study.scale(np.array([float(clipped(study.centre(outcome.condition))), outcome.competence]))
        expected, given = vote_accuracy(scales, study.truth, study.correlation)
        sampled = sample(study, outcome.condition, outcome.competence, seed, vote=True)
        votes.append(VoteResult(outcome.condition, float(expected), float(given), sampled))
    return SimulationResults(study, seed, outcomes, _outcomes(study, study.task_conditions(), seed), tuple(votes))


def _outcomes(study: StudyConfig, conditions: Iterable[Condition], seed: int) -> tuple[ConditionResult, ...]:
    wanted = list(conditions)
    drawn = np.array([draw_competence(study, condition, seed) for condition in wanted])
    given = closed_form(study, drawn)
    expected = mean_over_drift(study, np.array([study.centre(condition) for condition in wanted]))
    return tuple(
        ConditionResult(
            condition,
            float(drawn[i]),
            {name: float(expected[name][0][i]) for name in MEASURES},
            {name: float(expected[name][1][i]) for name in MEASURES},
            {name: float(given[name][i]) for name in MEASURES},
            sample(study, condition, float(drawn[i]), seed),
        )
        for i, condition in enumerate(wanted)
    )


def averaged(estimates: Sequence[SampledMean]) -> SampledMean:
    """Return the plain mean of independent estimates."""
    values, errors = [e.value for e in estimates], [e.error for e in estimates]
    return SampledMean(float(np.mean(values)), float(np.sqrt(np.square(errors).sum()) / len(errors)))


def reliable_range(study: StudyConfig, curve: Sequence[float]) -> ReliableRange:
    """Return the last reliable and the first failing severity of a curve over the study's severities."""
    last, severities = severity_threshold(curve, study.reliable_at), study.severities
    assert last is not None
    failing = severities[last + 1] if last + 1 < len(severities) else None
    return ReliableRange(severities[last] if last >= 0 else None, failing)


def z_scores(results: SimulationResults) -> list[float]:
    """Return how many standard errors each sampled measure lies from its closed form at the drawn competence."""
    study = results.study
    found = [
        _z_score(study, name, outcome.sampled[name], outcome.given[name])
        for outcome in (*results.outcomes, *results.tasks)
        for name in MEASURES
    ]
    return found + [_z_score(study, "accuracy", vote.sampled["accuracy"], vote.given) for vote in results.votes]


def _z_score(study: StudyConfig, measure: str, estimate: SampledMean, exact: float) -> float:
    """Return the distance in standard errors, or in those that the closed form implies where mistakes are rare."""
    gap = estimate.value - exact
    if abs(gap) < 1e-9:  # a noiseless model has no error to divide by
        return 0.0
    rare = (1 - exact) * smallest_mistake(study.steps)[measure] / study.episodes
    error = max(estimate.error, math.sqrt(max(rare, 0.0)))
    return gap / error if error else math.inf


# A study as an ordinary run: one trial per sampled episode, so that metrics and the report page are the usual ones.
#
# The study knows one question per step, whether the task is more than half done, and two answers. So a trial asks it
# about one step, each step in turn over the episodes, and truth and answer are level 5 (yes) or 1 (no). Success
# accuracy is then the study's accuracy, from one step per episode instead of all; all predictions are in `progress`.

YES, NO = 5, 1
_GROUPS = 101  # the bootstrap draws tasks; episodes are independent, but no group may hold one step of a ramp only


def write_run(results: SimulationResults, folder: Path, settings: Mapping[str, Any], command: str) -> Run:
    """Write every sampled episode of the study into a run folder."""
    run = start_run(folder, _record(results, settings, command))
    with locked(run.folder):
        study, seed = results.study, results.seed
        for outcome in results.outcomes:
            condition = outcome.condition
            for vote in (False, True) if condition.model == study.voters else (False,):
                values = predictions(study, condition, outcome.competence, seed, vote=vote)
                model = voted_name(study) if vote else condition.model
                run.append(list(_trials(results, model, condition, values)))
        run.compact()
        save_summary(run)
    return run


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


def _record(results: SimulationResults, settings: Mapping[str, Any], command: str) -> dict[str, object]:
    study = results.study
    judged = [*study.models, *([voted_name(study)] if results.votes else [])]
    conditions = len(results.outcomes) + len(results.votes)
    return {
        "kind": "montecarlo",
        "plan": {
            "study": json.loads(json.dumps(asdict(study))),
            "seed": results.seed,
            "accuracy_threshold": study.reliable_at,
        },
        "settings": {
            **settings,
            "seed": results.seed,
            "data": "the simulated study",
            "frames": f"{study.steps} steps",
            "limit": None,
            "perturbations": [f"simulated_{category}" for category in study.categories],
        },
        "evaluated": judged,
        "command": command,
        "episodes": study.episodes * len(study.categories),
        "trials": study.episodes * conditions,
        "skipped": [],
        "versions": {"rewardlab": __version__, "python": platform.python_version(), "numpy": version("numpy")},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
