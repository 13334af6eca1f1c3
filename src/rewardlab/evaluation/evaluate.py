"""From a plan to a finished run: open data, name models, start or resume, score, write trials, summarise."""

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

from rewardlab.core import __version__
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, Interrupted, PlanError, StoppedByModel, StopRun
from rewardlab.core.old_settings import as_command, flat_settings, setting
from rewardlab.core.run import RECORD, Run, locked, open_run, start_run
from rewardlab.core.run_files import INSTRUCTION
from rewardlab.core.seeding import digest
from rewardlab.core.terminal import ProgressBar, loading, one_line
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TrialTable
from rewardlab.data import open_dataset
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.reading import wordless_note
from rewardlab.evaluation.display import FITS
from rewardlab.evaluation.plan import (
    FORECAST_COLUMNS,
    FRAMES_HELP,
    Job,
    RunForecast,
    ScoringContext,
    ScoringSettings,
    bundle_jobs,
    conditions,
    forecast,
    plan_trials,
    require_selection,
    shard_of,
)
from rewardlab.evaluation.replay import describe_failures
from rewardlab.evaluation.summary import save_summary
from rewardlab.evaluation.worker_pool import run_jobs
from rewardlab.models import name_model
from rewardlab.models.contract import NamedModel
from rewardlab.models.ledger import LedgerFile

_FLUSH_SECONDS = 1.0  # finished cells are on disk after this long at the latest
_PUBLISH_SECONDS = 30.0  # what a run in an object store has paid for is there after this long at the latest


class TrialWriter:
    """Keeps trials for up to a second, then writes them; at the end of the block everything is written."""

    def __init__(self, run: Run) -> None:
        self._run, self._waiting = run, list[Trial]()
        self._flushed = self._published = time.monotonic()

    def __enter__(self) -> "TrialWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()
        self._run.publish()

    def add(self, trials: Sequence[Trial]) -> None:
        """Take finished trials."""
        self._waiting += trials
        now = time.monotonic()
        if now - self._flushed > _FLUSH_SECONDS:
            self._flush()
            self._run.join_small_parts()
            self._flushed = time.monotonic()
        if now - self._published > _PUBLISH_SECONDS:
            self._run.publish()
            self._published = time.monotonic()

    def _flush(self) -> None:
        self._run.append(self._waiting)
        self._waiting = []


DEFAULT_CONTROLS = ("constant", "random", "clock", "oracle")
_IDENTITY = ("data", "perturbations", "severities", "seed", "frames", "limit", "reliable_at")


@dataclass(frozen=True)
class StressPlan:
    """Perturb a dataset, score it with models, measure what breaks, and write a report."""

    models: tuple[str, ...] = setting("models to evaluate, e.g. clock or package.module:name", positional=True)
    data: str = setting(
        "dataset folder (metadata.jsonl beside videos) or a shipped name such as sample", positional=True
    )
    perturbations: tuple[str, ...] = setting(
        "names, categories (visual, semantic, temporal, domain), quick (a spread of eight), all or none", ("quick",)
    )
    severities: tuple[int, ...] = setting("severities to apply; the clean episode is always scored", (1, 2, 3, 4))
    frames: str = setting(FRAMES_HELP, "uniform:16")
    controls: bool = setting("score the controls constant, random, clock and oracle too", True)
    reliable_at: float = setting("success accuracy below which a model counts as unreliable", 0.70)
    scoring: ScoringSettings = ScoringSettings()

    def __post_init__(self) -> None:
        if not self.models:
            raise PlanError("name at least one model, e.g. `rewardlab stress clock sample`")
        require_selection(self.perturbations, self.severities)
        if not 0 <= self.reliable_at <= 1:
            raise PlanError(f"reliable-at must be from 0 to 1, got {self.reliable_at}")
        _require_names(self.scoring.name, self.models, self.all_models())

    def all_models(self) -> tuple[str, ...]:
        """Return the models and the controls, each once."""
        return tuple(dict.fromkeys((*self.models, *(DEFAULT_CONTROLS if self.controls else ()))))


