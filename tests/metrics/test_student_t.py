"""Quantiles of Student's t against scipy."""

import pytest
from scipy.special import ndtr, stdtrit

from rewardlab.metrics.student_t import normal_cdf, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4.5, 9, 30, 199, 997, 25_000])
@pytest.mark.parametrize("share", [1e-6, 0.005, 0.025, 0.3, 0.5, 0.9, 0.975])
def test_quantiles_are_those_of_scipy(freedom: float, share: float) -> None:
    assert student_quantile(freedom, share) == pytest.approx(float(stdtrit(freedom, share)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("value", [-8.0, -1.96, 0.0, 0.3, 2.5])
def test_the_normal_distribution_function_is_that_of_scipy(value: float) -> None:
    assert normal_cdf(value) == pytest.approx(float(ndtr(value)), rel=1e-12)
