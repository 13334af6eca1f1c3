"""From a dataset to its augmented one: the stages in their order, each a dataset of its own that the next one reads."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.augmentation.augment_plan import AugmentPlan
from rewardlab.augmentation.call_cache import CallCache
from rewardlab.augmentation.counterfactual_relabelling import relabel_counterfactually
from rewardlab.augmentation.dataset_rows import read_dataset, read_pairwise, read_rejected, write_dataset
from rewardlab.augmentation.episode_clipping import clip_episodes
from rewardlab.augmentation.interviews import Interviewer
from rewardlab.augmentation.label_balance import balance_of
from rewardlab.augmentation.label_validation import validate_rows
from rewardlab.augmentation.provenance import DatasetRow, Row, StageRows
from rewardlab.augmentation.question_forecast import QuestionForecast, forecast_questions
from rewardlab.augmentation.task_rewriting import rewrite_tasks
from rewardlab.augmentation.task_split import sample_sources, split_rows
from rewardlab.augmentation.teacher_questions import Role
from rewardlab.augmentation.teachers import NamedTeacher, name_teacher
from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import Interrupted, RunError, StoppedByModel, StopRun
from rewardlab.core.run import Run, atomic_write, locked, writable
from rewardlab.core.seeding import digest
from rewardlab.core.terminal_text import one_line
from rewardlab.data.conversion.task_splits import parse_shares
from rewardlab.data.duplicates import HashedVideo, Video
from rewardlab.models.contract import Budget
from rewardlab.runner.thread_map import map_threads

_THREADS = min(4, os.cpu_count() or 1)  # each holds the frames that its decoder refers to
RECORD, BALANCE = "augment.json", "balance.json"
_STAGES = {
    "rewrite": rewrite_tasks,
    "counterfactual": relabel_counterfactually,
    "clip": clip_episodes,
    "validate": validate_rows,
}


@dataclass(frozen=True)
class StageReport:
    """What one stage wrote: how many rows it kept and refused, in all and by level."""

    stage: str
    folder: Path
    kept: int
    rejected: int
    levels: dict[str, int]


@dataclass(frozen=True)
class Augmented:
    """What was made: the stages, and how many questions were asked and how many the cache answered, by kind."""

    folder: Path
    stages: tuple[StageReport, ...]
    asked: dict[str, int]
    known: dict[str, int]


def augment_dataset(plan: AugmentPlan) -> Augmented:
    """Do the stages of a plan; a run that was stopped goes on without asking anything twice."""
    teachers = _teachers(plan)
    rows = _rows(plan)
    if not plan.quiet:
        print(one_line(forecast_questions(plan, rows, teachers).sentence), file=sys.stderr)
    for folder in (plan.out, plan.calls_folder):
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
    with locked(Run(plan.calls_folder)):
        _claim_folder(plan, teachers)
        budget = Budget(plan.max_requests, plan.max_cost, plan.calls_folder)
        interviewer = Interviewer(teachers, budget, CallCache(plan.calls_folder))
        try:
            stages = _run_stages(plan, rows, interviewer)
        except (StopRun, KeyboardInterrupt) as stop:
            raise _stopped(plan, interviewer, stop) from None
    return Augmented(plan.out, stages, dict(interviewer.asked), dict(interviewer.known))


def forecast_augmentation(plan: AugmentPlan) -> QuestionForecast:
    """Return what a plan would ask at most; nothing is asked or written."""
    return forecast_questions(plan, _rows(plan), _teachers(plan))


def _run_stages(plan: AugmentPlan, rows: Sequence[DatasetRow], interviewer: Interviewer) -> tuple[StageReport, ...]:
    refused, pairwise, reports = read_rejected(plan.data), read_pairwise(plan.data), list[StageReport]()
    for stage in plan.stages:
        folder = plan.out if len(plan.stages) == 1 else plan.out / stage
        if stage == "split":
            reports.append(_split(plan, rows, refused, pairwise))
            continue
        made = _STAGES[stage](rows, interviewer, plan.attempts)
        write_dataset(folder, made, refused, pairwise)
        refused = [*refused, *(row.row for row in made.rejected)]
        rows = made.kept
        reports.append(StageReport(stage, folder, len(rows), len(made.rejected), balance_of(rows).levels))
    return tuple(reports)


def _split(
    plan: AugmentPlan, rows: Sequence[DatasetRow], refused: Sequence[Row], pairwise: Sequence[Row]
) -> StageReport:
    """Write a dataset for each split, and the balance of all."""
    folder = plan.out if len(plan.stages) == 1 else plan.out / "split"
    parts = split_rows(rows, parse_shares(plan.splits), plan.seed, plan.calls_folder, _map)
    sources = {row.provenance["source_episode"]: name for name, members in parts.items() for row in members}
    for name, members in parts.items():
        mine = [row for row in refused if sources.get(row["provenance"]["source_episode"]) == name]
        write_dataset(folder / name, StageRows(tuple(members)), mine, pairwise)
    report = {name: balance_of(members).as_json() for name, members in parts.items()}
    with atomic_write(folder / BALANCE) as partial:
        partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return StageReport("split", folder, len(rows), 0, balance_of(rows).levels)


def _map(work: Callable[[Video], HashedVideo], videos: Sequence[Video]) -> Iterator[HashedVideo]:
    return map_threads(work, videos, _THREADS)


def _teachers(plan: AugmentPlan) -> dict[Role, NamedTeacher]:
    return {"vision": name_teacher(plan.vision), "text": name_teacher(plan.text)}


def _rows(plan: AugmentPlan) -> list[DatasetRow]:
    """Return the rows to work on; episodes that are left out are so before anything is asked about them."""
    return sample_sources(read_dataset(plan.data, skip_bad=plan.skip_bad), plan.per_source, plan.seed)


def _claim_folder(plan: AugmentPlan, teachers: dict[Role, NamedTeacher]) -> None:
    """Write down what is made here, or check that it is the same."""
    settings = {
        "data": plan.data,
        "stages": list(plan.stages),
        "teachers": {role: teacher.name for role, teacher in teachers.items()},
        "identity": digest(*(teacher.identity for teacher in teachers.values())),
        "attempts": plan.attempts,
        "per_source": plan.per_source,
        "splits": list(plan.splits),
        "seed": plan.seed,
    }
    path = plan.out / RECORD
    if path.exists() and _read_settings(path) != settings:
        raise RunError(f"{plan.out} holds an augmentation with other settings; choose another --out or remove it")
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _read_settings(path: Path) -> object:
    try:
        return read_json(path)
    except ValueError:
        return None


def _stopped(plan: AugmentPlan, interviewer: Interviewer, stop: BaseException) -> Interrupted:
    kind = StoppedByModel if isinstance(stop, StopRun) else Interrupted
    count = Counter(interviewer.asked).total()
    why = str(stop) or "stopped by Ctrl-C"
    return kind(f"{why}; {count:,} questions were asked and are kept; the same command goes on from {plan.out}")
