"""`augment`: settings, forecast of questions, the stages in order, what is printed."""

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.augmentation.batched_teacher import BatchedTeacher, CallCache, FactoryWorkers
from rewardlab.augmentation.labels import clip_episodes, validate_rows
from rewardlab.augmentation.questions import Role
from rewardlab.augmentation.rows import (
    SUCCESS,
    DatasetRow,
    Row,
    StageRows,
    joined,
    read_dataset,
    read_pairwise,
    read_rejected,
    write_dataset,
)
from rewardlab.augmentation.split import balance_of, sample_sources, split_rows
from rewardlab.augmentation.task_texts import relabel_counterfactually, rewrite_tasks
from rewardlab.augmentation.teachers import NamedTeacher, name_teacher
from rewardlab.core.catalog import find
from rewardlab.core.errors import Interrupted, PlanError, RunError, StoppedByModel, StopRun
from rewardlab.core.old_settings import EngineSettings, setting
from rewardlab.core.records import read_json
from rewardlab.core.run import Run, locked
from rewardlab.core.seeding import digest
from rewardlab.core.storage import atomic_write, store_address, writable
from rewardlab.core.terminal import one_line
from rewardlab.data.task_split import parse_shares
from rewardlab.models.contract import Budget
from rewardlab.models.ledger import LedgerFile, Spent

STAGES = ("rewrite", "counterfactual", "clip", "validate", "split")  # in this order
ALL = "all"


