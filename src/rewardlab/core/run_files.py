"""The files of a run, validated when read: run.json, differences between plans, Parquet parts of trials."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from rewardlab.core.episode import FAILURE_CAUSES
from rewardlab.core.errors import RunError
from rewardlab.core.limits import TRIALS_MB
from rewardlab.core.records import json_digest, record_from_json
from rewardlab.core.trial import (
    CATEGORIES,
    CLEAN,
    FAILURE_ANSWERS,
    SEVERITIES,
    Decision,
    Expectation,
    Status,
    graded_parts,
)
from rewardlab.core.trial_table import (
    OPTIONAL_COLUMNS,
    TRIAL_COLUMNS,
    TRIAL_SCHEMA,
    map_pairs,
    trial_schema,
    with_optional_columns,
    with_plain_texts,
)

if TYPE_CHECKING:
    import pyarrow


_PROVENANCE_KEYS = ("command", "episodes", "trials", "skipped", "versions", "created")
_PER_MODEL_KEYS = ("caveats", "trained_tasks", "trained_on", "names", "prompts")  # by the name of the model
_KEYS = frozenset(("kind", "plan", "settings", "evaluated", *_PER_MODEL_KEYS, *_PROVENANCE_KEYS))
INSTRUCTION = "{instruction}"  # in a recorded prompt, the place of the instruction of a trial
SETTINGS = ("data", "perturbations", "frames", "seed", "limit", "demonstrations", "stages")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run that are shown or used again."""

    data: str
    perturbations: tuple[str, ...]
    frames: str
    seed: int
    limit: int | None
    demonstrations: bool | None  # None where the command has no such setting
    stages: bool | None = None  # whether stages were asked about too; None where the command cannot


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: models, perturbations (by the names in its trials), severities and seed."""

    models: tuple[str, ...]
    perturbations: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    accuracy_threshold: float
    data_digest: str
    graded: bool = False  # names of perturbations may state fractional severities
    repeats: int = 1  # how often each question is asked
    repeated: tuple[str, ...] = ()  # the models that are asked so often; the others always answer alike


@dataclass(frozen=True)
class SkippedRow:
    """A row of the dataset that was left out, and why."""

    place: str
    what: str


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json; `plan_digest` is the digest of the whole plan.

    `trained_tasks` and `trained_on`, public datasets, are those of evaluated models, where known; `names` are the short
    names that the user chose for models, `prompts` the prompts of models that have one.
    """

    kind: str
    plan: RunPlan
    plan_digest: str
    settings: RunSettings
    evaluated: tuple[str, ...]
    caveats: dict[str, str]
    trained_tasks: dict[str, tuple[str, ...]]
    trained_on: dict[str, tuple[str, ...]]
    names: dict[str, str]
    prompts: dict[str, str]
    command: str
    episodes: int
    trials: int
    skipped: tuple[SkippedRow, ...]
    versions: dict[str, str]
    created: str

    @property
    def version(self) -> str:
        """Return the version of rewardlab that made the run."""
        return self.versions.get("rewardlab", "unknown")


def run_record(content: Mapping[str, Any]) -> RunRecord:
    """Return the content of run.json as a record; a ValueError names the first invalid field."""
    foreign = sorted(str(key) for key in content if key not in _KEYS)
    if foreign:
        raise ValueError(f"unknown keys: {', '.join(foreign)}"[:200])
    settings, plan = _object(content, "settings"), _object(content, "plan")
    known = {name: content[name] for name in _KEYS & content.keys()}
    made: dict[str, Any] = {"kind": "stress", "skipped": [], **{name: {} for name in _PER_MODEL_KEYS}, **known}
    made["settings"], made["plan_digest"] = {name: settings.get(name) for name in SETTINGS}, json_digest(plan)
    made["plan"] = _plan(plan, settings, content.get("evaluated"))
    record = record_from_json(RunRecord, made)
    _check(record)
    return record


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be an object, got {str(found)[:60]!r}")
    return found


