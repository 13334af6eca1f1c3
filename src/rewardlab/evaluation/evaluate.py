"""From a plan to a finished run: open data, name models, start or resume, score, write trials, summarise."""

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any

import cv2

from rewardlab.core import __version__
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, Interrupted, NoServerError, PlanError, StoppedByModel, StopRun
from rewardlab.core.run import RECORD, Run, open_run, start_run
from rewardlab.core.run_files import INSTRUCTION, SETTINGS
from rewardlab.core.seeding import digest
from rewardlab.core.storage import locked
from rewardlab.core.terminal import ProgressBar, loading, one_line
from rewardlab.core.trial import Trial
from rewardlab.data import open_dataset, refuse_problems
from rewardlab.data.contract import Contents
from rewardlab.data.reading import draw_episodes, with_stage_questions, wordless_note
from rewardlab.data.video import read_digests
from rewardlab.evaluation.plan import (
    FORECAST_COLUMNS,
    Job,
    Plan,
    RunForecast,
    ScoringContext,
    bundle_jobs,
    conditions,
    finished_trials,
    forecast,
    plan_trials,
    shard_of,
)
from rewardlab.evaluation.replay import describe_failures
from rewardlab.evaluation.summary import save_summary
from rewardlab.evaluation.worker_pool import run_jobs
from rewardlab.models.composite import has_outside_code
from rewardlab.models.ledger import LedgerFile

_FLUSH_SECONDS = 1.0  # finished trials are on disk after this long at the latest
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


_IDENTITY = ("perturbations", "severities", "seed", "frames", "limit", "accuracy_threshold")


def evaluate(plan: Plan) -> Run:
    """Score every open trial of the plan, summarise them, and return the run; a shard of a run is only scored."""
    contents, context = open_plan(plan)
    run = start_scoring(plan, context, contents)
    with locked(run.folder):
        keep_names(run, plan, context)
        trials = run.trials(FORECAST_COLUMNS, repeats=True) if run.parts() else None
        told = forecast(run.folder, trials, plan, context, _workers(plan, context) or os.cpu_count() or 1)
        if not plan.execution.quiet:
            print(one_line(told.sentence), file=sys.stderr, flush=True)
        kept = None if trials is None else finished_trials(trials, plan, context)
        finished = set() if kept is None else set(kept.arrow["id"].to_pylist())
        planned = plan_trials(shard_of(context.dataset, plan.shard), context, plan.severities, finished)
        jobs = bundle_jobs(planned, context.batch * len(context.models))
        score_jobs(run, jobs, context, plan, (len(finished), told.trials))
        if plan.shard:  # a part of a run is measured when the parts are put together
            run.compact()
            return run
        with loading("measuring", quiet=plan.execution.quiet):
            run.compact()
            save_summary(run)
        if plan.describe_failures:
            spending = replace(context, budget=plan.model_budget(run.folder))
            try:
                with loading("asking for descriptions", quiet=plan.execution.quiet):
                    describe_failures(run, spending, plan.describe_failures)
            except (KeyboardInterrupt, StopRun) as stop:
                found = f"every trial is scored in {run.place}, but not every description is there: {stop}"
                raise stopped(stop, found) from None
    return run


def stopped(stop: BaseException, what: str) -> Interrupted | StoppedByModel:
    """Return the error of a command that was interrupted, or stopped by a model, with what was found until then."""
    kind = StoppedByModel if isinstance(stop, StopRun) else Interrupted
    return kind(f"{what}; run the same command again to continue")


def forecast_run(plan: Plan) -> RunForecast:
    """Return what the plan would ask and what that takes, as far as is known; nothing is scored or written."""
    contents, context = open_plan(plan)
    run = open_run(_folder(plan, context, _identity(plan, context, contents)))
    trials = run.trials(FORECAST_COLUMNS, repeats=True) if run.parts() else None  # the folder need not be there yet
    return forecast(run.folder, trials, plan, context, _workers(plan, context) or os.cpu_count() or 1)


def open_plan(plan: Plan) -> tuple[Contents, ScoringContext]:
    """Open the dataset of a plan and look up its perturbations."""
    with loading(f"opening {plan.data}", quiet=plan.execution.quiet):
        contents = load_episodes(plan)
    for note in () if plan.execution.quiet else wordless_note(contents.episodes):
        print(one_line(note), file=sys.stderr, flush=True)
    return contents, scoring_context(plan, contents.episodes)


