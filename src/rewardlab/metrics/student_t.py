"""Quantiles of Student's t and the normal distribution function; to load scipy takes longer than a report's numbers."""

import math
from functools import lru_cache

_MOST_STEPS = 1_000
_EXACT = 1e-15
_TINY = 1e-300


def normal_cdf(value: float) -> float:
    """Return the share of a standard normal distribution below a value."""
    return math.erfc(-value / math.sqrt(2)) / 2


@lru_cache(maxsize=10_000)
def student_quantile(freedom: float, share: float) -> float:
    """Return the value below which this share of Student's t with so many degrees of freedom lies."""
    if share > 0.5:
        return -student_quantile(freedom, 1 - share)
    low, high = -1.0, 0.0
    while student_cdf(freedom, low) > share:
        low, high = 2 * low, low
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return middle
        low, high = (middle, high) if student_cdf(freedom, middle) < share else (low, middle)


def student_cdf(freedom: float, value: float) -> float:
    """Return the share of Student's t below a value of at most 0."""
    square = value * value
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square)) / 2


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularised incomplete beta function at x, `rest` being 1 - x, by its continued fraction."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(logs) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction, by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _MOST_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d, c = 1 / _nonzero(1 + step * d), _nonzero(1 + step / c)
            total *= d * c
        if abs(d * c - 1) < _EXACT:
            break
    return total


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