def _plan(plan: Mapping[str, Any], settings: Mapping[str, Any], evaluated: object) -> dict[str, Any]:
    """Return the plan with the names that trials use; a simulated study has them in `evaluated` and `settings`."""
    return {
        "models": list(_object(plan, "models")) if "models" in plan else evaluated,
        "perturbations": list(_object(plan, "definitions")) if "definitions" in plan else settings.get("perturbations"),
        "severities": plan.get("severities", list(SEVERITIES)),
        "seed": plan.get("seed"),
        "accuracy_threshold": plan.get("accuracy_threshold"),
        "data_digest": plan.get("data_digest", ""),
        "graded": plan.get("kind") == "attack",
        "repeats": plan.get("repeats", 1),
        "repeated": plan.get("repeated", []),
    }


def _check(record: RunRecord) -> None:
    plan = record.plan
    wrong = [severity for severity in plan.severities if severity not in SEVERITIES]
    if wrong:
        raise ValueError(f"plan.severities must be among 0, 1, 2, 3, 4, got {wrong[0]}")
    if not 0 <= plan.accuracy_threshold <= 1:
        raise ValueError(f"plan.accuracy_threshold must be from 0 to 1, got {plan.accuracy_threshold}")
    if plan.repeats < 1 or not set(plan.repeated) <= set(plan.models):
        raise ValueError("plan.repeats must be 1 or more, and plan.repeated name models of the plan")
    if not record.evaluated or not set(record.evaluated) <= set(plan.models):
        raise ValueError("evaluated must name one or more of the models of the plan")
    taken = [name for model, name in record.names.items() if name != model and name in plan.models]
    if taken:
        raise ValueError(f"a short name must not be the name of another model: {taken[0]!r}")
    if record.trials < 0 or record.episodes < 0:
        raise ValueError("episodes and trials must not be negative")


# Differences between a plan and the plan of the run that is already in the folder.

_PLAN_PHRASES = {"data_digest": "the episodes", "definitions": "the definition of perturbation", "models": "the model"}
_ABSENT: Mapping[str, Any] = {"kind": "stress", "repeats": 1, "repeated": []}  # what a plan without the key means
_MAX_TEXT = 60