@dataclass(frozen=True)
class AugmentPlan:
    """Make failures and near misses of the successes of a dataset, validate them, and split by task."""

    data: str = setting("dataset folder or name, or the folder of an earlier stage", positional=True)
    out: Path = setting("folder to write: one dataset, or one folder for each of several stages", Path("augmented"))
    stage: tuple[str, ...] = setting(f"stages to do: {', '.join(STAGES)}; all does them in this order", (ALL,))
    vision: str = setting("teacher that sees: analysis, plan, validation; scripted, openai:... or hf:...", "scripted")
    text: str = setting("teacher that writes: rewriting and commands; scripted, openai:... or hf:...", "scripted")
    attempts: int = setting("times a teacher is asked for one thing before it is given up", 3)
    per_source: int = setting("episodes of each source that are used, drawn by the seed; 0 takes all", 1200)
    splits: tuple[str, ...] = setting("splits and their shares", ("train=0.8", "val=0.1", "test=0.1"))
    calls: Path | None = setting("folder of every answer of a teacher, maybe shared; by default in --out", None)
    max_requests: int | None = setting("stop before more than N requests to paid teachers", None)
    max_cost: float | None = setting("stop before paid teachers have cost more than this", None)
    skip_bad: bool = setting("leave out rows and videos with problems instead of stopping", False)
    quiet: bool = setting("print no estimate", False, short="-q")
    seed: int = setting("seed of everything that is random", 0)
    workers: int = setting("processes that teachers without a server and videos are spread over; 0: one per core", 0)
    engine_settings: EngineSettings = EngineSettings()

    def __post_init__(self) -> None:
        for name in self.stage:
            find({stage: stage for stage in (*STAGES, ALL)}, name, "stage")
        if store_address(self.out):
            raise PlanError(f"out must be a folder, one that all machines share for --engine ray, got {self.out}")
        if self.workers < 0:
            raise PlanError(f"workers must be 0 or more, got {self.workers}")
        if not self.stage or self.attempts < 1 or self.per_source < 0:
            raise PlanError("name a stage; attempts must be at least 1 and per-source 0 or more")
        if (self.max_requests or 0) < 0 or not 0 <= (self.max_cost or 0) < math.inf:
            raise PlanError("max-requests and max-cost must be 0 or more; leave out what has no limit")
        if not parse_shares(self.splits):
            raise PlanError("splits must name at least one split, such as train=1")

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the stages to do in their order."""
        return STAGES if ALL in self.stage else tuple(stage for stage in STAGES if stage in self.stage)

    @property
    def calls_folder(self) -> Path:
        """Return where answers and the ledger of what was paid are."""
        return self.out / ".calls" if self.calls is None else self.calls


@dataclass(frozen=True)
class AugmentCommand:
    """Make failures and near misses of the successes of a dataset, validate them, and split by task."""

    plan: AugmentPlan
    dry_run: bool = setting("print what would be asked at most, and ask and write nothing", False)


# What an augmentation will ask at most, told before anything is spent, and what it has cost so far.

_LEVELS = 4  # commands and clips made of a success


@dataclass(frozen=True)
class QuestionForecast:
    """Questions to each teacher, the least where every first answer is good and the most there can be."""

    successes: int
    least: dict[Role, int]
    most: dict[Role, int]
    teachers: dict[Role, NamedTeacher]
    spent: Spent

    @property
    def sentence(self) -> str:
        """Return all of it in one line."""
        asked = [
            f"{teacher.name} ({role}): {self.least[role]:,} to {self.most[role]:,} questions"
            + (" to a server" if teacher.server else "")
            for role, teacher in self.teachers.items()
        ]
        paid = [f"tokens and cost: {self._price()}"] if any(each.server for each in self.teachers.values()) else []
        return "; ".join([f"{self.successes:,} successes", *asked, *paid, "those answered before are not asked again"])

    def _price(self) -> str:
        """Return what a run from the beginning would cost by the answers so far."""
        spent = self.spent
        if not spent.replies:
            return "told after the first answers"
        least = sum(self.least[role] for role, teacher in self.teachers.items() if teacher.server)
        tokens = (spent.input_tokens + spent.output_tokens) / spent.replies * least
        cost = f"{spent.cost / spent.priced * least:.4g}" if spent.priced else "unknown"
        return f"about {tokens:,.0f} tokens or more, cost {cost} or more"


def forecast_questions(
    plan: AugmentPlan, rows: Sequence[DatasetRow], teachers: Mapping[Role, NamedTeacher]
) -> QuestionForecast:
    """Return what the stages of a plan ask about these rows."""
    sources = [row for row in rows if row.is_source]
    won = [row for row in sources if row.row.get("reward") == SUCCESS]
    unknown = sum(row.episode.label.progress is None for row in won)
    made = len(rows) - len(sources)
    least: dict[Role, int] = {"vision": 0, "text": 0}
    most: dict[Role, int] = {"vision": 0, "text": 0}
    tries = plan.attempts

    def add(role: Role, fewest: int, largest: int) -> None:
        least[role] += fewest
        most[role] += largest

    if "rewrite" in plan.stages:
        tasks = len({str(row.row["task"]) for row in sources})
        add("text", tasks, tasks * tries)
    if "counterfactual" in plan.stages:
        add("text", _LEVELS * len(won), _LEVELS * len(won) * tries)
        add("vision", (2 + _LEVELS) * len(won), (2 + _LEVELS * tries) * len(won) * tries)
        made += _LEVELS * len(won)
    if "clip" in plan.stages:
        add("vision", _LEVELS * unknown, _LEVELS * unknown * tries * tries)
        made += _LEVELS * (len(won) - unknown)
    if "validate" in plan.stages:
        add("vision", 0, made * tries)
    return QuestionForecast(len(won), least, most, dict(teachers), LedgerFile(plan.calls_folder).read())


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
        with FactoryWorkers(teachers, plan.workers, plan.engine_settings) as workers:
            interviewer = BatchedTeacher(teachers, budget, CallCache(plan.calls_folder), workers)
            try:
                stages = _run_stages(plan, rows, interviewer, workers)
            except (StopRun, KeyboardInterrupt) as stop:
                raise _stopped(plan, interviewer, stop) from None
    return Augmented(plan.out, stages, dict(interviewer.asked), dict(interviewer.known))


def forecast_augmentation(plan: AugmentPlan) -> QuestionForecast:
    """Return what a plan would ask at most; nothing is asked or written."""
    return forecast_questions(plan, _rows(plan), _teachers(plan))


def _run_stages(
    plan: AugmentPlan, rows: Sequence[DatasetRow], interviewer: BatchedTeacher, workers: FactoryWorkers
) -> tuple[StageReport, ...]:
    refused, pairwise, reports = read_rejected(plan.data), read_pairwise(plan.data), list[StageReport]()
    for stage in plan.stages:
        folder = plan.out if len(plan.stages) == 1 else plan.out / stage
        if stage == "split":
            reports.append(_split(plan, rows, workers, refused, pairwise))
            continue
        made = _STAGES[stage](rows, interviewer, plan.attempts)
        made = write_dataset(folder, made, refused, pairwise, workers.write_videos)
        refused = [*refused, *(row.row for row in made.rejected)]
        rows = made.kept
        reports.append(StageReport(stage, folder, len(rows), len(made.rejected), balance_of(rows).levels))
    return tuple(reports)


def _split(
    plan: AugmentPlan,
    rows: Sequence[DatasetRow],
    workers: FactoryWorkers,
    refused: Sequence[Row],
    pairwise: Sequence[Row],
) -> StageReport:
    """Write a dataset for each split, and the balance of all."""
    folder = plan.out if len(plan.stages) == 1 else plan.out / "split"
    parts = split_rows(rows, parse_shares(plan.splits), plan.seed, plan.calls_folder, workers.hash_videos)
    sources = {row.provenance["source_episode"]: name for name, members in parts.items() for row in members}
    written = dict[str, StageRows]()
    for name, members in parts.items():
        mine = [row for row in refused if sources.get(row["provenance"]["source_episode"]) == name]
        part = StageRows(tuple(members))
        written[name] = write_dataset(folder / name, part, mine, pairwise, workers.write_videos)
    report = {name: balance_of(part.kept).as_json() for name, part in written.items()}
    with atomic_write(folder / BALANCE) as partial:
        partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    every = joined(written.values())
    return StageReport("split", folder, len(every.kept), len(every.rejected), balance_of(every.kept).levels)


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


def _stopped(plan: AugmentPlan, interviewer: BatchedTeacher, stop: BaseException) -> Interrupted:
    kind = StoppedByModel if isinstance(stop, StopRun) else Interrupted
    count = Counter(interviewer.asked).total()
    why = str(stop) or "stopped by Ctrl-C"
    return kind(f"{why}; {count:,} questions were asked and are kept; the same command goes on from {plan.out}")


# What an augmentation made, as a person reads it on a terminal: one line for each stage, and what was asked.


def augmentation_lines(made: Augmented) -> list[str]:
    """Return one line for each stage, and one for the questions."""
    return [*map(_stage_line, made.stages), f"questions asked: {_counts(made.asked)}; known: {_counts(made.known)}"]


def _stage_line(report: StageReport) -> str:
    levels = ", ".join(f"{level}: {count:,}" for level, count in report.levels.items())
    refused = f", {report.rejected:,} refused" if report.rejected else ""
    return f"{report.stage}: {report.kept:,} rows{refused}; by level {levels}; {report.folder}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items()) or "none"
