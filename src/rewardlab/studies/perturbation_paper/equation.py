"""The simulated study: its configuration and closed forms."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.core.trial import CATEGORIES
from rewardlab.models.simulated import HIGHEST, LOWEST, NOISE, PAPER, RHO, Competence

Values = NDArray[np.float64]

TASKS = {"pick-place": 0.8, "pushing": 0.8, "stacking": 1.0, "insertion": 1.2, "assembly": 1.2}
TASK_SEVERITY = 3  # the severity of the paper's third figure
MEASURES = ("accuracy", "tau", "ece", "mae")


@dataclass(frozen=True)
class Condition:
    """One cell of the study; `factor` scales sigma for the difficulty of a task."""

    model: str
    category: str
    severity: int
    task: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class StudyConfig:
    """A study of Eq. 1: competence falls with severity, and noise around true progress grows as it falls."""

    models: Mapping[str, Competence] = field(default_factory=lambda: dict(PAPER))
    categories: tuple[str, ...] = ("visual", "semantic", "temporal", "domain")
    severities: tuple[int, ...] = (0, 1, 2, 3, 4)
    tasks: Mapping[str, float] = field(default_factory=lambda: dict(TASKS))  # how much harder than usual
    episodes: int = 500
    steps: int = 4
    rho: float = RHO
    noise: float = NOISE
    drift: float = 0.005  # standard deviation of competence around Eq. 1, drawn once per condition
    reliable_at: float = 0.70
    voters: str = "ensemble"  # the model whose three copies vote; no vote if there is none of that name
    correlation: float = 0.0  # of the errors of two members of the vote

    def __post_init__(self) -> None:
        steps, unknown = self.severities, [name for name in self.categories if name not in CATEGORIES]
        rising = steps and min(steps) >= 0 and list(steps) == sorted(set(steps))
        factors = self.tasks.values()
        rules = (
            (self.models, "a study needs at least one model", "none"),
            (
                self.categories and not unknown,
                f"categories must be some of {', '.join(CATEGORIES)}",
                ", ".join(unknown) or "none",
            ),
            (rising, "severities must rise from 0 or more", ",".join(map(str, steps)) or "none"),
            (self.steps >= 2, "steps (T) must be at least 2, for one step has no order", self.steps),
            (self.episodes >= 2, "episodes must be at least 2, for one has no interval", self.episodes),
            (0 <= self.rho < 1, "rho must be from 0 up to but not 1, where the noise never changes", self.rho),
            (0 <= self.noise < math.inf, "noise (k) must be a number not below 0", self.noise),
            (0 <= self.drift < math.inf, "drift must be a number not below 0", self.drift),
            (0 < self.reliable_at < 1, "accuracy-threshold must lie between 0 and 1", self.reliable_at),
            (0 <= self.correlation <= 1, "correlation of the voters must be from 0 to 1", self.correlation),
            (all(0 <= f < math.inf for f in factors), "task factors must not be below 0", self.tasks),
        )
        for holds, expected, got in rules:
            if not holds:
                raise PlanError(f"{expected}, got {got}")
        for name, model in self.models.items():
            _check_model(name, model, self.categories)

    @property
    def truth(self) -> Values:
        """Return true progress at each step: the middles of equal parts of the task."""
        return (np.arange(self.steps) + 0.5) / self.steps

    @property
    def of_paper(self) -> bool:
        """Tell whether these are the models of the paper, whose numbers it states."""
        return dict(self.models) == PAPER and len(self.categories) == 4

    def conditions(self) -> Iterator[Condition]:
        """Yield every model in every category at every severity."""
        for name in self.models:
            for category in self.categories:
                yield from (Condition(name, category, severity) for severity in self.severities)

    def task_conditions(self) -> Iterator[Condition]:
        """Yield every model and task in every category, at the severity of the task figure."""
        for name in self.models:
            for task, factor in self.tasks.items():
                for category in self.categories:
                    yield Condition(name, category, self.task_severity, task, factor)

    @property
    def task_severity(self) -> int:
        """Return the severity at which tasks are compared."""
        return TASK_SEVERITY if TASK_SEVERITY in self.severities else max(self.severities)

    def centre(self, condition: Condition) -> float:
        """Return the competence of a condition before noise and clipping."""
        return self.models[condition.model].at(condition.category, condition.severity, condition.factor)

    def scale(self, competence: Values | float) -> Values:
        """Return the standard deviation of the noise around true progress."""
        return np.asarray(self.noise * (1 - np.asarray(competence, dtype=np.float64)))


def clipped(competence: Values | float) -> Values:
    """Return competence inside the bounds of Eq. 1."""
    return np.clip(np.asarray(competence, dtype=np.float64), LOWEST, HIGHEST)


def _check_model(name: str, model: Competence, categories: tuple[str, ...]) -> None:
    missing = [category for category in categories if category not in model.sigma]
    if missing:
        raise PlanError(f"model {name!r} has no sigma for {', '.join(missing)}; give one per category of the study")
    if not LOWEST <= model.alpha <= HIGHEST:
        raise PlanError(f"alpha of {name!r} must be from {LOWEST} to {HIGHEST}, got {model.alpha}")
    for category in categories:
        if not 0 <= model.sigma[category] < math.inf:
            raise PlanError(f"sigma of {name!r} in {category} must not be below 0, got {model.sigma[category]}")


# What a condition gives on average, without sampling; each function takes many noise scales at once.

BINS = 10  # equal bins of predicted progress for the calibration error
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_SMALLEST = 1e-12  # stands in for a scale of nothing where a formula divides by it


def closed_form(study: StudyConfig, competence: Values) -> dict[str, Values]:
    """Return accuracy, tau, calibration error and mean absolute error at each competence."""
    scale = study.scale(competence)
    return {
        "accuracy": accuracy(scale, study.truth),
        "tau": tau(scale, study.steps, study.rho),
        "ece": calibration_error(scale, study.truth),
        "mae": scale * np.sqrt(2 / np.pi),
    }


def mean_over_drift(study: StudyConfig, centre: Values) -> dict[str, tuple[Values, Values]]:
    """Return mean and standard deviation of each closed form over the noise that Eq. 1 adds to competence."""
    drawn = clipped(centre[..., None] + study.drift * _NODES)
    weights = _WEIGHTS / _WEIGHTS.sum()
    found = {}
    for name, values in closed_form(study, drawn).items():
        mean = values @ weights
        found[name] = (mean, np.sqrt(np.maximum((values**2) @ weights - mean**2, 0)))
    return found


def accuracy(scale: Values, truth: Values) -> Values:
    """Return the chance that a step is put on its side of one half, averaged over steps."""
    return np.asarray(1 - step_error_rates(scale, truth).mean(axis=-1))


def step_error_rates(scale: Values, truth: Values) -> Values:
    """Return the chance of a wrong side per step (last axis); a noiseless model is never wrong."""
    from scipy.special import ndtr

    margin = np.abs(truth - 0.5)
    wide = np.asarray(scale, dtype=np.float64)[..., None]
    return np.where(wide > 0, np.asarray(ndtr(-margin / np.maximum(wide, _SMALLEST))), 0.0)


def tau(scale: Values, steps: int, rho: float) -> Values:
    """Return the expected tau-b of an evenly rising episode: pairs that lie equally far apart are alike."""
    from scipy.special import ndtr

    lag = np.arange(1, steps)
    spread = np.maximum(np.asarray(scale)[..., None], _SMALLEST) * np.sqrt(2 * (1 - rho**lag))
    ordered = 2 * ndtr(lag / steps / spread) - 1
    pairs = (steps - lag) / (steps * (steps - 1) / 2)
    return np.asarray(ordered @ pairs)


def calibration_error(scale: Values, truth: Values) -> Values:
    """Return how far true progress lies from predicted progress, cut to [0, 1], on average over bins of the latter."""
    from scipy.special import ndtr

    wide = np.maximum(np.asarray(scale, dtype=np.float64), _SMALLEST)[..., None, None]
    z = (np.linspace(0, 1, BINS + 1) - truth[:, None]) / wide
    below, density = ndtr(z), np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    above = ndtr(-z[..., -1])
    mass = np.diff(below, axis=-1)
    said = truth[:, None] * mass - wide * np.diff(density, axis=-1)
    mass[..., 0] += below[..., 0]  # predictions below 0 count as 0
    mass[..., -1] += above  # and those above 1 as 1
    said[..., -1] += above
    return np.asarray(np.abs((truth[:, None] * mass - said).mean(axis=-2)).sum(axis=-1))


def vote_accuracy(scale: Values, truth: Values, correlation: float) -> Values:
    """Return the accuracy of the majority of three alike members whose errors are correlated."""
    from scipy.special import ndtr

    if correlation == 1:
        return accuracy(scale, truth)
    margin = np.abs(truth - 0.5) / np.maximum(np.asarray(scale, dtype=np.float64)[..., None], _SMALLEST)
    shared = np.linspace(-8.5, 8.5, 4001)
    weight = np.exp(-(shared**2) / 2)
    wrong = ndtr((np.sqrt(correlation) * shared - margin[..., None]) / np.sqrt(1 - correlation))
    lost = (3 * wrong**2 - 2 * wrong**3) @ (weight / weight.sum())
    return np.asarray(1 - lost.mean(axis=-1))
