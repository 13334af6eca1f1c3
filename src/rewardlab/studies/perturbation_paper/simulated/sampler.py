"""The sampler: predicted progress of many episodes at once, and what is measured on them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rewardlab.core.seeding import rng_for
from rewardlab.studies.perturbation_paper.simulated import compiled_sampling as kernels
from rewardlab.studies.perturbation_paper.simulated.study_config import Condition, StudyConfig, Values, clipped

_BATCH = 1 << 16  # predictions held at once, to stay in the second cache
_BLOCKS = 1000  # groups of episodes from whose scatter the errors are taken
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class SampledMean:
    """A sampled mean and its standard error."""

    value: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95% interval."""
        return self.value - NORMAL_95 * self.error, self.value + NORMAL_95 * self.error


def draw_competence(study: StudyConfig, condition: Condition, seed: int) -> float:
    """Return the competence of a condition with the noise of Eq. 1, which is drawn once for all its episodes."""
    rng = rng_for(seed, "competence", *_rng_names(condition))
    return float(clipped(study.centre(condition) + study.drift * rng.standard_normal()))


def sample(study: StudyConfig, condition: Condition, competence: float, seed: int) -> dict[str, SampledMean]:
    """Return every measure over the episodes of one condition."""
    rng = rng_for(seed, "episodes", *_rng_names(condition))
    return measure(prediction_batches(study, competence, rng), study)


def sample_vote(study: StudyConfig, condition: Condition, competence: float, seed: int) -> dict[str, SampledMean]:
    """Return every measure of the majority vote of three members of this competence."""
    rng = rng_for(seed, "vote", *_rng_names(condition))
    return measure(vote_batches(study, competence, rng), study)


def predictions(
    study: StudyConfig, condition: Condition, competence: float, seed: int, *, vote: bool = False
) -> Values:
    """Return predicted progress (episodes, steps): the very episodes that `sample` or `sample_vote` measures."""
    rng = rng_for(seed, "vote" if vote else "episodes", *_rng_names(condition))
    parts = vote_batches(study, competence, rng) if vote else prediction_batches(study, competence, rng)
    return np.concatenate(list(parts))


def prediction_batches(study: StudyConfig, competence: float, rng: Generator) -> Iterator[Values]:
    """Yield predicted progress of the study's episodes, some at a time."""
    truth, scale = study.truth, float(study.scale(competence))
    for size in _sizes(study):
        buffer = np.empty((size, study.steps))
        kernels.sample_predictions(rng, truth, scale, study.rho, buffer)
        yield buffer


def vote_batches(study: StudyConfig, competence: float, rng: Generator) -> Iterator[Values]:
    """Yield the middle prediction of three members: it is past one half just when two of the three are."""
    truth, scale = study.truth, float(study.scale(competence))
    own, shared = np.sqrt(1 - study.correlation), np.sqrt(study.correlation)
    still = np.zeros_like(truth)
    for size in _sizes(study):
        members = np.empty((3, size, study.steps))
        common = np.empty((size, study.steps))
        kernels.sample_predictions(rng, still, scale * shared, study.rho, common)
        for member in members:
            kernels.sample_predictions(rng, truth, scale * own, study.rho, member)
            member += common
        kernels.median_of_three(*members)
        yield members[0]


def measure(parts: Iterator[Values], study: StudyConfig) -> dict[str, SampledMean]:
    """Return every measure over predictions that come in parts."""
    block = -(-study.episodes // _BLOCKS)
    sums = np.zeros((-(-study.episodes // block), kernels.WIDTH))
    first, truth = 0, study.truth
    for part in parts:
        kernels.accumulate_measures(part, truth, block, first, sums)
        first += len(part)
    return estimates(sums, study.steps)


def estimates(sums: Values, steps: int) -> dict[str, SampledMean]:
    """Return the measures and their standard errors from the sums of each block of episodes."""
    episodes = sums[:, kernels.EPISODES]
    gaps = sums[:, kernels.GAPS :]
    mean_gap = gaps.sum(axis=0) / episodes.sum()
    # Away from a gap of zero the sign of each bin's gap is fixed, so the error is that of a plain mean.
    signed = _ratio(gaps @ np.sign(mean_gap), episodes)
    least = smallest_mistake(steps)
    return {
        "accuracy": _ratio(sums[:, kernels.RIGHT], episodes, least["accuracy"]),
        "tau": _ratio(sums[:, kernels.TAU], sums[:, kernels.ORDERED], least["tau"]),
        "ece": signed,
        "mae": _ratio(sums[:, kernels.ERROR], episodes),
    }


def smallest_mistake(steps: int) -> dict[str, float]:
    """Return what one wrong step, or one pair out of order, costs the measure of an episode."""
    return {"accuracy": 1 / steps, "tau": 4 / (steps * (steps - 1)), "ece": 0.0, "mae": 0.0}


def _ratio(sums: Values, counts: Values, smallest: float = 0.0) -> SampledMean:
    """Return a mean; its error is never below that of one `smallest` mistake, for none seen is no proof of none."""
    total = counts.sum()
    if not total:
        return SampledMean(float("nan"), float("nan"))
    mean = sums.sum() / total
    blocks = len(counts)
    scatter = np.sqrt(blocks / (blocks - 1) * np.square(sums - mean * counts).sum())
    return SampledMean(float(mean), float(max(scatter, smallest) / total))


def _sizes(study: StudyConfig) -> Iterator[int]:
    most = max(1, _BATCH // study.steps)
    for first in range(0, study.episodes, most):
        yield min(most, study.episodes - first)


def _rng_names(condition: Condition) -> tuple[str, str, str, int]:
    return condition.model, condition.category, condition.task, condition.severity