def _require_names(names: tuple[str, ...], models: tuple[str, ...], every: tuple[str, ...]) -> None:
    """Check the short names: one per model at most, each of its own and of a length that fits a table."""
    if len(names) > len(models):
        raise PlanError(f"name has {len(names)} names for {len(models)} models; give one for each, in their order")
    for model, name in zip(models, names):
        others = [*(other for other in every if other != model), *(n for m, n in zip(models, names) if m != model)]
        if not name.strip() or not name.isprintable() or len(name) > FITS:
            raise PlanError(f"a short name has 1 to {FITS} printable characters, got {name[:80]!r}; shorten it")
        if name in others:
            raise PlanError(f"two models of this run would be called {name!r}; choose another name")


def clean_plan(
    models: tuple[str, ...], data: str, frames: str, scoring: ScoringSettings, *, controls: bool
) -> StressPlan:
    """Return the stress test without perturbations: it scores the clean episodes only."""
    return StressPlan(models, data, ("none",), (0,), frames, controls=controls, scoring=scoring)


def run_stress(
    plan: StressPlan, own: Sequence[NamedModel] = (), *, kind: str = "stress", command: str | None = None
) -> Run:
    """Score every open cell of the plan and return the run; `own` adds models that have no name in the catalog.

    Another command that scores says what `kind` of run it makes and by which `command`.
    """
    if plan.scoring.shard and kind != "stress":
        raise PlanError(f"only a stress test is scored in shards, not {kind}; leave out --shard")
    contents, context = open_plan(plan, own)
    run = start_scoring(plan, context, contents, RunOrigin(kind, command or as_command(kind, plan)))
    with locked(run):
        keep_names(run, dict(zip(context.judged, plan.scoring.name)))
        finished = _tell_what_is_open(run, plan, context)
        planned = plan_trials(shard_of(context.dataset, plan.scoring.shard), context, plan.severities, finished)
        jobs = bundle_jobs(planned, context.batch * len(context.models))
        score_jobs(run, jobs, context, plan.scoring, (len(finished), run.record.cells))
        if plan.scoring.shard:  # a part of a run is measured when the parts are put together
            return run
        with loading("measuring", quiet=plan.scoring.quiet):
            run.compact()
            save_summary(run)
        if plan.scoring.describe_failures:
            _describe(run, replace(context, budget=plan.scoring.budget(run.folder)), plan.scoring)
    return run


def _describe(run: Run, context: ScoringContext, scoring: ScoringSettings) -> None:
    try:
        with loading("asking for descriptions", quiet=scoring.quiet):
            describe_failures(run, context, scoring.describe_failures)
    except (KeyboardInterrupt, StopRun) as stop:
        kind = StoppedByModel if isinstance(stop, StopRun) else Interrupted
        raise kind(
            f"every cell is scored in {run.place}, but not every description is there: {stop}; "
            "the same command goes on where this one stopped"
        ) from None


def forecast_stress(plan: StressPlan, own: Sequence[NamedModel] = (), *, kind: str = "stress") -> RunForecast:
    """Return what the plan would ask and what that takes, as far as is known; nothing is scored or written."""
    contents, context = open_plan(plan, own)
    run = open_run(_folder(plan, context, _identity(plan, context, contents, kind)))
    trials = run.trials(FORECAST_COLUMNS) if run.parts() else None  # the folder need not be there yet
    workers = _workers(plan.scoring, context) or os.cpu_count() or 1
    return forecast(run.folder, trials, context, plan.severities, workers)


def open_plan(plan: StressPlan, own: Sequence[NamedModel]) -> tuple[Contents, ScoringContext]:
    """Open the dataset of a plan and look up its models and perturbations."""
    with loading(f"opening {plan.data}", quiet=plan.scoring.quiet):
        contents = load_episodes(plan)
    for note in () if plan.scoring.quiet else wordless_note(contents.episodes):
        print(one_line(note), file=sys.stderr, flush=True)
    with loading(f"looking up {', '.join(plan.models)}", quiet=plan.scoring.quiet):
        return contents, scoring_context(plan, contents.episodes, own)


