"""A finished study: per condition what the equation gives and what sampling gave."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.metrics.severity_threshold import severity_threshold
from rewardlab.studies.perturbation_paper.simulated.closed_form import closed_form, mean_over_drift, vote_accuracy
from rewardlab.studies.perturbation_paper.simulated.sampler import (
    SampledMean,
    draw_competence,
    sample,
    sample_vote,
    smallest_mistake,
)
from rewardlab.studies.perturbation_paper.simulated.study_config import MEASURES, Condition, StudyConfig, clipped


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
    votes = tuple(_vote(study, outcome, seed) for outcome in voting)
    return SimulationResults(study, seed, outcomes, _outcomes(study, study.task_conditions(), seed), votes)


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


def _vote(study: StudyConfig, outcome: ConditionResult, seed: int) -> VoteResult:
    centre = float(clipped(study.centre(outcome.condition)))
    scales = study.scale(np.array([centre, outcome.competence]))
    expected, given = vote_accuracy(scales, study.truth, study.correlation)
    sampled = sample_vote(study, outcome.condition, outcome.competence, seed)
    return VoteResult(outcome.condition, float(expected), float(given), sampled)


def averaged(estimates: Sequence[SampledMean]) -> SampledMean:
    """Return the plain mean of independent estimates."""
    values, errors = [e.value for e in estimates], [e.error for e in estimates]
    return SampledMean(float(np.mean(values)), float(np.sqrt(np.square(errors).sum()) / len(errors)))


def reliable_range(study: StudyConfig, curve: Sequence[float]) -> ReliableRange:
    """Return the last reliable and the first failing severity of a curve over the study's severities."""
    last = severity_threshold(curve, study.reliable_at)
    assert last is not None
    severities = study.severities
    return ReliableRange(
        last_reliable=severities[last] if last >= 0 else None,
        first_failing=severities[last + 1] if last + 1 < len(severities) else None,
    )


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