def plan_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting of two plans, as JSON holds them, with its old and its new value where they differ."""
    for key in _changed(old, new):
        before, now = (plan.get(key, _ABSENT.get(key)) for plan in (old, new))
        if isinstance(before, dict) and isinstance(now, dict):
            yield from (_member(_PLAN_PHRASES.get(key, key), name, before, now) for name in _changed(before, now))
        elif key == "data_digest":
            yield "the episodes of the dataset have changed"
        else:
            yield f"{key} was {_text(before)} and is {_text(now)}"


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]


def _member(what: str, name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if name not in now:
        return f"{what} {name} was removed"
    if name not in before:
        return f"{what} {name} was added"
    return f"it was made with another version of {name if what == 'the model' else f'{what} {name}'}"


def _text(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


# Validation of trials against the plan of their run; an error names the first invalid row.

_REQUIRED = ("id", "episode", "video", "subset", "task", "instruction", "shown", "frames_hash")
_RANGES = {  # of numbers that are not null
    ("from 1 to 5", 1, 5): ("level", "truth_level", "uncalibrated_level"),
    ("from 0 to 1", 0, 1): ("set_coverage", "guard_risk", "guard_success_probability", "abstention_probability"),
    ("0 or more", 0, 1e15): (
        *("disagreement", "skipped_members", "input_tokens", "output_tokens", "cost"),
        *("failure_frame", "truth_failure_frame"),
    ),
}
_BLOCK = 20_000  # trials per validation of lists, which takes ten times the memory of the lists
Rule = tuple[str, str, Any]  # a column, what it must be, and a mask of the rows where it is


def check_trials(table: "pyarrow.Table", plan: RunPlan) -> None:
    """Raise a ValueError that names the first trial that is not of the plan or has an impossible value."""
    import pyarrow.compute as pc

    for column, expected, holds in (*_value_rules(table, plan), *_list_rules(table)):
        row = pc.index(holds, False).as_py()
        if row >= 0:
            got = str(table[column][row].as_py())
            raise ValueError(f"row {row}: {column} must be {expected}, got {got[:60]!r}")


def _value_rules(table: "pyarrow.Table", plan: RunPlan) -> Iterator[Rule]:
    import pyarrow.compute as pc

    for column in _REQUIRED:
        yield column, "present", pc.is_valid(table[column])
    for column, expected, allowed in (
        ("model", "a model of the plan", plan.models),
        ("perturbation", "a perturbation of the plan", _perturbations(table, plan)),
        ("category", "a category", (CLEAN, *CATEGORIES)),
        ("severity", "a severity of the plan", (0, *plan.severities)),
        ("seed", f"{plan.seed}, as in the plan", (plan.seed,)),
        ("expectation", "a known expectation", get_args(Expectation)),
        ("status", "scored, failed or dropped", get_args(Status)),
        ("guard_decision", "a known decision of a guard", (None, *get_args(Decision))),
        ("truth_failure_cause", "a known cause", (None, *FAILURE_CAUSES)),
        ("failure_cause", "a known cause", (None, *FAILURE_ANSWERS)),
    ):
        yield column, expected, _among(table, column, allowed)
    clean = pc.equal(table["perturbation"], CLEAN)
    for column, value in (("category", CLEAN), ("severity", 0)):
        yield column, f"{value} if and only if the episode is clean", pc.equal(clean, pc.equal(table[column], value))
    there = {column: pc.is_valid(table[column]) for column in ("level", "guard_decision", "guard_risk", "seconds")}
    again = pc.greater_equal(table["repeat"], 1), pc.less(table["repeat"], plan.repeats)
    yield "repeat", f"missing, or from 1 to {plan.repeats - 1}", pc.fill_null(pc.and_(*again), True)
    scored = pc.equal(table["status"], "scored")
    yield "level", "present if and only if the trial is scored", pc.equal(scored, there["level"])
    guarded = pc.equal(there["guard_decision"], there["guard_risk"])
    yield "guard_risk", "present if and only if a guard decided", guarded
    yield "seconds", "0 or more", pc.and_(there["seconds"], _within(table["seconds"], 0, 1e12))
    for (expected, low, high), columns in _RANGES.items():
        for column in columns:
            yield column, expected, _within(table[column], low, high)
    for column in ("novelty", "training_distance", "distance_limit", "log_probability"):
        yield column, "a finite number", pc.fill_null(pc.is_finite(table[column]), True)


def _perturbations(table: "pyarrow.Table", plan: RunPlan) -> tuple[str, ...]:
    """Return the names that trials of the plan may have; in a graded plan also names that state a severity up to 4."""
    import pyarrow.compute as pc

    planned = (CLEAN, *plan.perturbations)
    if not plan.graded:
        return planned
    found = [name for name in pc.unique(table["perturbation"]).to_pylist() if name is not None]
    known = {*plan.perturbations}
    graded = {name: graded_parts(name) for name in found}
    fits = [n for n, parts in graded.items() if all(base in known and 0 < at <= SEVERITIES[-1] for base, at in parts)]
    return (*planned, *(name for name in fits if graded[name]))


def _list_rules(table: "pyarrow.Table") -> Iterator[Rule]:
    import pyarrow.compute as pc

    sizes = pc.list_value_length(table["probabilities"])
    yield "probabilities", "five numbers", pc.fill_null(pc.equal(sizes, 5), True)
    yield "probabilities", "numbers from 0 to 1", _each(table, "probabilities", lambda x: _within(x, 0, 1))
    for column in ("progress", "truth_progress"):
        yield column, "finite numbers", _each(table, column, lambda x: pc.fill_null(pc.is_finite(x), False))
    yield "truth_stages", "0 or 1", _each(table, "truth_stages", lambda x: _within(x, 0, 1))
    yield "shown", "indices of frames", _each(table, "shown", lambda x: _within(x, 0, 2**31 - 1))
    yield "prediction_set", "levels from 1 to 5", _each(table, "prediction_set", lambda x: _within(x, 1, 5))
    probs = _each(table, "failure_probabilities", lambda x: _within(pc.struct_field(x, "value"), 0, 1))
    yield "failure_probabilities", "numbers from 0 to 1", probs
    for column in ("member_levels", "frame_quality", "guard_shift"):
        yield column, "finite numbers", _each(table, column, lambda x: pc.is_finite(pc.struct_field(x, "value")))
    texts = _each(table, "member_failures", lambda x: pc.is_valid(pc.struct_field(x, "value")))
    yield "member_failures", "texts", texts


def _among(table: "pyarrow.Table", column: str, allowed: tuple[object, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table.schema.field(column).type
    names = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pc.is_in(table[column], value_set=pa.array(list(allowed), type=names))


def _within(values: Any, low: float, high: float) -> Any:
    """Return a mask of the values that are null or in the range; nan is not in it."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)), True)


