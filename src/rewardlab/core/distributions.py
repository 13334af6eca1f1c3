"""Distributions: normal, Student's t with whole degrees of freedom, a fair coin, Poisson."""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
NORMAL_95 = 1.959963984540054  # standard deviations on either side that hold 95 % of a normal distribution
_LOWEST, _CLOSE = 1e-300, 3e-16  # stands for 0 in a continued fraction; where it has converged
# Of gamma((n + 1) / 2) / gamma(n / 2) / sqrt(n / 2) in powers of 1 / n, from the second.
_GAMMA_RATIO = (-1 / 4, 1 / 32, 5 / 128, -21 / 2048, -399 / 8192, 869 / 65536, 39325 / 262144)


def normal_cdf(x: float) -> float:
    """Return the chance of a standard normal number up to x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def normal_quantile(chance: float) -> float:
    """Return the standard normal number that others stay below with this chance, above 0 and below 1."""
    return NormalDist().inv_cdf(chance)


def student_t_cdf(df: int, t: float) -> float:
    """Return the chance of a number of Student's t distribution up to t."""
    upper = _upper_tail(df, abs(t))
    return 1 - upper if t > 0 else upper


@lru_cache(maxsize=4096)
def student_t_quantile(df: int, chance: float) -> float:
    """Return the number that others of Student's t distribution stay below with this chance, above 0 and below 1."""
    if chance == 0.5:
        return 0.0
    tail = min(chance, 1 - chance)
    if df == 1:
        t = 1 / math.tan(math.pi * tail)
    elif df == 2:
        t = (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    else:
        t = _solve(df, tail)
    return math.copysign(t, chance - 0.5)


def student_t_quantiles(df: Numbers, chance: float) -> Numbers:
    """Return the quantile for each number of degrees of freedom, of which few differ."""
    values, place = np.unique(df, return_inverse=True)
    return np.array([student_t_quantile(int(value), chance) for value in values.tolist()], np.float64)[place]


def _solve(df: int, tail: float) -> float:
    """Return where the upper tail is as large: Newton's steps on its logarithm from the expansion for many degrees."""
    z = -normal_quantile(tail)
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    for _ in range(60):
        found = _upper_tail(df, t)
        step = math.log(found / tail) * found / _density(df, t)
        t = max(t + step, t / 2)
        if abs(step) <= 1e-8 * t:  # the next one would be the square of it
            break
    return t


def _density(df: int, t: float) -> float:
    return _peak(df) * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))


@lru_cache(maxsize=4096)
def _peak(df: int) -> float:
    """Return the density at 0: gamma((n + 1) / 2) / gamma(n / 2) / sqrt(n pi)."""
    if df >= 64:
        series: float = 1 + sum(part / float(df) ** power for power, part in enumerate(_GAMMA_RATIO, 1))
        return series / math.sqrt(2 * math.pi)
    ratio = 1 / math.pi if df % 2 else 1 / (2 * math.sqrt(2))
    for n in range(2 - df % 2, df, 2):
        ratio *= (n + 1) / math.sqrt(n * (n + 2))
    return ratio


def _upper_tail(df: int, t: float) -> float:
    """Return the chance of a number above t, which is not negative: half an incomplete beta function."""
    near, far = t * t / (df + t * t), df / (df + t * t)
    front = _density(df, t) * t
    if t * t < 3 or (df > 200 and t < 2.5):  # later little is left of the difference; before, the other is slow
        return 0.5 - front * _continued_fraction(0.5, df / 2, near)
    return front * _continued_fraction(df / 2, 0.5, far) / df


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return the incomplete beta function over x^a (1 - x)^b / a, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + part * d)
            c = _not_zero(1 + part / c)
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _not_zero(number: float) -> float:
    return number if abs(number) > _LOWEST else _LOWEST


def fair_binomial_cdf(most: int, trials: int) -> float:
    """Return the chance of at most so many heads of a fair coin."""
    if most >= trials:
        return 1.0
    if 2 * most >= trials:
        return 1 - fair_binomial_cdf(trials - most - 1, trials)
    term = math.comb(trials, most) / 2**trials if most >= 0 else 0.0
    total = term
    for heads in range(most, 0, -1):
        term *= heads / (trials - heads + 1)
        total += term
        if term < _CLOSE * total:
            break
    return total


def poisson_cdf(counts: int, means: Numbers) -> Numbers:
    """Return the chance of at most 0, 1, ... `counts - 1` events under each mean below 700, (means, counts)."""
    ratios = means.reshape(-1, 1) / np.maximum(np.arange(counts), 1)
    ratios[:, 0] = np.exp(-means.reshape(-1))
    chances: Numbers = np.minimum(np.cumsum(np.cumprod(ratios, axis=1), axis=1), 1.0)
    return chances
