"""The settings of the commands that score or perturb: which models, data, perturbations and severities, and how."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.errors import PlanError
from rewardlab.core.settings import setting
from rewardlab.models.contract import Budget

DEFAULT_CONTROLS = ("constant", "random", "clock", "oracle")

# What every command that scores can be told, by the same words: help and default.
_SCORING: dict[str, tuple[str, Any]] = {
    "seed": ("seed of everything drawn by chance", 0),
    "limit": ("use only the first N episodes", None),
    "skip_bad": ("leave out rows and videos with problems instead of stopping", False),
    "retry_failures": ("score cells again that failed in an earlier attempt", False),
    "workers": ("processes; 0 takes one per core", 0),
    "batch": ("episodes given to a model at once", 8),
    "timeout": ("seconds a model may take for one batch before it is stopped", 120.0),
    "load_timeout": ("seconds the models may take to load", 900.0),
    "max_requests": ("stop before more than N requests to paid models", None),
    "max_cost": ("stop before paid models have cost more than this", None),
    "out": ("run folder; by default runs/ plus a name made from the plan", None),
}
_FRAMES = "frames shown to the model: uniform:N, fps:X or all"


def _scoring(name: str) -> Any:
    return setting(*_SCORING[name])


@dataclass(frozen=True)
class StressPlan:
    """Perturb a dataset, score it with models, measure what breaks, and write a report."""

    models: tuple[str, ...] = setting("models to judge, e.g. clock or package.module:name", positional=True)
    data: str = setting(
        "dataset folder (metadata.jsonl beside videos) or a shipped name such as sample", positional=True
    )
    perturbations: tuple[str, ...] = setting(
        "names, categories (visual, semantic, temporal, domain), all or none", ("all",)
    )
    severities: tuple[int, ...] = setting("severities to apply; the clean episode is always scored", (1, 2, 3, 4))
    seed: int = _scoring("seed")
    frames: str = setting(_FRAMES, "uniform:16")
    limit: int | None = _scoring("limit")
    controls: bool = setting("score the controls constant, random, clock and oracle too", True)
    reliable_at: float = setting("success accuracy below which a model counts as unreliable", 0.70)
    skip_bad: bool = _scoring("skip_bad")
    retry_failures: bool = _scoring("retry_failures")
    workers: int = _scoring("workers")
    batch: int = _scoring("batch")
    timeout: float = _scoring("timeout")
    load_timeout: float = _scoring("load_timeout")
    max_requests: int | None = _scoring("max_requests")
    max_cost: float | None = _scoring("max_cost")
    out: Path | None = _scoring("out")

    def budget(self, folder: Path) -> Budget:
        """Return what models may spend; what they paid for is written down in the run folder."""
        return Budget(self.max_requests, self.max_cost, folder)

    def patience(self) -> tuple[float, float]:
        """Return the seconds that models may take to load, and for one batch."""
        return self.load_timeout, self.timeout

    def __post_init__(self) -> None:
        if not self.models:
            raise PlanError("name at least one model, e.g. `rewardlab stress clock sample`")
        _check_selection(self.perturbations, self.severities, self.limit)
        if not 0 <= self.reliable_at <= 1:
            raise PlanError(f"reliable-at must be from 0 to 1, got {self.reliable_at}")
        if self.batch < 1 or self.workers < 0:
            raise PlanError(f"batch must be at least 1 and workers not negative, got {self.batch} and {self.workers}")
        if not all(0 < seconds < math.inf for seconds in self.patience()):
            raise PlanError(f"timeout and load-timeout must be seconds above 0, got {self.patience()[::-1]}")
        if (self.max_requests or 0) < 0 or not 0 <= (self.max_cost or 0) < math.inf:
            raise PlanError("max-requests and max-cost must be 0 or more; leave out what has no limit")

    def all_models(self) -> tuple[str, ...]:
        """Return the models and the controls, each once."""
        return tuple(dict.fromkeys((*self.models, *(DEFAULT_CONTROLS if self.controls else ()))))


@dataclass(frozen=True)
class BenchPlan:
    """Score clean episodes by the RoboRewardBench protocol and tell the error per subset and over all."""

    models: tuple[str, ...] = setting("models to judge, e.g. clock or package.module:name", positional=True)
    data: str = setting(
        "a copy of teetone/RoboReward (or one of its splits), any dataset folder, a shipped name such as sample, "
        "or hub:teetone/RoboReward to fetch it",
        positional=True,
    )
    split: str = setting("the split to judge where DATA holds several", "test")
    frames: str = setting(_FRAMES, "fps:1")
    controls: bool = setting("score the controls constant, random, clock and oracle too", True)
    duplicates: bool = setting("look for videos that are there twice, or nearly", True)
    against: str | None = setting("training set in which to look for the judged videos", None)
    seed: int = _scoring("seed")
    limit: int | None = _scoring("limit")
    skip_bad: bool = _scoring("skip_bad")
    retry_failures: bool = _scoring("retry_failures")
    workers: int = _scoring("workers")
    batch: int = _scoring("batch")
    timeout: float = _scoring("timeout")
    load_timeout: float = _scoring("load_timeout")
    max_requests: int | None = _scoring("max_requests")
    max_cost: float | None = _scoring("max_cost")
    out: Path | None = _scoring("out")

    def scoring(self, data: str) -> StressPlan:
        """Return the stress test without perturbations that scores these models on this split."""
        return _clean(self, self.models, data, self.frames, controls=self.controls)


@dataclass(frozen=True)
class CalibratePlan:
    """Fit what makes a model's answers mean what they say; afterwards MODEL+FOLDER is the calibrated model."""

    model: str = setting("the model to calibrate", positional=True)
    data: str = setting("dataset folder or a shipped name; not the data the model is judged on later", positional=True)
    coverage: float = setting("share of episodes whose true level the set of levels must hold", 0.9)
    frames: str = setting(_FRAMES, "uniform:16")
    seed: int = _scoring("seed")
    limit: int | None = _scoring("limit")
    skip_bad: bool = _scoring("skip_bad")
    retry_failures: bool = _scoring("retry_failures")
    workers: int = _scoring("workers")
    batch: int = _scoring("batch")
    timeout: float = _scoring("timeout")
    load_timeout: float = _scoring("load_timeout")
    max_requests: int | None = _scoring("max_requests")
    max_cost: float | None = _scoring("max_cost")
    out: Path | None = _scoring("out")

    def __post_init__(self) -> None:
        if not 0 < self.coverage < 1:
            raise PlanError(f"coverage must be above 0 and below 1, got {self.coverage}")

    def scoring(self) -> StressPlan:
        """Return the stress test without perturbations that scores the model."""
        return _clean(self, (self.model,), self.data, self.frames, controls=False)


