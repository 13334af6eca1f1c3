"""The whole plan of `study rl` on workers: base policies, reward heads, offline measures, training runs, the record."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from rich.live import Live
from rich.table import Table

from rewardlab.core import __version__
from rewardlab.core.errors import RewardlabError
from rewardlab.core.records import read_json, record_to_json
from rewardlab.core.run import claim_folder
from rewardlab.core.settings import Execution
from rewardlab.core.storage import atomic_write, locked, writable
from rewardlab.core.terminal import terminal_console
from rewardlab.core.trial import error_text
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.rl.offline_measures import held_out_clips, measure_rewards, score_held_out
from rewardlab.rl.plan import RlPlan, StudyFolder, TrainingRun, check_models, read_rl_plan
from rewardlab.rl.results import (
    FalseSuccess,
    OfflineMeasures,
    RlResults,
    TrainingRunResult,
    read_training_run,
    write_results,
    write_training_run,
)
from rewardlab.rl.rewards import HeadKind, LabelledClips, collect_clips, join_clips, last_head, parse_head, train_head
from rewardlab.rl.training_run import make_base_policy, open_training_run, read_policy_facts

Item = TypeVar("Item")
Result = TypeVar("Result")
Show = Callable[[TrainingRunResult, int, int], None]  # a training run that ended, its number, and how many there are

_MAX_STARTS = 2  # of a training run by one command; after two crashes it counts as failed
_SECONDS = "seconds.json"


def run_rl(plan: Path, out: Path, execution: Execution, command: str, show: Show) -> RlResults:
    """Train what is left of a plan and return the record of all that is finished; `show` is called per training run."""
    study, folder, started = read_rl_plan(plan), StudyFolder(out.resolve()), time.monotonic()
    check_models(study)
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
            offline = _measure(study, folder, execution)  # before the long part, so that a stopped study has it too
            for number, result in enumerate(_train(study, folder, execution), start=1):
                show(result, number, len(study.training_runs()))
        finally:  # a stopped study has a record too, of what is finished
            seconds = _add_seconds(folder, time.monotonic() - started)
            workers = execution.workers or os.cpu_count() or 1
            results = _results(study, folder, command, offline, seconds, workers)
            write_results(results, folder.path)
    return results


def _map(work: Callable[[Item], Result], items: Iterable[Item], execution: Execution) -> Iterator[Result]:
    return map_items(work, items, execution.workers, execution)


def _prepare(plan: RlPlan, folder: StudyFolder, execution: Execution) -> None:
    """Clone the base policies and train the reward heads that are missing."""
    list(_map(partial(make_base_policy, plan, folder), plan.tasks, execution))
    kinds = tuple(dict.fromkeys(parse_head(name)[0] for name in plan.learned_heads))
    missing = tuple(kind for kind in kinds if not last_head(kind, folder.heads).exists())
    if missing:
        clips = join_clips(list(_map(partial(_collect_clips, plan), plan.tasks, execution)))
        folder.heads.mkdir(parents=True, exist_ok=True)
        list(_map(partial(_train_head, plan, folder, clips), missing, execution))


def _collect_clips(plan: RlPlan, task: str) -> LabelledClips:
    return collect_clips(task, plan.heads, plan.control, plan.watch, plan.seed)


def _train_head(plan: RlPlan, folder: StudyFolder, clips: LabelledClips, kind: HeadKind) -> None:
    torch.set_num_threads(1)
    train_head(kind, clips, plan.heads, folder.heads, plan.seed)


def _measure(plan: RlPlan, folder: StudyFolder, execution: Execution) -> tuple[OfflineMeasures, ...]:
    if not plan.offline.episodes or plan.figure not in ("quality", "severity"):
        return ()
    files = _map(partial(score_held_out, plan, folder), held_out_clips(plan), execution)
    return measure_rewards(plan, list(files))


def _train(plan: RlPlan, folder: StudyFolder, execution: Execution) -> Iterator[TrainingRunResult]:
    """Yield every training run of the plan: those finished before at once, the others as they end."""
    done = [run for run in plan.training_runs() if folder.result(run).exists()]
    yield from (read_training_run(folder.result(run)) for run in done)
    left = [run for run in plan.training_runs() if run not in done]
    yield from _map(partial(train_or_fail, plan, folder), left, execution)


def train_or_fail(plan: RlPlan, folder: StudyFolder, run: TrainingRun) -> TrainingRunResult:
    """Train and write the record; an error fails this training run and stops no other."""
    folder.training_run(run).mkdir(parents=True, exist_ok=True)
    starts = _count_start(folder.starts(run))
    if starts > _MAX_STARTS:
        return _fail(folder, run, f"its process died {_MAX_STARTS} times")
    try:
        result = open_training_run(plan, folder, run).train()
    except RewardlabError as error:
        return _fail(folder, run, error_text(error))
    except (ArithmeticError, RuntimeError, ValueError, OSError) as error:  # of torch and of the simulator
        return _fail(folder, run, error_text(error, with_type=True))
    write_training_run(result, folder.result(run))
    for rest in (folder.checkpoint(run), folder.starts(run)):
        rest.unlink(missing_ok=True)
    return result


def _count_start(path: Path) -> int:
    count = 1 + (int(path.read_text(encoding="utf-8") or "0") if path.exists() else 0)
    with atomic_write(path) as partial_path:
        partial_path.write_text(str(count), encoding="utf-8")
    return count


def _fail(folder: StudyFolder, run: TrainingRun, reason: str) -> TrainingRunResult:
    none = FalseSuccess(0, 0, 0)
    names = (run.task, run.reward, run.condition, run.algorithm, run.seed)
    result = TrainingRunResult(*names, "failed", reason, None, None, (), 0, 0, "", none, none, (), (), 0.0, 0.0)
    write_training_run(result, folder.failure(run))
    return result


def _results(
    plan: RlPlan,
    folder: StudyFolder,
    command: str,
    offline: tuple[OfflineMeasures, ...],
    seconds: float,
    workers: int,
) -> RlResults:
    cloned = [task for task in plan.tasks if folder.policy_facts(task).exists()]
    facts = {task: read_policy_facts(folder.policy_facts(task)) for task in cloned}
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
        tuple(_ended_runs(plan, folder)),
        offline,
    )


def _ended_runs(plan: RlPlan, folder: StudyFolder) -> Iterator[TrainingRunResult]:
    """Yield the records of the training runs that are finished or failed, in the order of the plan."""
    for run in plan.training_runs():
        found = [path for path in (folder.result(run), folder.failure(run)) if path.exists()]
        yield from (read_training_run(path) for path in found[:1])


def _add_seconds(folder: StudyFolder, seconds: float) -> float:
    """Add the wall time of this start to that of earlier ones and return the sum."""
    path, before = folder.path / _SECONDS, 0.0
    if path.exists():
        before = float(read_json(path)["seconds"])
    with atomic_write(path) as partial_path:
        partial_path.write_text(json.dumps({"seconds": before + seconds}), encoding="utf-8")
    return before + seconds


@dataclass
class ResultTable:
    """The training runs that have ended, by series, as a table of rich."""

    total: int = 0
    results: list[TrainingRunResult] = field(default_factory=list)

    def add(self, result: TrainingRunResult, number: int, total: int) -> None:
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
            table.add_row(*key, base, success, _seeds(own))
        return table


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Show]:
    """Show training runs as they end: as a table on a terminal, else as one line each; with `quiet` not at all."""
    if quiet or not sys.stderr.isatty():
        yield _ignore if quiet else _print_line
        return
    table = ResultTable()
    with Live(table, console=terminal_console(stderr=True), refresh_per_second=1):
        yield table.add


def _ignore(result: TrainingRunResult, number: int, total: int) -> None:
    pass


def _print_line(result: TrainingRunResult, number: int, total: int) -> None:
    print(f"{number} of {total}: {training_run_line(result)}", file=sys.stderr, flush=True)


def training_run_line(result: TrainingRunResult) -> str:
    """Return a training run in one line."""
    condition = "" if result.condition == "clean" else f" under {result.condition}"
    head = f"{result.task}, {result.algorithm} on {result.reward}{condition}, seed {result.seed}"
    if result.status == "failed":
        return f"{head}: failed, {result.reason}"
    return f"{head}: {_percent([result.base_success])} to {_percent([result.success])} in {result.seconds:.0f} s"


def _series(result: TrainingRunResult) -> tuple[str, str, str, str]:
    return result.task, result.reward, result.condition, result.algorithm


def _seeds(results: list[TrainingRunResult]) -> str:
    failed = sum(result.status == "failed" for result in results)
    return f"{len(results) - failed}" + (f", {failed} failed" if failed else "")


def _percent(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.0%}" if known else "-"
