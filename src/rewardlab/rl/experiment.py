"""`rewardlab study rl`: base policies, reward heads, every cell of the plan, and what the rewards are worth offline."""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from rewardlab.core import __version__
from rewardlab.core.errors import RewardlabError, RunError
from rewardlab.core.old_settings import as_command
from rewardlab.core.records import read_json, record_to_json
from rewardlab.core.storage import atomic_write, locked, writable
from rewardlab.core.trial import error_text
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.rl import RlRunPlan
from rewardlab.rl.offline_measures import evaluate_world, held_out_worlds, measure_rewards
from rewardlab.rl.plan import RlPlan, RunFolder, TrainingRun, check_models, read_rl_plan
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

_MAX_STARTS = 2  # of a cell by one command: the third process is told that two died of it
_SECONDS = "seconds.json"


def run_rl(command: RlRunPlan, show: Callable[[TrainingRunResult, int, int], None]) -> RlResults:
    """Carry out a plan, or what is left of it, and return everything that is finished; `show` is told of each cell."""
    plan, folder, started = read_rl_plan(command.plan), RunFolder(command.out.resolve()), time.monotonic()
    check_models(plan)
    with writable(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    offline: tuple[OfflineMeasures, ...] = ()
    with locked(folder.path):
        _claim(plan, folder)
        try:
            _prepare(plan, folder, command)
            offline = _measure(plan, folder, command)  # before the long part, so that a stopped study has it too
            for number, result in enumerate(_train(plan, folder, command), start=1):
                show(result, number, len(plan.cells()))
        finally:  # a study that is stopped has a record too, of what is finished
            spent = _add_seconds(folder, time.monotonic() - started)
            results = _results(plan, folder, command, offline, spent)
            write_results(results, folder.path)
    return results


def _claim(plan: RlPlan, folder: RunFolder) -> None:
    """Write down what is run here, or check that it is the same; let cells that failed be tried again."""
    written = json.dumps(record_to_json(plan), indent=1, sort_keys=True) + "\n"
    if folder.plan.exists() and folder.plan.read_text(encoding="utf-8") != written:
        raise RunError(f"{folder.path} holds another plan; choose another --out or remove that folder")
    with atomic_write(folder.plan) as partial_path:
        partial_path.write_text(written, encoding="utf-8")
    for cell in plan.cells():
        folder.starts(cell).unlink(missing_ok=True)
        folder.failure(cell).unlink(missing_ok=True)


def _prepare(plan: RlPlan, folder: RunFolder, command: RlRunPlan) -> None:
    """Clone the base policies and train the reward heads that are not there yet."""
    _each(partial(make_base_policy, plan, folder), plan.tasks, command)
    kinds = tuple(dict.fromkeys(parse_head(name)[0] for name in plan.learned_heads))
    missing = tuple(kind for kind in kinds if not last_head(kind, folder.heads).exists())
    if missing:
        collect = partial(_collect_clips, plan)
        clips = join_clips(list(map_items(collect, plan.tasks, command.workers, command.engine_settings)))
        folder.heads.mkdir(parents=True, exist_ok=True)
        _each(partial(_train_head, plan, folder, clips), missing, command)


def _collect_clips(plan: RlPlan, task: str) -> LabelledClips:
    return collect_clips(task, plan.heads, plan.control, plan.watch, plan.seed)


def _train_head(plan: RlPlan, folder: RunFolder, clips: LabelledClips, kind: HeadKind) -> None:
    torch.set_num_threads(1)
    train_head(kind, clips, plan.heads, folder.heads, plan.seed)


def _each(work: Callable[..., None], items: "tuple[object, ...]", command: RlRunPlan) -> None:
    for _ in map_items(work, items, command.workers, command.engine_settings):
        pass


def _train(plan: RlPlan, folder: RunFolder, command: RlRunPlan) -> Iterator[TrainingRunResult]:
    """Yield every cell of the plan: those finished before at once, the others as they end."""
    done = [cell for cell in plan.cells() if folder.result(cell).exists()]
    yield from (read_training_run(folder.result(cell)) for cell in done)
    left = [cell for cell in plan.cells() if cell not in done]
    yield from map_items(partial(train_or_fail, plan, folder), left, command.workers, command.engine_settings)


def train_or_fail(plan: RlPlan, folder: RunFolder, cell: TrainingRun) -> TrainingRunResult:
    """Train a cell and write its record; what goes wrong in it is its own failure and stops no other cell."""
    folder.cell(cell).mkdir(parents=True, exist_ok=True)
    starts = _count_start(folder.starts(cell))
    if starts > _MAX_STARTS:
        return _fail(folder, cell, f"its process died {_MAX_STARTS} times")
    try:
        result = open_training_run(plan, folder, cell).run()
    except RewardlabError as error:
        return _fail(folder, cell, error_text(error))
    except (ArithmeticError, RuntimeError, ValueError, OSError) as error:  # of torch and of the simulator
        return _fail(folder, cell, error_text(error, with_type=True))
    write_training_run(result, folder.result(cell))
    for rest in (folder.checkpoint(cell), folder.starts(cell)):
        rest.unlink(missing_ok=True)
    return result


def _count_start(path: Path) -> int:
    count = 1 + (int(path.read_text(encoding="utf-8") or "0") if path.exists() else 0)
    with atomic_write(path) as partial_path:
        partial_path.write_text(str(count), encoding="utf-8")
    return count


def _fail(folder: RunFolder, cell: TrainingRun, reason: str) -> TrainingRunResult:
    none = FalseSuccess(0, 0, 0)
    names = (cell.task, cell.reward, cell.condition, cell.algorithm, cell.seed)
    result = TrainingRunResult(*names, "failed", reason, None, None, (), 0, 0, "", none, none, (), (), 0.0, 0.0)
    write_training_run(result, folder.failure(cell))
    return result


def _measure(plan: RlPlan, folder: RunFolder, command: RlRunPlan) -> tuple[OfflineMeasures, ...]:
    if not plan.offline.episodes or plan.figure not in ("quality", "severity"):
        return ()
    judge = partial(evaluate_world, plan, folder)
    files = map_items(judge, held_out_worlds(plan), command.workers, command.engine_settings)
    return measure_rewards(plan, list(files))


def _results(
    plan: RlPlan, folder: RunFolder, command: RlRunPlan, offline: tuple[OfflineMeasures, ...], seconds: float
) -> RlResults:
    cloned = [task for task in plan.tasks if folder.policy_facts(task).exists()]
    facts = {task: read_policy_facts(folder.policy_facts(task)) for task in cloned}
    return RlResults(
        __version__,
        json.dumps(record_to_json(plan)),
        plan.title,
        plan.figure,
        as_command("rl-run", command),
        round(seconds, 1),
        command.workers or os.cpu_count() or 1,
        {task: success for task, (success, _) in facts.items()},
        {task: share for task, (_, share) in facts.items()},
        tuple(_training_run_records(plan, folder)),
        offline,
    )


def _training_run_records(plan: RlPlan, folder: RunFolder) -> Iterator[TrainingRunResult]:
    """Yield the records of the cells that are finished or failed, in the order of the plan."""
    for cell in plan.cells():
        found = [path for path in (folder.result(cell), folder.failure(cell)) if path.exists()]
        yield from (read_training_run(path) for path in found[:1])


def _add_seconds(folder: RunFolder, seconds: float) -> float:
    """Add the wall time of this start to that of earlier ones and return the sum."""
    path, before = folder.path / _SECONDS, 0.0
    if path.exists():
        before = float(read_json(path)["seconds"])
    with atomic_write(path) as partial_path:
        partial_path.write_text(json.dumps({"seconds": before + seconds}), encoding="utf-8")
    return before + seconds
