"""Run: a folder that holds a plan, its trials and its report, and can be resumed after any interruption.

It may lie in an object store (`s3://`, `gs://`): then the folder is a working copy, and what is written goes there too.

Every file carries a checksum that is verified when it is read, and trials are checked against the plan. This detects
bit rot, mix-ups and careless edits, but nobody who writes every checksum anew.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardlab.core.errors import RunError
from rewardlab.core.records import TRIALS_DIGEST, checksummed, parse_json, read_checksummed_json
from rewardlab.core.run_files import (
    PartKind,
    RunRecord,
    encode_part,
    part_name,
    plan_differences,
    read_part,
    run_record,
)
from rewardlab.core.storage import ObjectStore, atomic_write, store_address, working_copy, writable, write_file
from rewardlab.core.summary import Measurement, Summary
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TRIAL_COLUMNS, TrialTable, join_parts, to_arrow, trial_schema, trials_digest

if TYPE_CHECKING:
    import pyarrow


RECORD, SUMMARY, ATTACK = "run.json", "summary.json", "attack.json"
_SHOWN = {"macro_mae": "MAE", "success_accuracy": "success accuracy", "kendall_tau_b": "tau-b"}  # in a notebook
_SMALL_PART, _MANY_SMALL_PARTS = 200_000, 8  # bytes of a part that is joined with others, and how many wait for it
REBUILD = "remove it and run the same command again to rebuild it"


@dataclass(frozen=True)
class Run:
    """A run folder: `run.json` says what was planned, `trials/*.parquet` what came out."""

    folder: Path
    store: ObjectStore | None = None  # where everything that is written here goes too

    def __repr__(self) -> str:
        try:
            record = self.record
            done = len(self.trials(("id", "status"), repeats=True))
            what = f"{record.kind} of {', '.join(record.evaluated)}, {done:,} of {record.trials:,} trials"
        except (RunError, OSError) as error:
            what = str(error)
        return f"Run({self.place!r}: {what})"

    @property
    def place(self) -> str:
        """Return where the run is, as its user calls it: the folder, or the address in an object store."""
        return str(self.folder) if self.store is None else self.store.address

    @property
    def record(self) -> RunRecord:
        """Return what run.json says: the plan, the command, the versions."""
        path = self.folder / RECORD
        try:
            content, has_checksum = read_checksummed_json(path)
            if not has_checksum:
                raise ValueError("it has no checksum, so this version did not write it")
            return run_record(content)
        except FileNotFoundError:
            raise RunError(
                f"{self.folder} is not a run folder: it has no {RECORD}; give the folder `stress` printed"
            ) from None
        except (ValueError, OSError) as error:
            raise RunError(
                f"{path} is no record of a run: {error}; restore it or start the run anew in another folder"
            ) from error

    def parts(self) -> list[Path]:
        """Return the Parquet parts written so far; what `compact` has joined comes before what was added since."""
        return sorted((self.folder / "trials").glob("*.parquet"))

    def trials(self, columns: Sequence[str] = TRIAL_COLUMNS, *, repeats: bool = False) -> TrialTable:
        """Return every trial once, ordered by id, so that no result depends on the order of work.

        Where `--repeats` asked the same again, those answers are left out but with `repeats`: they are no further
        episodes, and only the noise floor is made of them.

        `run.trials().to_pandas()` and `polars.DataFrame(run.trials())` are tables; docs/reference/trials.md says what
        each column is. A part that is damaged, or holds what the plan cannot have made, is refused. With `columns`,
        among them `id` and `status`, only those are kept in memory: what models said in words can be most of a run.
        """
        record, parts = self.record, self.parts()
        kept = dict.fromkeys((*columns, *(("repeat",) if record.plan.repeats > 1 else ())))
        tables = (read_part(path, record).select(list(kept)) for path in parts)
        table = join_parts(tables) if parts else trial_schema().empty_table()
        if table.num_rows > record.trials:
            raise RunError(f"{self.folder} holds {table.num_rows:,} trials, but its plan has {record.trials:,}")
        if parts and record.plan.repeats > 1 and not repeats:
            table = table.filter(table["repeat"].is_null()).combine_chunks()
        return TrialTable(table.select(list(columns)) if parts else table)

    def trials_called(self, ids: Collection[str]) -> list[Trial]:
        """Return the trials of these ids with everything that they hold, ordered by id; the others are not kept."""
        import pyarrow as pa
        import pyarrow.compute as pc

        record, parts, wanted = self.record, self.parts(), pa.array(sorted(ids), pa.string())
        whole = (read_part(path, record) for path in parts)
        tables = (part.filter(pc.is_in(part["id"].cast(pa.string()), wanted)) for part in whole)
        return TrialTable(join_parts(tables)).rows() if parts else []

    @property
    def page(self) -> Path:
        """Return where the report of this run is, or will be."""
        return self.folder / "report.html"

    @property
    def summary(self) -> Summary:
        """Return everything measured and found, as summary.json holds it; a run that was stopped has none yet.

        It must carry the digest of these very trials; `rewardlab.report` also computes it anew and compares.
        """
        found, digest = self.stored_summary()
        if found is None:
            raise RunError(f"{self.folder} has no {SUMMARY}: finish the run by running its command again")
        if digest != trials_digest(self.trials(repeats=True)):
            raise RunError(f"{self.folder / SUMMARY} was made of other trials than the run holds; {REBUILD}")
        return found

    def stored_summary(self) -> tuple[Summary | None, str | None]:
        """Return the content of summary.json, None if there is none, and the digest of its trials."""
        content = self.stored(SUMMARY)
        if content is None:
            return None, None
        digest = content.pop(TRIALS_DIGEST, None)
        try:
            return Summary.from_json(content), digest
        except ValueError as error:
            raise RunError(f"{self.folder / SUMMARY} is not a summary of this version: {error}; {REBUILD}") from error

    def stored(self, name: str) -> dict[str, Any] | None:
        """Return what a JSON file of the run holds, None where there is none; a damaged one is refused."""
        path = self.folder / name
        try:
            content, has_checksum = read_checksummed_json(path)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:  # bytes that are no text are a ValueError too
            raise RunError(f"cannot read {path}: {error}; {REBUILD}") from error
        if not has_checksum:
            raise RunError(f"{path} has no checksum, so this run did not write it; {REBUILD}")
        return content

    def _repr_html_(self) -> str:
        """Show the models on clean episodes and a link to the report, in a notebook."""
        summary = self.summary
        head = "".join(f"<th>{heading}</th>" for heading in ("model", *_SHOWN.values(), "scored"))
        rows = "".join(
            _html_row(model, [summary.clean(model, metric) for metric in _SHOWN]) for model in summary.models
        )
        link = f'<a href="{escape(self.page.resolve().as_uri())}">{escape(str(self.page))}</a>'
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{link if self.page.exists() else ''}"

    def append(self, trials: Sequence[Trial]) -> None:
        """Write trials as one part; afterwards they survive any crash of this process or machine."""
        self.append_table(to_arrow(trials))

    def append_table(self, table: "pyarrow.Table") -> None:
        """Write trials that are a table already, such as those of another shard, as one part."""
        if table.num_rows:
            self._write_part("part", table)

    def compact(self) -> None:
        """Join all parts into one, so that a finished run is the same file however it got there."""
        self._join("all", self.parts())

    @property
    def is_compact(self) -> bool:
        """Tell whether all trials are in one file, as `compact` leaves them when nothing is open any more."""
        return [path.name.startswith("all-") for path in self.parts()] == [True]

    def join_small_parts(self) -> None:
        """Join the small parts into one when there are many: few files, and never more in memory than those.

        What `compact` has joined stays as it is, so that parts added since are known to be newer.
        """
        added = (self.folder / "trials").glob("part-*.parquet")
        small = [path for path in sorted(added) if path.stat().st_size < _SMALL_PART]
        if len(small) > _MANY_SMALL_PARTS:
            self._join("part", small)

    def _join(self, kind: PartKind, old: Sequence[Path]) -> None:
        import pyarrow as pa

        record = self.record
        tables = (read_part(path, record) for path in old)
        target = self._write_part(kind, join_parts(tables) if old else trial_schema().empty_table())
        for path in old:
            if path != target:
                path.unlink()
                if self.store is not None:
                    self.store.remove(f"trials/{path.name}")
        pa.default_memory_pool().release_unused()  # a long run must not keep what it held for this

    def _write_part(self, kind: PartKind, table: "pyarrow.Table") -> Path:
        data = encode_part(table, self.record.plan_digest)
        path = self.folder / "trials" / part_name(kind, data)
        with atomic_write(path) as partial:  # of a folder that is there: where somebody removed it, this fails
            partial.write_bytes(data)
        if self.store is not None:
            self.store.write(f"trials/{path.name}", data)
        return path

    def publish(self) -> None:
        """Write to the object store what is new in the working copy, such as a report; without one, do nothing."""
        if self.store is not None:
            self.store.publish(self.folder)

    def save(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the run in one step, with the checksum of its content."""
        text = json.dumps(checksummed(content), indent=2, sort_keys=True, allow_nan=False) + "\n"
        with atomic_write(self.folder / name) as partial:
            partial.write_text(text, encoding="utf-8")
        if self.store is not None:
            self.store.write(name, text.encode())


