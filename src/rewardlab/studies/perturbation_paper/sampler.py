"""Sampling many episodes, compiled loops."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rewardlab.core.jit import compiled
from rewardlab.core.seeding import rng_for
from rewardlab.studies.perturbation_paper.equation import BINS, Condition, StudyConfig, Values, clipped

EPISODES, RIGHT, TAU, ORDERED, ERROR, GAPS = range(6)  # columns of the sums; one gap per bin follows from GAPS on
WIDTH = GAPS + BINS


@compiled
def sample_predictions(rng: Generator, truth: Values, scale: float, rho: float, out: Values) -> None:
    """Fill (episodes, steps) with true progress plus stationary noise; drawing here is twice as fast as in NumPy."""
    fresh = np.sqrt(1 - rho**2)
    for i in range(out.shape[0]):
        noise = rng.standard_normal()
        out[i, 0] = truth[0] + scale * noise
        for t in range(1, truth.size):
            noise = rho * noise + fresh * rng.standard_normal()
            out[i, t] = truth[t] + scale * noise


@compiled
def median_of_three(first: Values, second: Values, third: Values) -> None:
    """Put the middle of three members' predictions in place of the first's."""
    for i in range(first.shape[0]):
        for t in range(first.shape[1]):
            low, high = min(first[i, t], second[i, t]), max(first[i, t], second[i, t])
            first[i, t] = max(low, min(high, third[i, t]))


@compiled
def tau_b(values: Values) -> float:
    """Return Kendall's tau-b of values with a strictly rising truth; nan if all values are tied."""
    above, tied = 0, 0
    for i in range(1, values.size):
        mine = values[i]
        for j in range(i):  # a loop from 0 compiles to vector instructions, one from i + 1 does not
            above += mine > values[j]
            tied += mine == values[j]
    pairs = values.size * (values.size - 1) // 2
    net = 2 * above + tied - pairs  # pairs in order less pairs out of order
    if tied == 0:
        return net / pairs
    return net / np.sqrt(float(pairs - tied) * pairs) if tied < pairs else np.nan


@compiled
def accumulate_measures(predictions: Values, truth: Values, block: int, first: int, sums: Values) -> None:
    """Add the measures of each episode to the sums of its block; `first` is the number of the first episode."""
    share = 1 / truth.size
    for i in range(predictions.shape[0]):
        row = sums[(first + i) // block]
        right, error = 0, 0.0
        for t in range(truth.size):
            value = predictions[i, t]
            right += (value > 0.5) == (truth[t] > 0.5)
            error += abs(value - truth[t])
            said = min(max(value, 0.0), 1.0)
            row[GAPS + min(int(said * BINS), BINS - 1)] += (truth[t] - said) * share
        tau = tau_b(predictions[i])
        if not np.isnan(tau):
            row[TAU] += tau
            row[ORDERED] += 1
        row[EPISODES] += 1
        row[RIGHT] += right * share
        row[ERROR] += error * share


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


def sample(
    study: StudyConfig, condition: Condition, competence: float, seed: int, *, vote: bool = False
) -> dict[str, SampledMean]:
    """Return every measure over the episodes of one condition; with `vote`, of the majority of three such members."""
    return measure(_batches(study, condition, competence, seed, vote=vote), study)


def predictions(
    study: StudyConfig, condition: Condition, competence: float, seed: int, *, vote: bool = False
) -> Values:
    """Return predicted progress (episodes, steps): the very episodes that `sample` measures."""
    return np.concatenate(list(_batches(study, condition, competence, seed, vote=vote)))


def _batches(study: StudyConfig, condition: Condition, competence: float, seed: int, *, vote: bool) -> Iterator[Values]:
    rng = rng_for(seed, "vote" if vote else "episodes", *_rng_names(condition))
    return (vote_batches if vote else prediction_batches)(study, competence, rng)


def prediction_batches(study: StudyConfig, competence: float, rng: Generator) -> Iterator[Values]:
    """Yield predicted progress of the study's episodes, some at a time."""
    truth, scale = study.truth, float(study.scale(competence))
    for size in _sizes(study):
        buffer = np.empty((size, study.steps))
        sample_predictions(rng, truth, scale, study.rho, buffer)
        yield buffer


def vote_batches(study: StudyConfig, competence: float, rng: Generator) -> Iterator[Values]:
    """Yield the middle prediction of three members: it is past one half just when two of the three are."""
    truth, scale = study.truth, float(study.scale(competence))
    own, shared = np.sqrt(1 - study.correlation), np.sqrt(study.correlation)
    still = np.zeros_like(truth)
    for size in _sizes(study):
        members = np.empty((3, size, study.steps))
        common = np.empty((size, study.steps))
        sample_predictions(rng, still, scale * shared, study.rho, common)
        for member in members:
            sample_predictions(rng, truth, scale * own, study.rho, member)
            member += common
        median_of_three(*members)
        yield members[0]


def measure(parts: Iterator[Values], study: StudyConfig) -> dict[str, SampledMean]:
    """Return every measure over predictions that come in parts."""
    block = -(-study.episodes // _BLOCKS)
    sums = np.zeros((-(-study.episodes // block), WIDTH))
    first, truth = 0, study.truth
    for part in parts:
        accumulate_measures(part, truth, block, first, sums)
        first += len(part)
    return estimates(sums, study.steps)


def estimates(sums: Values, steps: int) -> dict[str, SampledMean]:
    """Return the measures and their standard errors from the sums of each block of episodes."""
    episodes, gaps, least = sums[:, EPISODES], sums[:, GAPS:], smallest_mistake(steps)
    mean_gap = gaps.sum(axis=0) / episodes.sum()
    return {
        "accuracy": _ratio(sums[:, RIGHT], episodes, least["accuracy"]),
        "tau": _ratio(sums[:, TAU], sums[:, ORDERED], least["tau"]),
        # Away from a gap of zero the sign of each bin's gap is fixed, so the error is that of a plain mean.
        "ece": _ratio(gaps @ np.sign(mean_gap), episodes),
        "mae": _ratio(sums[:, ERROR], episodes),
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
