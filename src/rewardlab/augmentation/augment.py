"""`data augment`: failures made from successes, stage by stage; its settings, its forecast and what it prints."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

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
    read_rejected,
    write_dataset,
)
from rewardlab.augmentation.rules import RULES, source_of
from rewardlab.augmentation.split import balance_of, sample_sources, split_rows
from rewardlab.augmentation.task_texts import relabel_counterfactually, rewrite_tasks
from rewardlab.augmentation.teachers import SCRIPTED, NamedTeacher, name_teacher, rules_teacher
from rewardlab.core.catalog import find
from rewardlab.core.errors import DataError, Interrupted, PlanError, RunError, StoppedByModel, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Budget, Demonstrations, Execution, Help, Seed, SkipInvalid, several
from rewardlab.core.storage import locked, store_address, writable, write_file
from rewardlab.core.terminal import one_line
from rewardlab.data.sources import IF_DEMONSTRATIONS
from rewardlab.data.task_split import parse_shares, split_by_shares
from rewardlab.models import contract
from rewardlab.models.ledger import LedgerFile, Spent

STAGES = ("rewrite", "counterfactual", "clip", "validate", "split")  # in this order
ALL = "all"
RECORD, BALANCE = "augment.json", "balance.json"
_LEVELS = 4  # commands and clips made of a success
_STAGES = {
    "rewrite": rewrite_tasks,
    "counterfactual": relabel_counterfactually,
    "clip": clip_episodes,
    "validate": validate_rows,
}


@dataclass(frozen=True)
class StageReport:
    """What one stage wrote: how many rows it kept and rejected, and how many it kept of each level."""

    stage: str
    folder: Path
    kept: int
    rejected: int
    levels: dict[str, int]


@dataclass(frozen=True)
class Augmented:
    """What was made: the stages, and by kind how many questions went to teachers and how many the cache answered."""

    folder: Path
    cache_dir: Path
    stages: tuple[StageReport, ...]
    queried: dict[str, int]
    cached: dict[str, int]


def data_augment(
    data: Annotated[str | Path, Help("dataset folder or name, or the folder of an earlier stage")],
    *,
    out: Annotated[
        Path | str, Help("folder to write: one dataset, or one folder per stage where there are several")
    ] = Path("augmented"),
    stage: Annotated[
        str | Sequence[str], Help(f"stages to run: {', '.join(STAGES)}; all runs them in this order", metavar="STAGE")
    ] = (ALL,),
    vision: Annotated[
        str, Help("teacher that sees videos (analysis, plan, validation): scripted, rules, openai:... or hf:...")
    ] = SCRIPTED,
    text: Annotated[
        str, Help("teacher that writes text (rewriting, commands): scripted, rules, openai:... or hf:...")
    ] = SCRIPTED,
    attempts: Annotated[int, Help("queries of a teacher for one text before giving up", more=True)] = 3,
    per_source: Annotated[int, Help("episodes to use of each source, drawn by the seed; 0 uses all")] = 1200,
    splits: Annotated[str | Sequence[str], Help("splits and their shares", metavar="NAME=SHARE")] = (
        "train=0.8",
        "val=0.1",
        "test=0.1",
    ),
    unvalidated: Annotated[bool, Help("also split rows that only rules graded")] = False,
    cache_dir: Annotated[
        Path | str | None, Help("folder of all teacher answers; several runs may share it; default: OUT/.calls")
    ] = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    seed: Seed = 0,
    execution: Execution = Execution(),
    budget: Budget = Budget(),
) -> Augmented:
    """Turn successes of a dataset into failures and near misses, validate their labels, and split by task.

    The same command continues a stopped run and repeats no question to a teacher.

    Examples:
        rewardlab data augment sample-sim --out negatives
        rewardlab data augment sample --vision rules --text rules --unvalidated --out negatives
        rewardlab data augment demos --vision openai:gpt-5@URL --text openai:gpt-5@URL --max-cost 20 --dry-run
    """
    plan = _checked_plan(locals())
    rows = _read_rows(plan)
    plan = _with_instructions(plan, rows)
    if not execution.quiet:
        print(one_line(_forecast(plan, rows).sentence), file=sys.stderr)
    if "split" in plan.stages:  # refused now, not when all is made
        split_by_shares([row.episode for row in rows if row.is_source], parse_shares(plan.splits), (), plan.seed)
    for folder in (plan.out, plan.cache_dir):
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
    with locked(plan.cache_dir):
        _claim_folder(plan, rows)
        spending = contract.Budget(budget.max_requests, budget.max_cost, plan.cache_dir)
        with FactoryWorkers(plan.teachers, execution) as workers:
            teacher = BatchedTeacher(plan.teachers, spending, CallCache(plan.cache_dir), workers)
            try:
                stages = _run_stages(plan, rows, teacher, workers)
            except (StopRun, KeyboardInterrupt) as stop:
                raise _stopped(plan, teacher, stop) from None
    return Augmented(plan.out, plan.cache_dir, stages, dict(teacher.queried), dict(teacher.cached))


def forecast_augmentation(**settings: Any) -> "QuestionForecast":
    """Return what `data_augment` with all these settings would send at most; nothing is sent or written."""
    plan = _checked_plan(settings)
    return _forecast(plan, _read_rows(plan))


@dataclass(frozen=True)
class _Plan:
    """The settings after they were checked."""

    data: str
    out: Path
    stages: tuple[str, ...]
    teachers: dict[Role, NamedTeacher]
    attempts: int
    per_source: int
    splits: tuple[str, ...]
    cache_dir: Path
    demonstrations: bool
    skip_invalid: bool
    seed: int
    unvalidated: bool


def _checked_plan(given: Mapping[str, Any]) -> _Plan:
    """Return the settings of `data_augment` after a check; PlanError where they cannot be followed."""
    out, chosen, splits = Path(given["out"]), several(given["stage"]), several(given["splits"])
    attempts, per_source, cache_dir = given["attempts"], given["per_source"], given["cache_dir"]
    for name in chosen:
        find({known: known for known in (*STAGES, ALL)}, name, "stage")
    if store_address(out):
        raise PlanError(f"out must be a folder, one that all machines share for --engine ray, got {out}")
    if not chosen or attempts < 1 or per_source < 0:
        raise PlanError("name a stage; attempts must be at least 1 and per-source 0 or more")
    if not parse_shares(splits):
        raise PlanError("splits must name at least one split, such as train=1")
    stages = STAGES if ALL in chosen else tuple(known for known in STAGES if known in chosen)
    teachers = {role: name_teacher(given[role]) for role in get_args(Role)}
    cache = out / ".calls" if cache_dir is None else Path(cache_dir)
    if teachers["vision"].name == RULES and "split" in stages and not given["unvalidated"]:
        raise PlanError(
            "nobody has validated the rows that --vision rules grades, so they are not split: use --vision "
            "openai:MODEL@URL; or name the other stages in --stage and validate with `rewardlab data verify`; or add "
            "--unvalidated"
        )
    as_given = (given[name] for name in ("demonstrations", "skip_invalid", "seed", "unvalidated"))
    rest = (attempts, per_source, splits, cache, *as_given)
    return _Plan(str(given["data"]), out, stages, teachers, *rest)


def _read_rows(plan: _Plan) -> list[DatasetRow]:
    """Return the rows to work on: those of so many episodes of each source; PlanError where no teacher knows them."""
    found = read_dataset(plan.data, demonstrations=plan.demonstrations, skip_invalid=plan.skip_invalid)
    rows = sample_sources(found, plan.per_source, plan.seed)
    successes = [row for row in rows if row.is_source and row.row.get("reward") == SUCCESS]
    if not successes and {"counterfactual", "clip"} & set(plan.stages):
        raise DataError(f"no row of {plan.data} states a success, of which negatives are made; {IF_DEMONSTRATIONS}")
    scripted = [role for role, teacher in plan.teachers.items() if teacher.name.partition("?")[0] == SCRIPTED]
    asked = {
        "counterfactual": successes if scripted else [],
        "clip": [row for row in successes if row.episode.label.progress is None] if "vision" in scripted else [],
        "validate": [row for row in rows if not row.is_source] if "vision" in scripted else [],
    }
    for stage in plan.stages:
        if asked.get(stage) and all(row.episode.sim_state is None for row in asked[stage]):
            raise PlanError(
                f"the scripted teacher knows simulated episodes alone, and {plan.data} has none for {stage}; name "
                + " and ".join(f"--{role} openai:MODEL@URL or hf:FOLDER" for role in scripted)
            )
    return rows


def _with_instructions(plan: _Plan, rows: Sequence[DatasetRow]) -> _Plan:
    """Return the plan with the instructions of the dataset known to the rules teacher."""
    said: dict[str, set[str]] = {}
    for row in rows:
        if row.is_source:
            said.setdefault(source_of(row.episode), set()).add(str(row.row["task"]))
    known = rules_teacher({source: sorted(texts) for source, texts in sorted(said.items())})
    return replace(plan, teachers={role: known if t.name == RULES else t for role, t in plan.teachers.items()})


@dataclass(frozen=True)
class QuestionForecast:
    """Questions to each teacher: the fewest, if every first answer is accepted, and the most there can be."""

    successes: int
    least: dict[Role, int]
    most: dict[Role, int]
    teachers: dict[Role, NamedTeacher]
    spent: Spent

    @property
    def sentence(self) -> str:
        """Return the forecast in one line."""
        counts = [
            f"{teacher.name} ({role}): {self.least[role]:,} to {self.most[role]:,} questions"
            + (" to a server" if teacher.server else "")
            for role, teacher in self.teachers.items()
        ]
        paid = [f"tokens and cost: {self._price()}"] if any(each.server for each in self.teachers.values()) else []
        return "; ".join([f"{self.successes:,} successes", *counts, *paid, "cached answers are reused"])

    def _price(self) -> str:
        """Return what a run from the beginning would cost, going by the answers so far."""
        spent = self.spent
        if not spent.replies:
            return "known after the first answers"
        least = sum(self.least[role] for role, teacher in self.teachers.items() if teacher.server)
        tokens = (spent.input_tokens + spent.output_tokens) / spent.replies * least
        cost = f"{spent.cost / spent.priced * least:.4g}" if spent.priced else "unknown"
        return f"about {tokens:,.0f} tokens or more, cost {cost} or more"


def _forecast(plan: _Plan, rows: Sequence[DatasetRow]) -> QuestionForecast:
    sources = [row for row in rows if row.is_source]
    successes = [row for row in sources if row.row.get("reward") == SUCCESS]
    count, unknown = len(successes), sum(row.episode.label.progress is None for row in successes)
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
        add("text", _LEVELS * count, _LEVELS * count * tries)
        add("vision", (2 + _LEVELS) * count, (2 + _LEVELS * tries) * count * tries)
        made += _LEVELS * count
    if "clip" in plan.stages:
        add("vision", _LEVELS * unknown, _LEVELS * unknown * tries * tries)
        made += _LEVELS * (count - unknown)
    if "validate" in plan.stages:
        add("vision", 0, made * tries)
    return QuestionForecast(count, least, most, plan.teachers, LedgerFile(plan.cache_dir).read())


def _claim_folder(plan: _Plan, rows: Sequence[DatasetRow]) -> None:
    from rewardlab.core.run import claim_folder

    teachers = plan.teachers
    settings = {
        "data": plan.data,
        "stages": list(plan.stages),
        "teachers": {role: teacher.name for role, teacher in teachers.items()},
        "identity": digest(*(teacher.identity for teacher in teachers.values())),
        "attempts": plan.attempts,
        "per_source": plan.per_source,
        "demonstrations": plan.demonstrations,
        "splits": list(plan.splits),
        "seed": plan.seed,
        "unvalidated": plan.unvalidated,
    }
    videos = {"videos": digest(*(row.episode.clip.source.digest for row in rows))}
    try:
        claim_folder(plan.out / RECORD, settings | videos, defaults=videos)
    except RunError as error:
        raise RunError(f"{error} (--cache-dir {plan.cache_dir} keeps what teachers have answered)") from error


def _run_stages(
    plan: _Plan, rows: Sequence[DatasetRow], teacher: BatchedTeacher, workers: FactoryWorkers
) -> tuple[StageReport, ...]:
    rejected, reports = read_rejected(plan.data), list[StageReport]()
    for stage in plan.stages:
        folder = plan.out if len(plan.stages) == 1 else plan.out / stage
        if stage == "split":
            reports.append(_split(plan, folder, rows, workers, rejected))
            continue
        made = _STAGES[stage](rows, teacher, plan.attempts)
        made = write_dataset(folder, made, rejected, workers.write_videos)
        rejected = [*rejected, *(row.row for row in made.rejected)]
        rows = made.kept
        reports.append(StageReport(stage, folder, len(rows), len(made.rejected), balance_of(rows).levels))
    return tuple(reports)


def _split(
    plan: _Plan, folder: Path, rows: Sequence[DatasetRow], workers: FactoryWorkers, rejected: Sequence[Row]
) -> StageReport:
    """Write one dataset per split, and the balance of all of them."""
    if (graded := sum(row.unvalidated for row in rows)) and not plan.unvalidated:
        raise PlanError(
            f"{graded:,} of {len(rows):,} rows were graded by rules and validated by nobody; run --stage validate with "
            "--vision openai:MODEL@URL or `rewardlab data verify` first, or split them as they are with --unvalidated"
        )
    parts = split_rows(rows, parse_shares(plan.splits), plan.seed, plan.cache_dir, workers.hash_videos)
    sources = {row.provenance["source_episode"]: name for name, members in parts.items() for row in members}
    written = dict[str, StageRows]()
    for name, members in parts.items():
        own = [row for row in rejected if sources.get(row["provenance"]["source_episode"]) == name]
        part = StageRows(tuple(members))
        written[name] = write_dataset(folder / name, part, own, workers.write_videos)
    report = {name: asdict(balance_of(part.kept)) for name, part in written.items()}
    write_file(folder / BALANCE, json.dumps(report, indent=2) + "\n")
    every = joined(written.values())
    return StageReport("split", folder, len(every.kept), len(every.rejected), balance_of(every.kept).levels)


def _stopped(plan: _Plan, teacher: BatchedTeacher, stop: BaseException) -> Interrupted:
    kind, count = StoppedByModel if isinstance(stop, StopRun) else Interrupted, teacher.queried.total()
    why = str(stop) or "stopped by Ctrl-C"
    return kind(f"{why}; the answers to {count:,} questions are kept; the same command continues in {plan.out}")


def augmentation_lines(made: Augmented) -> list[str]:
    """Return what is printed of a finished augmentation: one line per stage, and one about the questions."""
    lines = []
    for report in made.stages:
        levels = ", ".join(f"{level}: {count:,}" for level, count in report.levels.items())
        rejected = f", {report.rejected:,} rejected" if report.rejected else ""
        lines.append(f"{report.stage}: {report.kept:,} rows{rejected}; by level {levels}; {report.folder}")
    queried, cached = (
        ", ".join(f"{kind} {count:,}" for kind, count in counts.items()) or "none"
        for counts in (made.queried, made.cached)
    )
    return [*lines, f"questions to teachers: {queried}; answered by the cache: {cached}"]