def _each(table: "pyarrow.Table", column: str, holds: Callable[[Any], Any]) -> Any:
    """Return a mask of the rows whose list or map has only items for which `holds` is true; it is false for null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    blocks = (chunk.slice(start, _BLOCK) for chunk in table[column].chunks for start in range(0, len(chunk), _BLOCK))
    found = []
    for block in blocks:
        lists = map_pairs(block) if pa.types.is_map(block.type) else block
        flat = lists.flatten()
        sound = pc.fill_null(pc.and_(pc.is_valid(flat), holds(flat)), False).to_numpy(zero_copy_only=False)
        rows = np.ones(len(lists), dtype=bool)
        rows[pc.list_parent_indices(lists).to_numpy()[~sound]] = False
        found.append(pa.array(rows))
    return pa.chunked_array(found, pa.bool_())


# Trials in Parquet files with a checksum in their names, which is verified whenever a file is read.

PartKind = Literal["part", "all"]  # some trials as they were scored, or all of the run
_NAME = re.compile(r"(?:part|all)-([0-9a-f]{32})\.parquet")
_PLAN = b"rewardlab.plan"  # key of the digest of the plan in the Parquet metadata
_SCHEMA = b"rewardlab.trial_schema"  # key of the version of the columns; files without it have version 1
_ROW_GROUP = 100_000  # trials


def encode_part(table: "pyarrow.Table", plan_digest: str) -> bytes:
    """Return trials as a Parquet file with a checksum on every page and the digest of their plan."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    bound = table.replace_schema_metadata({_PLAN: plan_digest.encode(), _SCHEMA: str(TRIAL_SCHEMA).encode()})
    schema = with_plain_texts(bound.slice(0, 0)).schema
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, table.num_rows, _ROW_GROUP):  # only so many trials are written out at a time
            writer.write_table(with_plain_texts(bound.slice(start, _ROW_GROUP)))
    return bytes(sink.getvalue())


def part_name(kind: PartKind, data: bytes) -> str:
    """Return the name of the file that holds these bytes."""
    return f"{kind}-{_checksum(data)}.parquet"


def read_part(path: Path, record: RunRecord) -> "pyarrow.Table":
    """Return the trials in a file; RunError if it is damaged or belongs to another run."""
    import pyarrow as pa

    try:
        table = _decode(_checked_bytes(path), record)
        check_trials(table, record.plan)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"cannot read {path}: {what}; {_REMEDY}") from error
    return table


_REMEDY = (
    "remove that part and run the same command again: its trials are scored again; if you got the run from "
    "somebody, copy it again"
)