def keep_names(run: Run, plan: Plan, context: ScoringContext) -> None:
    """Write down other short names that the command gives when it goes on with a run."""
    names, record, content = _names(plan, context), run.record, run.stored(RECORD)
    if names and names != record.names and content is not None:
        run.save(RECORD, content | {"names": names})


def _names(plan: Plan, context: ScoringContext) -> dict[str, str]:
    return dict(zip(context.evaluated, plan.names, strict=False))  # not every model need have one


def load_episodes(plan: Plan) -> Contents:
    """Open the dataset; stop at problems before any work unless the plan says to skip them."""
    contents = open_dataset(plan.data, demonstrations=plan.demonstrations)
    if not plan.skip_invalid:
        refuse_problems(plan.data, contents.problems)
    if not contents.episodes:
        raise DataError(f"{plan.data} holds no usable episode; run `rewardlab data check {quote(plan.data)}`")
    episodes = draw_episodes(contents.episodes, plan.limit, plan.seed)
    if plan.stages and not any(episode.label.stages for episode in episodes):
        raise PlanError(f"{plan.data} has no stages; leave out --stages, or add the column `stages` to its rows")
    return Contents(with_stage_questions(episodes) if plan.stages else episodes, contents.problems)


def scoring_context(plan: Plan, episodes: Sequence[Episode]) -> ScoringContext:
    """Return what every job of the plan needs."""
    first = {model.fingerprint: model for model in plan.every_model}
    context = ScoringContext(
        {model.name: model for model in first.values()},
        plan.perturbations,
        episodes,
        plan.frames,
        plan.seed,
        plan.scoring.batch_size,
        evaluated=tuple(dict.fromkeys(first[model.fingerprint].name for model in plan.models)),
        repeats=plan.repeats,
    )
    _ = context.policy, context.perturbations  # a wrong name is said now, not by every worker
    return context