def _clean(
    plan: BenchPlan | CalibratePlan, models: tuple[str, ...], data: str, frames: str, *, controls: bool
) -> StressPlan:
    same = {name: vars(plan)[name] for name in _SCORING}
    return StressPlan(models, data, ("none",), (0,), frames=frames, controls=controls, **same)


@dataclass(frozen=True)
class PerturbPlan:
    """Write perturbed copies of a dataset, or contact sheets that show what a perturbation does."""

    data: str = setting("dataset folder or a shipped name such as sample", positional=True)
    perturbations: tuple[str, ...] = setting("names, categories (visual, semantic, temporal, domain) or all", ("all",))
    severities: tuple[int, ...] = setting("severities to write", (1, 2, 3, 4))
    seed: int = setting("seed of everything drawn by chance", 0)
    limit: int | None = setting("use only the first N episodes; a sheet shows one episode unless this says more", None)
    sheet: bool = setting("write one contact sheet (PNG) per perturbation instead of copies", False)
    out: Path = setting("folder to write to", Path("perturbed"))

    def __post_init__(self) -> None:
        _check_selection(self.perturbations, self.severities, self.limit)


def _check_selection(perturbations: tuple[str, ...], severities: tuple[int, ...], limit: int | None) -> None:
    if not perturbations:
        raise PlanError("name at least one perturbation, a category, or all")
    if not severities or any(severity not in (0, 1, 2, 3, 4) for severity in severities):
        raise PlanError(f"severities must be among 0, 1, 2, 3, 4, got {severities}")
    if limit is not None and limit < 1:
        raise PlanError(f"limit must be at least 1, got {limit}")
