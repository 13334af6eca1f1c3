"""The verified split: the rows that a majority of their annotators confirms, at the level that they give."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.storage import writable
from rewardlab.core.trial import SUCCESS_LEVEL
from rewardlab.data.roboreward_rows import METADATA, Row, views_of
from rewardlab.data.row_listing import ListedRow, RowListing, rows_on_lines
from rewardlab.data.safe_files import path_inside
from rewardlab.serving.verdicts import FLAGGED, REJECTED, Verdict, majority

REJECTED_ROWS = "rejected.jsonl"

Verdicts = Mapping[str, Mapping[str, Verdict]]  # row, person


@dataclass(frozen=True)
class JudgedRow:
    """A row with its verdicts: the level that they give, or why the row is left out."""

    row: ListedRow
    verdicts: tuple[Verdict, ...]
    level: int | None
    left_out: str


@dataclass(frozen=True)
class VerifiedSplit:
    """The rows with at least one verdict."""

    listing: RowListing
    judged: tuple[JudgedRow, ...]

    @property
    def kept(self) -> tuple[JudgedRow, ...]:
        """Return the rows of the split."""
        return tuple(row for row in self.judged if row.level is not None)

    def sentence(self) -> str:
        """Return how many rows are in the split, and why others are not."""
        reasons = Counter(row.left_out for row in self.judged if row.level is None)
        corrected = sum(row.level != row.row.level for row in self.kept)
        out = "".join(f", {count} {reason}" for reason, count in sorted(reasons.items()))
        unseen = len(self.listing.rows) - len(self.judged)
        return f"{len(self.kept)} verified rows ({corrected} at a corrected level){out}, {unseen} not judged"


def verified_split(listing: RowListing, verdicts: Verdicts) -> VerifiedSplit:
    """Return the outcome of each row that has verdicts."""
    judged: list[JudgedRow] = []
    for row in listing.rows:
        if given := tuple(verdicts.get(row.key, {}).values()):
            outcome = majority(given)
            known = {REJECTED: "rejected", FLAGGED: "flagged", None: "disputed"}.get(outcome, "")
            judged.append(JudgedRow(row, given, None if known else outcome, known))
    return VerifiedSplit(listing, tuple(judged))


def verified_rows(split: VerifiedSplit, *, kept: bool) -> Iterator[Row]:
    """Yield the rows of the split, or those that are left out, each with its verdicts."""
    chosen = {each.row.line: each for each in split.judged if (each.level is not None) == kept}
    for line, row in rows_on_lines(split.listing, set(chosen)):
        yield _verified_row(row, chosen[line])


def metadata_line(row: Row) -> str:
    """Return a row as a line of metadata."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def _verified_row(row: Row, judged: JudgedRow) -> Row:
    """Return the row with the level that people gave it, and with their verdicts added to its provenance."""
    provenance = row.get("provenance")
    made = dict(provenance) if isinstance(provenance, dict) else {}
    before = made.get("verdicts")
    given = [
        {
            "by": f"person:{verdict.annotator}",
            "verdict": verdict.decision == "accept",
            "rationale": verdict.note,
            "prompt_hash": "",
            "decision": verdict.decision,
            "level": verdict.level,
            "rationale_seen": verdict.rationale_seen,
            "at": verdict.made_at,
            **_failure_columns(verdict.failure_cause, verdict.failure_frame),
        }
        for verdict in judged.verdicts
    ]
    made["verdicts"] = [*(before if isinstance(before, list) else ()), *given]
    if "unvalidated" in made:
        made["unvalidated"] = judged.level is None
    if judged.level is None:
        made |= {"rejected": f"people say: {judged.left_out}", "rejected_at": "verify"}
    failure = _agreed_failure(judged)
    if failure or judged.level == SUCCESS_LEVEL:  # what the row says of a failure holds no longer
        row = {key: value for key, value in row.items() if key not in ("failure_cause", "failure_frame")} | failure
    if judged.level in (None, judged.row.level):
        return row | {"provenance": made}
    made["proposed_level"] = judged.row.level
    changed = {key: value for key, value in row.items() if key != "progress"}  # it ends at the wrong level
    return changed | {"reward": judged.level, "success": judged.level == 5, "provenance": made}


def _agreed_failure(judged: JudgedRow) -> Row:
    """Return the cause that more than half of those who named one give, at the middle one of their frames."""
    named = [verdict for verdict in judged.verdicts if verdict.failure_cause and verdict.level == judged.level]
    for cause, count in Counter(verdict.failure_cause for verdict in named).items():
        if 2 * count > len(named):
            frames = [v.failure_frame for v in named if v.failure_cause == cause and v.failure_frame is not None]
            return _failure_columns(cause, median_low(frames) if frames else None)
    return {}


def _failure_columns(cause: str, frame: int | None) -> Row:
    return ({"failure_cause": cause} if cause else {}) | ({} if frame is None else {"failure_frame": frame})


def write_verified_split(split: VerifiedSplit, target: Path) -> None:
    """Write the split as a dataset with its videos, and beside it the rows that are left out; all or nothing."""
    if target.exists():
        raise PlanError(f"{target} exists already; name a new folder, or remove it")
    if not split.kept:
        raise DataError(
            f"no row of {split.listing.folder} is verified yet; start `rewardlab data verify` and judge some"
        )
    partial = target.with_name(f".{target.name}.partial")
    with writable(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file, kept in ((METADATA, True), (REJECTED_ROWS, False)):
            with (partial / file).open("w", encoding="utf-8") as handle:
                for row in verified_rows(split, kept=kept):
                    if kept:
                        _copy_files(split.listing.folder, row, partial)
                    handle.write(metadata_line(row))
        partial.rename(target)


def _copy_files(folder: Path, row: Row, target: Path) -> None:
    """Copy the files of a row: the videos of every view, and the record of its world if it has one."""
    world = row.get("world")
    views = views_of(str(row["file_name"]), row).items()
    named: dict[str, object] = {"file_name": row["file_name"], **{f"views.{camera}": place for camera, place in views}}
    if isinstance(world, dict) and "file" in world:
        named["world.file"] = world["file"]
    for key, name in named.items():
        source = path_inside(folder, name, key)
        if not source.is_file():
            raise DataError(f"{source}: the file does not exist; correct {key} or add it")
        copy = target / str(name)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