def start_scoring(
    plan: Plan,
    context: ScoringContext,
    contents: Contents,
    more_identity: Mapping[str, Any] | None = None,
    trials_per_episode: int | None = None,
) -> Run:
    """Create the folder of a run, or reopen it; the videos are read once for their digests.

    A command that asks by what came out before says what else its numbers depend on, and how many trials it may ask of
    an episode.
    """
    with loading(f"reading the videos of {plan.data}", quiet=plan.execution.quiet):
        identity = _identity(plan, context, contents) | dict(more_identity or {})
    askings = sum(map(context.askings, context.models.values()))
    each = trials_per_episode or len(conditions(context, plan.severities)) * askings
    evaluated = {name: context.models[name] for name in context.evaluated}
    record: dict[str, object] = {
        "kind": plan.kind,
        "plan": identity,
        "settings": {**plan.settings, "data": plan.data}  # and as they are scored
        | {name: identity[name] for name in SETTINGS if name in identity},
        "evaluated": list(context.evaluated),
        "caveats": {name: model.caveat for name, model in evaluated.items() if model.caveat},
        "trained_tasks": {name: list(model.trained_tasks) for name, model in evaluated.items() if model.trained_tasks},
        "trained_on": {name: list(model.trained_on) for name, model in evaluated.items() if model.trained_on},
        "names": _names(plan, context),
        "prompts": {name: asked for name, model in evaluated.items() if (asked := model.prompt(INSTRUCTION))},
        "command": plan.command,
        "episodes": len(contents.episodes),
        "trials": len(contents.episodes) * each,
        "skipped": [asdict(problem) for problem in contents.problems],
        "versions": {"rewardlab": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("numpy", "av", "pyarrow")}
        | {"opencv": cv2.__version__},  # several packages bring it
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return start_run(_folder(plan, context, identity), record)


def _identity(plan: Plan, context: ScoringContext, contents: Contents) -> dict[str, Any]:
    """Return everything that the numbers of a run depend on, as JSON holds it."""
    read_digests(contents.episodes)
    data = digest(*(f"{episode.hash} {episode.id} {episode.provenance}" for episode in contents.episodes))
    definitions = {p.name: p.fingerprint for p in context.perturbations.values()}
    fingerprints = {name: model.fingerprint for name, model in context.models.items()}
    identity = {key: list(value) if isinstance(value := vars(plan)[key], tuple) else value for key in _IDENTITY}
    identity |= {"models": fingerprints, "data_digest": data, "definitions": definitions}
    if plan.repeats > 1:
        again = [name for name, model in context.models.items() if context.askings(model) > 1]
        identity |= {"repeats": plan.repeats, "repeated": again}
    return identity | ({"kind": plan.kind} if plan.kind != "stress" else {})


def _folder(plan: Plan, context: ScoringContext, identity: dict[str, Any]) -> Path:
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{context.evaluated[0]}-{Path(plan.data).name}")
    return plan.out or Path("runs") / f"{slug}-{digest(json.dumps(identity, sort_keys=True))[:8]}"


def score_jobs(
    run: Run,
    jobs: Iterable[Job],
    context: ScoringContext,
    plan: Plan,
    size: tuple[int, int],
    take: Callable[[Sequence[Trial]], None] = lambda _trials: None,
) -> None:
    """Score jobs as they come and keep their trials, of which `size` says how many are there and how many will be.

    Jobs may be made of what came out of earlier ones: `take` is given every trial before the next job is asked for.
    """
    if plan.scoring.retry_failures and run.parts():
        run.compact()  # of a trial that fails again, the new reason is then known from the old one
    spending, (finished, total) = replace(context, budget=plan.model_budget(run.folder)), size
    here = plan.execution.engine == "local"
    outside = [name for name, model in context.models.items() if has_outside_code(model)] if here else []
    if outside and not plan.execution.quiet:
        warning = (
            f"warning: --engine local runs {', '.join(outside)} in this process, for debugging: nothing isolates it"
        )
        print(one_line(warning), file=sys.stderr, flush=True)
    before = "" if outside else "loading the models"  # a line that renews itself would disturb a debugger
    progress = ProgressBar("scoring", total, finished, before=before, quiet=plan.execution.quiet)
    ledger, failed = LedgerFile(run.folder), 0
    paid = [name for name, model in context.models.items() if model.server]
    share = len(paid) / len(context.models)  # every model has as many trials
    answered = finished * share

    def note() -> str:
        price = ledger.forecast(min(1.0, answered / (total * share))) if paid else ""
        rate = progress.rate
        return f"{rate:,.{0 if rate >= 10 else 1}f} trials/s, {failed} failed{price}"

    execution = replace(plan.execution, workers=_workers(plan, context))
    with progress, TrialWriter(run) as writer:
        try:
            if finished < total and plan.execution.engine != "ray":  # its machines may reach what this one does not
                _require_servers(context, spending.budget.connect_seconds)
            for trials in run_jobs(jobs, spending, execution, plan.scoring):
                writer.add(trials)
                if trials:
                    take(trials)
                    wrong = [trial for trial in trials if trial.status == "failed" and not trial.info.abstained]
                    failed += len(wrong)
                    answered += sum(trial.model in paid for trial in trials)
                    progress.step(progress.done + len(trials), note)
                    if wrong and plan.scoring.fail_fast:
                        raise StopRun(_first_failure(wrong[0]))
        except (KeyboardInterrupt, StopRun) as stop:
            why = f": {stop}" if isinstance(stop, StopRun) else ""
            found = f"stopped with {progress.done:,} of {total:,} trials in {run.place}{why}"
            raise stopped(stop, found) from None


def _require_servers(context: ScoringContext, seconds: float) -> None:
    """Stop before any process is started where the server of a model refuses connections for so long."""
    for address in sorted({model.server for model in context.models.values()} - {""}):
        from rewardlab.models.backends.http_client import wait_for_server  # imports httpx2, which models may lack

        try:
            wait_for_server(address, seconds)
        except NoServerError as error:
            raise StopRun(str(error)) from None


def _first_failure(trial: Trial) -> str:
    condition = f"{trial.perturbation} {trial.severity}" if trial.severity else trial.perturbation
    trace = f"\n{trial.traceback}\n" if trial.traceback else "; "
    failed = f"{trial.model} failed on {trial.episode} ({condition}): {trial.reason}"
    return f"{failed}{trace}correct it and add --retry-failures"


def _workers(plan: Plan, context: ScoringContext) -> int:
    """Return how many workers score, 0 for one per core: one where a model must not be there twice.

    Where each worker has a part of a GPU of its own, weights may be there as often; what counts its spending may not.
    """
    alone = [model for model in context.models.values() if model.exclusive]
    if any(model.server or not plan.execution.gpus for model in alone):
        return 1
    return plan.execution.workers