def _checked_bytes(path: Path) -> bytes:
    """Return the bytes of a file of bounded size, which must have the checksum in its name."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    size = path.stat().st_size
    if size > TRIALS_MB.in_bytes:
        raise ValueError(f"{size / 1e6:,.0f} MB of trials, {TRIALS_MB.describe()}")
    data, named = path.read_bytes(), _NAME.fullmatch(path.name)
    if named is None:
        raise ValueError("its name has no checksum, so this run did not write it")
    if named[1] != _checksum(data):
        raise ValueError("its content does not have the checksum in its name, so it was damaged or edited")
    return data


def _checksum(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


def _decode(data: bytes, record: RunRecord) -> "pyarrow.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(pa.BufferReader(data))
    if (schema.metadata or {}).get(_PLAN) != record.plan_digest.encode():
        raise ValueError("it belongs to a run with another plan")
    version = (schema.metadata or {}).get(_SCHEMA, b"1").decode("utf-8", "replace")
    if version != str(TRIAL_SCHEMA):
        raise ValueError(
            f"its trials have schema {version[:20]}, and this version reads {TRIAL_SCHEMA}; upgrade rewardlab"
        )
    known = {*TRIAL_COLUMNS} - {*OPTIONAL_COLUMNS} | {*schema.names}  # runs of earlier versions lack some
    expected = pa.schema([field for field in trial_schema() if field.name in known])
    if not schema.equals(expected):
        raise ValueError(f"its columns are not those of trials: {_difference(schema, expected)}")
    # Dictionaries hold a text that repeats a million times only once; plain columns would need far more memory.
    metadata = pq.read_metadata(pa.BufferReader(data))
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True)
    _check_size(file.metadata, record)
    # One column after the other: decoding takes twice the memory of what is decoded.
    table = pa.table({column.name: _column(file, column) for column in schema})
    _check_text_size(table)
    table.validate(full=True)
    for place, column in enumerate(schema):
        if pa.types.is_map(column.type):  # Arrow cannot unify dictionaries inside maps
            table = table.set_column(place, column.name, table[place].cast(column.type))
    return with_optional_columns(table)


def _column(file: "pyarrow.parquet.ParquetFile", column: "pyarrow.Field") -> "pyarrow.ChunkedArray":
    """Return a column of a file; of a map each row group has dictionaries of its own, which Arrow cannot join."""
    import pyarrow as pa

    if not pa.types.is_map(column.type) or file.num_row_groups < 2:
        return file.read([column.name], use_threads=False)[column.name]
    groups = [file.read_row_group(number, [column.name], use_threads=False) for number in range(file.num_row_groups)]
    return pa.chunked_array([chunk for group in groups for chunk in group[column.name].chunks])


def _difference(schema: "pyarrow.Schema", trials: "pyarrow.Schema") -> str:
    expected, found = ({field.name: field.type for field in each} for each in (trials, schema))
    names = [name for name in (*expected, *found) if expected.get(name) != found.get(name)]
    if not names:
        return "they are in another order"
    return f"{names[0][:60]!r} is {found.get(names[0], 'missing')}, not {expected.get(names[0], 'a column')}"


def _check_size(metadata: "pyarrow.FileMetaData", record: RunRecord) -> None:
    if metadata.num_rows > record.trials:
        raise ValueError(f"{metadata.num_rows:,} trials, but the plan has {record.trials:,}")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    _limit_size(sum(max(column.total_uncompressed_size, 8 * column.num_values) for column in columns))


def _check_text_size(table: "pyarrow.Table") -> None:
    import pyarrow.compute as pc

    texts = [text for column in table.columns for chunk in column.chunks for text in _texts(chunk)]
    sizes = [pc.sum(pc.take(pc.binary_length(text.dictionary), text.indices)).as_py() or 0 for text in texts]
    _limit_size(sum(sizes))


def _texts(column: "pyarrow.Array") -> "Iterator[pyarrow.DictionaryArray]":
    """Yield the column if it holds texts, or the names and the texts of a map."""
    import pyarrow as pa

    if pa.types.is_map(column.type):
        yield from (*_texts(column.keys), *_texts(column.items))
    elif pa.types.is_dictionary(column.type):
        yield column


def _limit_size(size: int) -> None:
    if size > TRIALS_MB.in_bytes:
        raise ValueError(f"{size / 1e6:,.0f} MB of trials in memory, {TRIALS_MB.describe()}")
