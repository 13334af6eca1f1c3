"""Sampling many episodes: compiled loops, and the same bit for bit in NumPy for where numba is not installed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rewardlab.core.distributions import NORMAL_95
from rewardlab.core.jit import compiled
from rewardlab.core.seeding import rng_for
from rewardlab.studies.perturbation_paper.equation import BINS, Condition, StudyConfig, Values, clipped

EPISODES, RIGHT, TAU, ORDERED, ERROR, GAPS = range(6)  # columns of the sums; one gap per bin follows from GAPS on
WIDTH = GAPS + BINS


def _sample_predictions(rng: Generator, truth: Values, scale: float, rho: float, out: Values) -> None:
    rng.standard_normal(out=out)
    noise, fresh = out[:, 0].copy(), np.sqrt(1 - rho**2)
    out[:, 0] = truth[0] + scale * noise
    for t in range(1, truth.size):
        noise = rho * noise + fresh * out[:, t]
        out[:, t] = truth[t] + scale * noise


def _median_of_three(first: Values, second: Values, third: Values) -> None:
    low, high = np.minimum(first, second), np.maximum(first, second)
    np.maximum(low, np.minimum(high, third), out=first)


def _tau_b_of_rows(predictions: Values) -> Values:
    """Return tau-b of each row; nan where all values are tied."""
    steps = np.ascontiguousarray(predictions.T)
    above, tied = np.zeros((2, len(predictions)), np.int64)
    for t in range(1, len(steps)):
        above += (steps[t] > steps[:t]).sum(axis=0)
        tied += (steps[t] == steps[:t]).sum(axis=0)
    pairs = len(steps) * (len(steps) - 1) // 2
    net = 2 * above + tied - pairs
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 where all are tied
        return np.where(tied == 0, net / pairs, net / np.sqrt((pairs - tied).astype(np.float64) * pairs))


def _accumulate_measures(predictions: Values, truth: Values, block: int, first: int, sums: Values) -> None:
    """Add in the order of the loop: within a block episode by episode, within an episode step by step."""
    share, count = 1 / truth.size, len(predictions)
    place = (first + np.arange(count)) // block
    right, error = np.zeros(count, np.int64), np.zeros(count)
    for t in range(truth.size):
        right += (predictions[:, t] > 0.5) == (truth[t] > 0.5)
        error += np.abs(predictions[:, t] - truth[t])
    said = np.minimum(np.maximum(predictions, 0.0), 1.0)
    gap = GAPS + np.minimum((said * BINS).astype(np.int64), BINS - 1)
    flat, row = sums.reshape(-1), place * sums.shape[1]
    np.add.at(flat, (row[:, None] + gap).reshape(-1), ((truth - said) * share).reshape(-1))
    tau = _tau_b_of_rows(predictions)
    known = ~np.isnan(tau)
    np.add.at(flat, row[known] + TAU, tau[known])
    np.add.at(flat, row[known] + ORDERED, 1.0)
    np.add.at(flat, row + EPISODES, 1.0)
    np.add.at(flat, row + RIGHT, right * share)
    np.add.at(flat, row + ERROR, error * share)


@compiled(_sample_predictions)
def sample_predictions(rng: Generator, truth: Values, scale: float, rho: float, out: Values) -> None:
    """Fill (episodes, steps) with true progress plus stationary noise; drawing here is twice as fast as in NumPy."""
    fresh = np.sqrt(1 - rho**2)
    for i in range(out.shape[0]):
        noise = rng.standard_normal()
        out[i, 0] = truth[0] + scale * noise
        for t in range(1, truth.size):
            noise = rho * noise + fresh * rng.standard_normal()
            out[i, t] = truth[t] + scale * noise


@compiled(_median_of_three)
def median_of_three(first: Values, second: Values, third: Values) -> None:
    """Put the middle of three members' predictions in place of the first's."""
    for i in range(first.shape[0]):
        for t in range(first.shape[1]):
            low, high = min(first[i, t], second[i, t]), max(first[i, t], second[i, t])
            first[i, t] = max(low, min(high, third[i, t]))


@compiled(lambda values: _tau_b_of_rows(values[None])[0])
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


@compiled(_accumulate_measures)
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