def open_run(place: str | Path) -> Run:
    """Return the run in a folder, or at an address of an object store, of which a working copy is made."""
    address = store_address(place)
    if address is None:
        return Run(Path(place))
    run = Run(working_copy(address), ObjectStore(address))
    with writable(run.folder):
        ObjectStore(address).fetch(run.folder)
    return run


def start_run(folder: Path, record: Mapping[str, Any]) -> Run:
    """Create the run folder, or reopen it if it was planned alike; refuse to mix two plans."""
    run = open_run(folder)
    folder = run.folder
    try:
        content = parse_json(json.dumps(record))
        planned = run_record(content)
    except ValueError as error:
        raise RunError(f"this run cannot be written down: {error}") from error
    if (folder / RECORD).exists():
        if run.record.plan_digest != planned.plan_digest:
            there = run.stored(RECORD) or {}
            differ = "; ".join(plan_differences(there.get("plan", {}), content["plan"]))
            raise RunError(
                f"{run.place} holds a run with other settings: {differ}; choose another --out or remove that folder"
            )
        return run
    with writable(folder):
        (folder / "trials").mkdir(parents=True, exist_ok=True)
    run.save(RECORD, record)
    return run


def _html_row(model: str, found: Sequence[Measurement]) -> str:
    cells = [f"<td>{escape(model)}</td>"]
    for m in found:
        ends = "" if m.low is None or m.high is None else f" [{m.low:.2f}, {m.high:.2f}]"
        cells.append(f"<td>{'-' if m.value is None else f'{m.value:.2f}'}{ends}</td>")
    return f"<tr>{''.join(cells)}<td>{found[0].scored}/{found[0].asked}</td></tr>"


