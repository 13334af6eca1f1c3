"""Certified severity thresholds over-claim in under 5 % of simulated studies."""

import numpy as np
import pytest
from scipy.special import betaincinv

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.robustness import certified_threshold

LEAST, CLUSTERS, SIZE, CORRELATION = 0.70, 50, 10, 0.2
STUDIES = 1000


def claimed(curve: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the measured and the certified threshold of many studies whose true success accuracy is this curve."""
    draws = draw_clusters(CLUSTERS, 400, seed=0)
    counts = np.full((5, CLUSTERS), float(SIZE))
    spread = (1 - CORRELATION) / CORRELATION
    found = []
    for number in range(STUDIES):
        rng = rng_for(number, "certified", *(round(1000 * a) for a in curve))
        ease = rng.random(CLUSTERS)  # a task is hard or easy at every severity: its copies move together
        chance = np.array([betaincinv(a * spread, (1 - a) * spread, ease) for a in curve])
        right = rng.binomial(SIZE, chance).astype(float)
        reached = certified_threshold(right, counts, draws, LEAST)
        found.append((reached.measured, reached.certified))
    measured, certified = np.array(found).T
    return measured, certified


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "true"),
    [
        ((0.90, 0.86, 0.82, 0.75, 0.60), 3),
        ((0.90, 0.80, 0.69, 0.60, 0.50), 1),  # just below the line at severity 2
        ((0.69, 0.69, 0.69, 0.69, 0.69), -1),  # just below the line everywhere
        ((0.95, 0.90, 0.69, 0.95, 0.95), 1),  # a dip that a sound rule may not jump
    ],
)
def test_a_certified_threshold_over_claims_in_under_five_percent_of_studies(
    curve: tuple[float, ...], true: int
) -> None:
    measured, certified = claimed(curve)
    assert np.mean(certified > true) < 0.05
    assert (certified <= measured).all()


def test_a_clearly_reliable_model_is_certified_to_the_end() -> None:
    _, certified = claimed((0.93, 0.92, 0.92, 0.91, 0.90))
    assert np.mean(certified == 4) > 0.95