def _tell_what_is_open(run: Run, plan: StressPlan, context: ScoringContext) -> set[str]:
    """Say what is still to be asked, and return the cells that are finished; the trials are read once for both."""
    trials = run.trials(FORECAST_COLUMNS)
    if not plan.scoring.quiet:
        known = trials if len(trials) else None
        workers = _workers(plan.scoring, context) or os.cpu_count() or 1
        told = forecast(run.folder, known, context, plan.severities, workers).sentence
        print(one_line(told), file=sys.stderr, flush=True)
    return finished_trials(trials, plan.scoring)


def finished_trials(trials: TrialTable, scoring: ScoringSettings) -> set[str]:
    """Return the cells that are not asked again: those with a trial, but for failures that are to be retried."""
    kept = trials.where(~trials.matches("status", "failed")) if scoring.retry_failures else trials
    return set(kept.arrow["id"].to_pylist())


def keep_names(run: Run, names: dict[str, str]) -> None:
    """Write down other short names that the command gives when it goes on with a run."""
    record, content = run.record, run.stored(RECORD)
    if names and names != record.names and record.sealed and content is not None:
        run.save(RECORD, content | {"names": names})


def load_episodes(plan: StressPlan) -> Contents:
    """Open the dataset; stop at problems before any work unless the plan says to skip them."""
    contents = open_dataset(plan.data)
    if contents.problems and not plan.scoring.skip_bad:
        raise DataError(_problem_list(plan.data, contents.problems))
    if not contents.episodes:
        raise DataError(f"{plan.data} holds no usable episode; run `rewardlab data check {plan.data}`")
    return Contents(contents.episodes[: plan.scoring.limit], contents.problems)


def _problem_list(data: str, problems: Sequence[Problem]) -> str:
    first = "".join(f"\n  {problem}" for problem in problems[:5])
    more = f"\n  and {len(problems) - 5} more: run `rewardlab data check {data}`" if len(problems) > 5 else ""
    return f"{data} has {len(problems)} bad rows; correct them, or leave them out with --skip-bad{first}{more}"


def scoring_context(plan: StressPlan, episodes: Sequence[Episode], own: Sequence[NamedModel] = ()) -> ScoringContext:
    """Return what every job of the plan needs; `own` are models that have no name in the catalog."""
    given = {model.spec: model for model in own}
    named = {text: given[text] if text in given else name_model(text) for text in plan.all_models()}
    same = {model.fingerprint: model for model in reversed(named.values())}  # one that is written twice is one
    models = {same[model.fingerprint].name: same[model.fingerprint] for model in named.values()}
    context = ScoringContext(
        models,
        plan.perturbations,
        episodes,
        plan.frames,
        plan.scoring.seed,
        plan.scoring.batch,
        judged=tuple(dict.fromkeys(same[named[text].fingerprint].name for text in plan.models)),
    )
    _ = context.policy, context.perturbations  # a wrong name is said now, not by every worker
    return context


@dataclass(frozen=True)
class RunOrigin:
    """Which command makes a run: its kind, how it is written, and what else its numbers depend on.

    A command that asks by what came out before says how many cells it may ask of an episode.
    """

    kind: str
    command: str
    identity: Mapping[str, Any] = field(default_factory=dict)
    cells_per_episode: int | None = None


def start_scoring(plan: StressPlan, context: ScoringContext, contents: Contents, made_by: RunOrigin) -> Run:
    """Create the folder of a run, or reopen it; the videos are read once for their digests."""
    with loading(f"reading the videos of {plan.data}", quiet=plan.scoring.quiet):
        return _start(plan, context, contents, made_by)