def claim_folder(
    path: Path, settings: Mapping[str, Any], *, where: str = "", defaults: Mapping[str, Any] | None = None
) -> None:
    """Write the settings that a folder is begun with into a file of it; RunError where it was begun with others.

    A folder that was begun before a setting existed has the default of that setting, where `defaults` holds one.
    """
    begun, known = (json.loads(json.dumps(each, default=str)) for each in (settings, defaults or {}))
    if path.exists():
        try:
            before = known | parse_json(path.read_bytes())
        except (ValueError, TypeError) as error:
            raise RunError(f"{path} is damaged: {error}; choose another --out or remove that folder") from error
        other = [name for name in before | begun if before.get(name) != begun.get(name)]
        if other:
            raise RunError(
                f"{where or path.parent} was begun with other settings ({', '.join(other)}); "
                "choose another --out or remove that folder"
            )
    write_file(path, json.dumps(begun, indent=2, sort_keys=True) + "\n")


@contextmanager
def timed(path: Path, step: str) -> Iterator[None]:
    """Add the seconds of a step to those that a JSON file sums up over all attempts."""
    started = time.monotonic()
    yield
    seconds = dict(read_seconds(path))
    seconds[step] = round(seconds.get(step, 0.0) + time.monotonic() - started, 2)
    write_file(path, json.dumps(seconds) + "\n")


def read_seconds(path: Path) -> dict[str, float]:
    """Return how long each step has taken so far."""
    found = parse_json(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: float(value) for name, value in found.items()}
