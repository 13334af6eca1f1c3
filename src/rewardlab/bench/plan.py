"""The settings of the commands that perturb: which models, data, perturbations and severities, and how."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.errors import PlanError
from rewardlab.core.settings import setting
from rewardlab.models.contract import Purse

DEFAULT_CONTROLS = ("constant", "random", "clock", "oracle")


@dataclass(frozen=True)
class StressPlan:
    """Perturb a dataset, score it with models, measure what breaks, and write a report."""

    models: tuple[str, ...] = setting("models to judge, e.g. clock or package.module:name", positional=True)
    data: str = setting(
        "dataset folder (metadata.jsonl beside videos) or a shipped name such as sample", positional=True
    )
    perturbations: tuple[str, ...] = setting("names, categories (visual, semantic, temporal, domain) or all", ("all",))
    severities: tuple[int, ...] = setting("severities to apply; the clean episode is always scored", (1, 2, 3, 4))
    seed: int = setting("seed of everything drawn by chance", 0)
    frames: str = setting("frames shown to the model: uniform:N, fps:X or all", "uniform:16")
    limit: int | None = setting("use only the first N episodes", None)
    controls: bool = setting("score the controls constant, random, clock and oracle too", True)
    reliable_at: float = setting("success accuracy below which a model counts as unreliable", 0.70)
    skip_bad: bool = setting("leave out rows and videos with problems instead of stopping", False)
    retry_failures: bool = setting("score cells again that failed in an earlier attempt", False)
    workers: int = setting("processes; 0 takes one per core", 0)
    batch: int = setting("episodes given to a model at once", 8)
    timeout: float = setting("seconds a model may take for one batch before it is stopped", 120.0)
    load_timeout: float = setting("seconds the models may take to load", 900.0)
    max_requests: int | None = setting("stop before more than N requests to paid models", None)
    max_cost: float | None = setting("stop before paid models have cost more than this", None)
    out: Path | None = setting("run folder; by default runs/ plus a name made from the plan", None)

    def purse(self, folder: Path) -> Purse:
        """Return what models may spend; what they paid for is written down in the run folder."""
        return Purse(self.max_requests, self.max_cost, folder)

    def patience(self) -> tuple[float, float]:
        """Return the seconds that models may take to load, and for one batch."""
        return self.load_timeout, self.timeout

    def __post_init__(self) -> None:
        if not self.models:
            raise PlanError("name at least one model, e.g. `rewardlab stress clock sample`")
        _check_selection(self.perturbations, self.severities, self.limit)
        if not 0 <= self.reliable_at <= 1:
            raise PlanError(f"reliable-at must be from 0 to 1, got {self.reliable_at}")
        if self.batch < 1 or self.timeout <= 0 or self.load_timeout <= 0 or self.workers < 0:
            raise PlanError("batch must be at least 1, timeout above 0 and workers not negative")
        if (self.max_requests or 0) < 0 or (self.max_cost or 0) < 0:
            raise PlanError("max-requests and max-cost must not be negative")

    def all_models(self) -> tuple[str, ...]:
        """Return the models and the controls, each once."""
        return tuple(dict.fromkeys((*self.models, *(DEFAULT_CONTROLS if self.controls else ()))))


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
