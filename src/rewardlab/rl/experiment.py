"""The whole plan of `study rl` on workers: base policies, reward heads, offline measures, training runs, the record."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.live import Live
from rich.table import Table

from rewardlab.core import __version__
from rewardlab.core.errors import RewardlabError
from rewardlab.core.records import read_json, record_to_json
from rewardlab.core.run import claim_folder
from rewardlab.core.settings import Execution
from rewardlab.core.storage import locked, writable, write_file
from rewardlab.core.terminal import terminal_console
from rewardlab.core.trial import error_text
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.models import name_model
from rewardlab.rl.offline_measures import held_out_clips, measure_rewards, score_held_out
from rewardlab.rl.plan import RlPlan, StudyFolder, TrainingRun, read_rl_plan
from rewardlab.rl.results import (
    FalseSuccess,
    OfflineMeasures,
    RlResults,
    TrainingRunResult,
    read_training_run,
    write_results,
    write_training_run,
)
from rewardlab.rl.rewards import HEAD, TRUE, collect_clips, join_clips, last_head, parse_head, train_head
from rewardlab.rl.training_run import make_base_policy, open_training_run, read_policy_facts

Item = TypeVar("Item")
Result = TypeVar("Result")
Show = Callable[[TrainingRunResult, int, int], None]  # a training run that ended, its number, and how many there are

_MAX_STARTS = 2  # of a training run by one command; after two crashes it counts as failed
_SECONDS = "seconds.json"


def run_rl(plan: Path, out: Path, execution: Execution, command: str, show: Show) -> RlResults:
    """Train what is left of a plan and return the record of all that is finished; `show` is called per training run."""
    study, folder, started = read_rl_plan(plan), StudyFolder(out.resolve()), time.monotonic()
    for reward in study.rewards:
        if reward != TRUE and not reward.startswith(HEAD):
            name_model(reward)  # raises where there is no such model; reading a plan does not need its models
    with writable(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    offline: tuple[OfflineMeasures, ...] = ()
    with locked(folder.path):
        claim_folder(folder.plan, record_to_json(study))
        for run in study.training_runs():  # those that failed are repeated
            folder.starts(run).unlink(missing_ok=True)
            folder.failure(run).unlink(missing_ok=True)
        try:
            _prepare(study, folder, execution)
            if study.offline.episodes and study.figure in ("quality", "severity"):
                # before the long part, so that a stopped study has it too
                files = _map(partial(score_held_out, study, folder), held_out_clips(study), execution)
                offline = measure_rewards(study, list(files))
            for number, result in enumerate(_train(study, folder, execution), start=1):
                show(result, number, len(study.training_runs()))
        finally:  # a stopped study has a record too, of what is finished
            seconds = _add_seconds(folder.path / _SECONDS, time.monotonic() - started)
            workers = execution.workers or os.cpu_count() or 1
            results = _results(study, folder, command, offline, seconds, workers)
            write_results(results, folder.path)
    return results


def _map(work: Callable[[Item], Result], items: Iterable[Item], execution: Execution) -> Iterator[Result]:
    return map_items(work, items, execution.workers, execution)


def _prepare(plan: RlPlan, folder: StudyFolder, execution: Execution) -> None:
    """Clone the base policies and train the reward heads that are missing."""
    list(_map(partial(make_base_policy, plan, folder), plan.tasks, execution))
    kinds = dict.fromkeys(parse_head(name)[0] for name in plan.rewards if name.startswith(HEAD))
    missing = [kind for kind in kinds if not last_head(kind, folder.heads).exists()]
    if missing:
        collect = partial(collect_clips, settings=plan.heads, control=plan.control, watched=plan.watch, seed=plan.seed)
        clips = join_clips(list(_map(collect, plan.tasks, execution)))
        folder.heads.mkdir(parents=True, exist_ok=True)
        train = partial(train_head, clips=clips, settings=plan.heads, folder=folder.heads, seed=plan.seed)
        list(_map(train, missing, execution))


def _train(plan: RlPlan, folder: StudyFolder, execution: Execution) -> Iterator[TrainingRunResult]:
    """Yield every training run of the plan: those finished before at once, the others as they end."""
    done = [run for run in plan.training_runs() if folder.result(run).exists()]
    yield from (read_training_run(folder.result(run)) for run in done)
    left = [run for run in plan.training_runs() if run not in done]
    yield from _map(partial(train_or_fail, plan, folder), left, execution)


def train_or_fail(plan: RlPlan, folder: StudyFolder, run: TrainingRun) -> TrainingRunResult:
    """Train and write the record; an error fails this training run and stops no other."""
    folder.training_run(run).mkdir(parents=True, exist_ok=True)
    path = folder.starts(run)
    starts = 1 + (int(path.read_text(encoding="utf-8") or "0") if path.exists() else 0)
    write_file(path, str(starts))
    if starts > _MAX_STARTS:
        return _fail(folder, run, f"its process ended {_MAX_STARTS} times")
    try:
        result = open_training_run(plan, folder, run).train()
    except RewardlabError as error:
        return _fail(folder, run, error_text(error))
    except (ArithmeticError, RuntimeError, ValueError, OSError) as error:  # of torch and of the simulator
        return _fail(folder, run, error_text(error, with_type=True))
    write_training_run(result, folder.result(run))
    for rest in (folder.checkpoint(run), path):
        rest.unlink(missing_ok=True)
    return result


def _fail(folder: StudyFolder, run: TrainingRun, reason: str) -> TrainingRunResult:
    none = FalseSuccess(0, 0, 0)
    names = (run.task, run.reward, run.condition, run.algorithm, run.seed)
    result = TrainingRunResult(*names, "failed", reason, None, None, (), 0, 0, "", none, none, (), (), 0.0, 0.0)
    write_training_run(result, folder.failure(run))
    return result


def _results(
    plan: RlPlan, folder: StudyFolder, command: str, offline: tuple[OfflineMeasures, ...], seconds: float, workers: int
) -> RlResults:
    cloned = [task for task in plan.tasks if folder.policy_facts(task).exists()]
    facts = {task: read_policy_facts(folder.policy_facts(task)) for task in cloned}
    written = ((folder.result(run), folder.failure(run)) for run in plan.training_runs())
    ended = [done if done.exists() else failed for done, failed in written]
    return RlResults(
        __version__,
        json.dumps(record_to_json(plan)),
        plan.title,
        plan.figure,
        command,
        round(seconds, 1),
        workers,
        {task: success for task, (success, _) in facts.items()},
        {task: fraction for task, (_, fraction) in facts.items()},
        tuple(read_training_run(path) for path in ended if path.exists()),
        offline,
    )


def _add_seconds(path: Path, seconds: float) -> float:
    """Add the wall time of this start to that of earlier ones and return the sum."""
    with suppress(OSError, ValueError, KeyError, TypeError):  # of no file, or a damaged one: wall time is no result
        seconds += float(read_json(path)["seconds"])
    write_file(path, json.dumps({"seconds": seconds}))
    return seconds


@dataclass
class ResultTable:
    """The training runs that have ended, by series, as a table of rich."""

    total: int = 0
    results: list[TrainingRunResult] = field(default_factory=list)

    def add(self, result: TrainingRunResult, _number: int, total: int) -> None:
        """Add a training run that ended."""
        self.total = total
        self.results.append(result)

    def __rich__(self) -> Table:
        title = f"{len(self.results)} of {self.total or '?'} training runs"
        table = Table(title=title, title_justify="left")
        for heading in ("task", "reward", "condition", "algorithm", "base", "success", "seeds"):
            table.add_column(heading, overflow="fold")
        for key in dict.fromkeys(map(_series, self.results)):
            own = [result for result in self.results if _series(result) == key]
            base, success = _percent(run.base_success for run in own), _percent(run.success for run in own)
            failed = sum(run.status == "failed" for run in own)
            table.add_row(*key, base, success, f"{len(own) - failed}" + (f", {failed} failed" if failed else ""))
        return table


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Show]:
    """Show training runs as they end: as a table on a terminal, else as one line each; with `quiet` not at all."""
    if quiet or not sys.stderr.isatty():
        yield (lambda *_: None) if quiet else _print_line
        return
    table = ResultTable()
    with Live(table, console=terminal_console(stderr=True), refresh_per_second=1):
        yield table.add


def _print_line(result: TrainingRunResult, number: int, total: int) -> None:
    condition = "" if result.condition == "clean" else f" under {result.condition}"
    name = f"{result.task}, {result.algorithm} on {result.reward}{condition}, seed {result.seed}"
    ended = f"{_percent([result.base_success])} to {_percent([result.success])} in {result.seconds:.0f} s"
    ended = f"failed, {result.reason}" if result.status == "failed" else ended
    print(f"{number} of {total}: {name}: {ended}", file=sys.stderr, flush=True)


def _series(result: TrainingRunResult) -> tuple[str, str, str, str]:
    return result.task, result.reward, result.condition, result.algorithm


def _percent(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.0%}" if known else "-"
