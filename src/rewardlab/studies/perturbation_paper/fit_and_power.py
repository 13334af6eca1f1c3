"""Fit the equation to your accuracies; how many episodes certify a level."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import CATEGORIES, CLEAN
from rewardlab.models.simulated import HIGHEST, LOWEST, PAPER, Competence
from rewardlab.studies.perturbation_paper.equation import Condition, StudyConfig, Values, accuracy, clipped
from rewardlab.studies.perturbation_paper.sampler import prediction_batches

COLUMNS = ("model", "category", "severity", "accuracy")


@dataclass(frozen=True)
class MeasuredAccuracy:
    """One line of the table: the accuracy of a model in a category at a severity."""

    model: str
    category: str
    severity: int
    accuracy: float


@dataclass(frozen=True)
class FittedCompetence:
    """Eq. 1 for one model: its numbers, their standard errors (nan if there is no line to spare), and the misfit."""

    competence: Competence
    errors: dict[str, float]  # of each sigma, by category, and of "alpha"
    largest_misfit: float
    lines: int


def read_table(path: Path) -> list[MeasuredAccuracy]:
    """Read model,category,severity,accuracy; every bad line is refused with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path} must begin with the line {','.join(COLUMNS)}; it lacks {', '.join(missing)}")
            lines = [_measured(row, path, number) for number, row in enumerate(reader, start=2)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}; --fit takes a CSV file") from error
    if not lines:
        raise DataError(f"{path} holds no line below its heading; give at least one accuracy")
    return lines


def _measured(row: dict[str, str | None], path: Path, number: int) -> MeasuredAccuracy:
    model, category, severity, value = ((row[name] or "").strip() for name in COLUMNS)
    if not model:
        raise DataError(f"{path} line {number}: the model has no name")
    if category not in CATEGORIES and not (category == CLEAN and severity == "0"):
        raise DataError(
            f"{path} line {number}: category must be one of {', '.join(CATEGORIES)} "
            f"(or {CLEAN} at severity 0), got {category!r}"
        )
    if not severity.isdecimal():
        raise DataError(f"{path} line {number}: severity must be a whole number of 0 or more, got {severity!r}")
    try:
        number_read = float(value)
    except ValueError:
        number_read = math.nan
    if not 0 <= number_read <= 1:
        raise DataError(f"{path} line {number}: accuracy must be a number from 0 to 1, got {value!r}")
    return MeasuredAccuracy(model, category, int(severity), number_read)


def fit_models(lines: Iterable[MeasuredAccuracy], study: StudyConfig) -> dict[str, FittedCompetence]:
    """Fit every model of a table under the noise of this study; each needs lines for the same categories."""
    by_model: dict[str, list[MeasuredAccuracy]] = {}
    for line in lines:
        by_model.setdefault(line.model, []).append(line)
    every = [line for found in by_model.values() for line in found]
    categories: list[str] = [c for c in CATEGORIES if any(_informs(line, c) for line in every)]
    if not categories:
        raise DataError("the table holds only severity 0; give accuracies at a severity above 0 to fit a sigma")
    return {model: _fit(model, found, categories, study) for model, found in by_model.items()}


def _informs(line: MeasuredAccuracy, category: str) -> bool:
    return line.category == category and line.severity > 0


def _fit(model: str, lines: list[MeasuredAccuracy], categories: list[str], study: StudyConfig) -> FittedCompetence:
    from scipy.optimize import least_squares

    missing = [c for c in categories if not any(_informs(line, c) for line in lines)]
    if missing:
        raise DataError(f"model {model!r} has no accuracy above severity 0 in {', '.join(missing)}; add one of each")
    known = None if any(line.severity == 0 for line in lines) else PAPER.get(model)
    unknowns = len(categories) + (known is None)
    if len(lines) < unknowns:
        raise DataError(
            f"model {model!r} has {len(lines)} lines for {unknowns} unknowns (alpha and a sigma per category); "
            f"add its accuracy at severity 0 as {model},{CLEAN},0,..."
        )
    measured = np.array([line.accuracy for line in lines])

    def misfit(numbers: Values) -> Values:
        return np.asarray(_expected(lines, categories, _alpha_first(numbers, known), study) - measured)

    start = np.r_[[] if known else [0.8], np.full(len(categories), 0.04)]
    low = np.r_[[] if known else [LOWEST], np.zeros(len(categories))]
    high = np.r_[[] if known else [HIGHEST], np.ones(len(categories))]
    found = least_squares(misfit, start, bounds=(low, high), x_scale=0.05, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    numbers, errors = _alpha_first(found.x, known), _standard_errors(found.jac, found.fun)
    names = categories if known else ["alpha", *categories]
    competence = Competence(float(numbers[0]), dict(zip(categories, numbers[1:].tolist(), strict=True)))
    largest = float(np.abs(found.fun).max())
    return FittedCompetence(competence, dict(zip(names, errors, strict=True)), largest, len(lines))


def _alpha_first(numbers: Values, known: Competence | None) -> Values:
    return numbers if known is None else np.r_[known.alpha, numbers]


def _expected(lines: list[MeasuredAccuracy], categories: list[str], numbers: Values, study: StudyConfig) -> Values:
    sigma = np.array([0.0 if line.severity == 0 else numbers[1 + categories.index(line.category)] for line in lines])
    severity = np.array([line.severity for line in lines], dtype=np.float64)
    return accuracy(study.scale(clipped(numbers[0] - sigma * severity)), study.truth)


def _standard_errors(jacobian: Values, misfit: Values) -> list[float]:
    """Return the errors that the scatter around the fit implies."""
    spare = len(misfit) - jacobian.shape[1]
    if spare < 1 or np.linalg.matrix_rank(jacobian) < jacobian.shape[1]:
        return [math.nan] * jacobian.shape[1]
    covariance = np.linalg.inv(jacobian.T @ jacobian) * (misfit @ misfit) / spare
    return [float(value) for value in np.sqrt(np.diag(covariance))]


# How many episodes a study needs to certify a level of accuracy, found by simulating studies.

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
    from scipy.special import stdtrit

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
    from scipy.special import ndtri

    values = np.linspace(0, 1, len(shares))
    mean = shares @ values
    variance = shares @ values**2 - mean**2
    gap = abs(mean - level)
    quantiles = float(ndtri(CONFIDENCE) + ndtri(POWER))
    return float(quantiles**2 * variance / gap**2) if gap else math.inf


def _false_rate(study: StudyConfig, episodes: int | None, rng: Generator, *, reliable: bool) -> float:
    """Return how often a model exactly at the level would be certified by a study of this size."""

    from scipy.optimize import brentq

    def excess(competence: float) -> float:
        return float(accuracy(study.scale(competence), study.truth)) - study.reliable_at

    if episodes is None or excess(LOWEST) * excess(HIGHEST) > 0:
        return math.nan
    borderline = float(brentq(excess, LOWEST, HIGHEST))
    return certified_share(
        correct_step_shares(study, borderline, rng), episodes, study.reliable_at, rng, reliable=reliable
    )
