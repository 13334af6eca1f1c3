"""Distributions of our own against those of SciPy, which the core does without."""

import numpy as np
import pytest
from scipy import special

from rewardlab.core.distributions import (
    fair_binomial_cdf,
    normal_cdf,
    normal_quantile,
    poisson_cdf,
    student_t_cdf,
    student_t_quantile,
    student_t_quantiles,
)

DEGREES = (1, 2, 3, 4, 5, 9, 30, 63, 64, 65, 199, 200, 201, 599, 2830, 100_000)


def test_the_normal_distribution_and_its_inverse_are_scipys() -> None:
    for x in np.linspace(-8, 8, 161).tolist():
        assert normal_cdf(x) == pytest.approx(float(special.ndtr(x)), rel=1e-13, abs=0)
    for chance in (1e-12, 1e-5, 0.024, 0.025, 0.5, 0.8, 0.975, 1 - 1e-9):
        assert normal_quantile(chance) == pytest.approx(float(special.ndtri(chance)), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("df", DEGREES)
def test_students_t_and_its_inverse_are_scipys(df: int) -> None:
    for t in (-9.0, -4.0, -1.96, -0.3, 0.0, 1e-4, 0.7, 1.8, 2.5):
        assert student_t_cdf(df, t) == pytest.approx(float(special.stdtr(df, t)), rel=1e-11, abs=0)
    for chance in (1e-4, 0.025, 0.05, 0.4, 0.5, 0.8, 0.975):
        expected = float(special.stdtrit(df, chance))
        assert student_t_quantile(df, chance) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_quantiles_of_many_degrees_are_those_of_each() -> None:
    degrees = np.array([7.0, 1.0, 7.0, 300.0])
    assert student_t_quantiles(degrees, 0.025).tolist() == [student_t_quantile(int(df), 0.025) for df in degrees]


@pytest.mark.parametrize("trials", [0, 1, 2, 9, 50, 51, 2001, 20_000])
def test_heads_of_a_fair_coin_are_those_of_scipy(trials: int) -> None:
    for most in {0, trials // 3, max(trials // 2 - 1, 0), trials // 2, min(trials // 2 + 1, trials), trials}:
        assert fair_binomial_cdf(most, trials) == pytest.approx(float(special.bdtr(most, trials, 0.5)), rel=1e-9)


def test_poisson_chances_are_scipys() -> None:
    means = np.array([0.0, 0.01, 1.0, 12.5, 255.0])
    expected = special.pdtr(np.arange(400), means[:, None])
    np.testing.assert_allclose(poisson_cdf(400, means), expected, rtol=0, atol=1e-13)
