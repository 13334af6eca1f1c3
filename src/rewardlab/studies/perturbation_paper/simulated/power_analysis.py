"""How many episodes a study needs to certify a level of accuracy, found by simulating studies."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from rewardlab.core.seeding import rng_for
from rewardlab.models.simulated import HIGHEST, LOWEST
from rewardlab.studies.perturbation_paper.simulated.closed_form import accuracy
from rewardlab.studies.perturbation_paper.simulated.sampler import prediction_batches
from rewardlab.studies.perturbation_paper.simulated.study_config import Condition, StudyConfig, Values, clipped

CONFIDENCE, POWER = 0.95, 0.80
FEWEST, MOST = 30, 1_000_000  # a bound from fewer episodes than 30 cannot be trusted
STUDIES = 4_000  # simulated per size
_POOL = 200_000  # episodes from which the shares of right steps are taken


@dataclass(frozen=True)
class SampleSize:
    """The episodes that certify one condition as reliable or unreliable; None if a million are not enough."""

    condition: Condition
    accuracy: float
    reliable: bool
    episodes: int | None
    by_formula: float  # the same from the normal approximation
    false_rate: float  # certificates of that size given to a model exactly at the level; nan if there is no such model


def required_sample_sizes(study: StudyConfig, seed: int) -> list[SampleSize]:
    """Return what each model and category needs at the highest severity of the study."""
    worst = max(study.severities)
    return [_sample_size(study, Condition(m, c, worst), seed) for m in study.models for c in study.categories]


def _sample_size(study: StudyConfig, condition: Condition, seed: int) -> SampleSize:
    rng = rng_for(seed, "power", condition.model, condition.category, condition.severity)
    centre = float(clipped(study.centre(condition)))
    exact = float(accuracy(study.scale(centre), study.truth))
    reliable = exact >= study.reliable_at
    shares = correct_step_shares(study, centre, rng)
    episodes = smallest_sample_size(shares, study.reliable_at, rng, reliable=reliable)
    return SampleSize(
        condition,
        exact,
        reliable,
        episodes,
        by_formula=_normal_approximation(shares, study.reliable_at),
        false_rate=_false_rate(study, episodes, rng, reliable=reliable),
    )


def correct_step_shares(study: StudyConfig, competence: float, rng: Generator) -> Values:
    """Return the shares of episodes with 0, 1, ... steps on the right side of one half, by simulation."""
    counts = np.zeros(study.steps + 1)
    drawn, side = 0, study.truth > 0.5
    while drawn < _POOL:
        for part in prediction_batches(study, competence, rng):
            counts += np.bincount(((part > 0.5) == side).sum(axis=1), minlength=study.steps + 1)
            drawn += len(part)
    return np.asarray(counts / counts.sum())


def certified_share(shares: Values, episodes: int, level: float, rng: Generator, *, reliable: bool) -> float:
    """Return the share of studies of this size whose one-sided bound lies beyond the level."""
    counts = rng.multinomial(episodes, shares, size=STUDIES)
    values = np.linspace(0, 1, len(shares))
    mean = counts @ values / episodes
    spread = np.sqrt(np.maximum(counts @ values**2 / episodes - mean**2, 0) / (episodes - 1))
    margin = float(stdtrit(episodes - 1, CONFIDENCE)) * spread
    beyond = mean - margin > level if reliable else mean + margin < level
    return float(beyond.mean())


def smallest_sample_size(shares: Values, level: float, rng: Generator, *, reliable: bool) -> int | None:
    """Return the smallest size, to about one in a hundred, at which enough studies certify the level."""
    low, high = FEWEST, FEWEST
    while certified_share(shares, high, level, rng, reliable=reliable) < POWER:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if certified_share(shares, middle, level, rng, reliable=reliable) < POWER:
            low = middle
        else:
            high = middle
    return high


def _normal_approximation(shares: Values, level: float) -> float:
    values = np.linspace(0, 1, len(shares))
    mean = shares @ values
    variance = shares @ values**2 - mean**2
    gap = abs(mean - level)
    quantiles = float(ndtri(CONFIDENCE) + ndtri(POWER))
    return float(quantiles**2 * variance / gap**2) if gap else math.inf


def _false_rate(study: StudyConfig, episodes: int | None, rng: Generator, *, reliable: bool) -> float:
    """Return how often a model exactly at the level would be certified by a study of this size."""

    def excess(competence: float) -> float:
        return float(accuracy(study.scale(competence), study.truth)) - study.reliable_at

    if episodes is None or excess(LOWEST) * excess(HIGHEST) > 0:
        return math.nan
    borderline = float(brentq(excess, LOWEST, HIGHEST))
    return certified_share(
        correct_step_shares(study, borderline, rng), episodes, study.reliable_at, rng, reliable=reliable
    )
