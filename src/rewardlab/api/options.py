"""The settings of the verbs in Python: what each takes beside its first arguments, and how it is documented."""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from rewardlab.core.command_settings import build_plan, flat_fields, setting_text

Verb = TypeVar("Verb", bound=Callable[..., Any])
Plan = TypeVar("Plan")
Names = str | Sequence[str]  # one name, or several
Place = str | Path


class ScoringOptions(TypedDict, total=False):
    """What every verb that scores takes."""

    frames: str
    seed: int
    limit: int | None
    skip_bad: bool
    retry_failures: bool
    workers: int
    batch: int
    timeout: float
    load_timeout: float
    max_restarts: int
    max_failures: int
    max_requests: int | None
    max_cost: float | None
    describe_failures: int
    quiet: bool
    name: Names
    shard: str
    engine: str
    address: str | None
    gpus: float
    out: Place | None


class StressOptions(ScoringOptions, total=False):
    """What `stress` takes beside models and data."""

    perturbations: Names
    severities: int | Sequence[int]
    controls: bool
    reliable_at: float


class BenchOptions(ScoringOptions, total=False):
    """What `bench` takes beside models and data."""

    split: str
    controls: bool
    duplicates: bool
    against: Place | None


class CalibrateOptions(ScoringOptions, total=False):
    """What `calibrate` takes beside model and data."""

    coverage: float


class GuardFitOptions(ScoringOptions, total=False):
    """What `guard_fit` takes beside model and data."""

    false_success: float
    perturbations: Names
    severities: int | Sequence[int]
    policy: str
    fallback: str
    guard: Place


class ServeOptions(TypedDict, total=False):
    """What `serve` takes beside the model."""

    host: str
    port: int
    root: Place | None
    frames: str
    max_batch: int
    max_wait: float
    queue: int
    sessions: int
    drain: int


class VerifyOptions(TypedDict, total=False):
    """What `verify` takes beside the dataset."""

    verdicts: Place | None
    overlap: float
    seed: int
    host: str
    port: int
    export: Place | None


class DataReportOptions(TypedDict, total=False):
    """What `data_report` takes beside the dataset."""

    out: Place
    videos: int
    near_duplicates: bool
    seed: int


class AugmentOptions(TypedDict, total=False):
    """What `augment` takes beside the data."""

    out: Place
    stage: Names
    vision: str
    text: str
    attempts: int
    per_source: int
    splits: Names
    calls: Place | None
    max_requests: int | None
    max_cost: float | None
    skip_bad: bool
    quiet: bool
    seed: int
    workers: int
    engine: str
    address: str | None
    gpus: float


class RelabelOptions(TypedDict, total=False):
    """What `relabel` takes beside the data."""

    model: str
    frames: str
    limit: int | None
    batch: int
    workers: int
    timeout: float
    retry_failures: bool
    max_requests: int | None
    max_cost: float | None
    quiet: bool
    engine: str
    address: str | None
    gpus: float
    run: Place | None
    out: Place


class RlRunOptions(TypedDict, total=False):
    """What `rl_run` takes beside the plan."""

    out: Place
    workers: int
    engine: str
    address: str | None
    gpus: float


class RlReportOptions(TypedDict, total=False):
    """What `rl_report` takes beside the studies."""

    out: Place


class AttackOptions(ScoringOptions, total=False):
    """What `attack` takes beside model and data."""

    perturbations: Names
    budget: int
    strategy: str


class PerturbOptions(TypedDict, total=False):
    """What `perturb` takes beside the data."""

    perturbations: Names
    severities: int | Sequence[int]
    seed: int
    limit: int | None
    sheet: bool
    out: Place


class ConvertOptions(TypedDict, total=False):
    """What `convert` takes beside source and folder."""

    to: str
    fps: float | None
    sample: int | None
    splits: Names
    duplicates: bool
    skip_bad: bool
    seed: int


class CollectOptions(TypedDict, total=False):
    """What `collect` takes beside the simulator."""

    tasks: Names
    episodes: int
    quality: Names
    world: Names
    camera: Names
    balance: bool
    things: int
    counterfactuals: int
    captions: bool
    phrasings: str
    marker: bool
    size: int
    fps: float
    frames: tuple[int, int]
    seed: int
    workers: int
    engine: str
    address: str | None
    gpus: float
    out: Place


class TrainOptions(TypedDict, total=False):
    """What `train` takes beside the recipe."""

    variants: Names
    folds: int | Sequence[int]
    eyes: str
    without: Names
    rollouts: int
    near: int
    checks: int
    tasks: Names
    kept: int
    size: int
    steps: int
    batch: int
    check_every: int
    rate: float
    seed: int
    device: str
    workers: int
    out: Place


class TrainVlmOptions(TypedDict, total=False):
    """What `train_vlm` takes beside model and data."""

    out: Place
    recipe: str
    mixture: Names
    seeds: int | Sequence[int]
    validation: str
    holdout: float
    limit: int | None
    frames: str
    lora: int
    rate: float | None
    epochs: int | None
    batch: int | None
    micro: int
    check_every: int
    checkpointing: bool
    cache_gb: float
    compile: bool
    dtype: str
    device: str
    workers: int


class TrainObjectiveOptions(TypedDict, total=False):
    """What `train_objective` takes beside the objective."""

    backbone: Names
    data: Names
    out: Place
    seeds: int | Sequence[int]
    tuning: int
    steps: int
    batch: int
    rate: float
    align_steps: int
    check_every: int
    lora: int
    frames: int
    size: int
    views: int
    tasks: Names
    fold: int
    holdout: float
    multi_step: Names
    rollouts: int
    near: int
    checks: int
    perturbations: Names
    stressed: int
    against: str
    draws: int
    seed: int
    until: str
    device: str
    workers: int


class AssembleOptions(TypedDict, total=False):
    """What `assemble_vlm` takes."""

    vision: Place
    language: Place
    out: Place
    tokens: int
    seed: int


def documented_by(plan_type: type[Any]) -> Callable[[Verb], Verb]:
    """Give a verb the signature and the help that its command has, so that `help` shows every setting."""

    def document(verb: Verb) -> Verb:
        shown = signature(verb)
        first = [p for p in shown.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        settings = [entry for entry, _ in flat_fields(plan_type) if not entry.metadata["positional"]]
        more = [Parameter(entry.name, Parameter.KEYWORD_ONLY, default=entry.default) for entry in settings]
        help_lines = [f"    {entry.name}: {entry.metadata['help']}{_default(entry.default)}" for entry in settings]
        verb.__signature__ = shown.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
        verb.__doc__ = "\n".join([(verb.__doc__ or "").rstrip(), "", "    Settings:", *help_lines])
        return verb

    return document


def _default(value: object) -> str:
    if value is MISSING or value is None:
        return ""
    return f" ({setting_text(value)})"


def plan_from(plan_type: type[Plan], settings: Mapping[str, Any]) -> Plan:
    """Return the plan with these settings; one name stands for a tuple of one, and text for a path."""
    hints = {entry.name: hint for entry, hint in flat_fields(plan_type)}
    return build_plan(plan_type, {name: _as(hints.get(name), value) for name, value in settings.items()})


def _as(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return (value,) if isinstance(value, str | Path) or not isinstance(value, Sequence) else tuple(value)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if Path in kinds and isinstance(value, str):
        return Path(value)
    return str(value) if str in kinds and isinstance(value, Path) else value