def _start(plan: StressPlan, context: ScoringContext, contents: Contents, made_by: RunOrigin) -> Run:
    identity = _identity(plan, context, contents, made_by.kind) | dict(made_by.identity)
    each = made_by.cells_per_episode or len(conditions(context, plan.severities)) * len(context.models)
    judged = {name: context.models[name] for name in context.judged}
    record: dict[str, object] = {
        "kind": made_by.kind,
        "plan": identity,
        "settings": _json_settings(plan),
        "judged": list(context.judged),
        "caveats": {name: model.caveat for name, model in judged.items() if model.caveat},
        "trained_tasks": {name: list(model.trained_tasks) for name, model in judged.items() if model.trained_tasks},
        "names": dict(zip(context.judged, plan.scoring.name)),
        "prompts": {name: asked for name, model in judged.items() if (asked := model.prompt(INSTRUCTION))},
        "command": made_by.command,
        "episodes": len(contents.episodes),
        "cells": len(contents.episodes) * each,
        "skipped": [asdict(problem) for problem in contents.problems],
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return start_run(_folder(plan, context, identity), record)


def _json_settings(plan: StressPlan) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps(flat_settings(plan), default=str))
    return settings


def _identity(plan: StressPlan, context: ScoringContext, contents: Contents, kind: str) -> dict[str, Any]:
    """Return everything that the numbers of a run depend on."""
    settings = _json_settings(plan)
    data = digest(*(f"{episode.hash} {episode.id} {episode.provenance}" for episode in contents.episodes))
    definitions = {p.name: p.fingerprint for p in context.perturbations.values()}
    fingerprints = {name: model.fingerprint for name, model in context.models.items()}
    identity = {key: settings[key] for key in _IDENTITY}
    identity |= {"models": fingerprints, "data_digest": data, "definitions": definitions}
    return identity | ({"kind": kind} if kind != "stress" else {})


def _folder(plan: StressPlan, context: ScoringContext, identity: dict[str, Any]) -> Path:
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{context.judged[0]}-{Path(plan.data).name}")
    return plan.scoring.out or Path("runs") / f"{slug}-{digest(json.dumps(identity, sort_keys=True))[:8]}"


def _versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "opencv-python-headless", "av", "pyarrow")
    return {"rewardlab": __version__, "python": platform.python_version()} | {name: version(name) for name in packages}


def score_jobs(
    run: Run,
    jobs: Iterable[Job],
    context: ScoringContext,
    scoring: ScoringSettings,
    size: tuple[int, int],
    take: Callable[[Sequence[Trial]], None] = lambda trials: None,
) -> None:
    """Score jobs as they come and keep their trials, of which `size` says how many are there and how many will be.

    Jobs may be made of what came out of earlier ones: `take` is given every trial before the next job is asked for.
    """
    spending, (finished, total) = replace(context, budget=scoring.budget(run.folder)), size
    progress = ProgressBar(total, finished, LedgerFile(run.folder).forecast, quiet=scoring.quiet)
    with progress, TrialWriter(run) as writer:
        try:
            for trials in run_jobs(jobs, spending, _workers(scoring, context), scoring):
                writer.add(trials)
                if trials:
                    take(trials)
                    progress.add(len(trials), sum(trial.status == "failed" for trial in trials))
        except (KeyboardInterrupt, StopRun) as stop:
            why = f": {stop}" if isinstance(stop, StopRun) else ""
            kind = StoppedByModel if isinstance(stop, StopRun) else Interrupted
            raise kind(
                f"stopped with {progress.done:,} of {total:,} cells in {run.place}{why}; "
                "the same command goes on where this one stopped"
            ) from None


def _workers(scoring: ScoringSettings, context: ScoringContext) -> int:
    """Return how many workers score, 0 for one per core: one where a model must not be there twice.

    Where each worker has a share of a GPU of its own, weights may be there as often; what counts its spending may not.
    """
    alone = [model for model in context.models.values() if model.exclusive]
    if any(model.server or not scoring.engine_settings.gpus for model in alone):
        return 1
    return scoring.workers
