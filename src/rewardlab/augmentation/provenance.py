"""Provenance: what every row says of where it comes from, who wrote it, what was asked, and who judged it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewardlab.augmentation.teacher_questions import Attempt
from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.seeding import digest

Row = dict[str, Any]
PROVENANCE, ORIGINAL_TASK = "provenance", "original_task"
UNSTATED = "unstated"
STAGES_OF_ROWS = ("source", "rewrite", "counterfactual", "clip")
_KINDS = {"row": str, "source_episode": str, "stage": str, "history": list, "verdicts": list, "license": str}
SUCCESS = 5


@dataclass(frozen=True, eq=False)
class DatasetRow:
    """One row of a dataset as its file has it, and the episode that it names."""

    row: Row
    episode: Episode
    video: Path | None = None  # the file in which an earlier stage wrote what the episode shows

    @property
    def provenance(self) -> Row:
        """Return where the row comes from."""
        found: Row = self.row[PROVENANCE]
        return found

    @property
    def original_task(self) -> str:
        """Return the task description of the source dataset."""
        return str(self.row[ORIGINAL_TASK])

    @property
    def is_source(self) -> bool:
        """Tell whether the row is an episode as it was recorded, its text maybe rewritten."""
        return self.provenance["stage"] in ("source", "rewrite")

    def changed(self, columns: Row, provenance: Row) -> "DatasetRow":
        """Return the row with other columns, of which None takes one away, and other keys of its provenance."""
        row = {**self.row, **columns, PROVENANCE: {**self.provenance, **provenance}}
        return replace(self, row={key: value for key, value in row.items() if value is not None})

    def judged(self, by: str, rationale: str, prompt_hash: str, *, verdict: bool) -> "DatasetRow":
        """Return the row with one more verdict."""
        entry = {"by": by, "verdict": verdict, "rationale": rationale, "prompt_hash": prompt_hash}
        return self.changed({}, {"verdicts": [*self.provenance["verdicts"], entry]})

    def refused(self, stage: str, reason: str) -> "DatasetRow":
        """Return the row as it is kept among those that were refused."""
        return self.changed({}, {"rejected": reason, "rejected_at": stage})


def with_provenance(row: Row, episode: Episode) -> DatasetRow:
    """Return a row with its provenance: as it is where it has one, else that of a row as it came."""
    if PROVENANCE in row:
        require_provenance(row)
        return DatasetRow(row, episode)
    about = {
        "row": digest("source", episode.id, episode.instruction),
        "source_episode": episode.id,
        "stage": "source",
        "teacher": "",
        "prompt_hash": "",
        "attempt": 1,
        "history": [],
        "verdicts": [],
        "license": str(row.get("license") or UNSTATED),
    }
    level = {} if episode.truth.level is None else {"reward": episode.truth.level}
    return DatasetRow({**row, **level, ORIGINAL_TASK: episode.instruction, PROVENANCE: about}, episode)


def require_provenance(row: Row) -> None:
    """Check what a stage needs of the provenance of a row that another stage made, or somebody else."""
    about, name = row[PROVENANCE], str(row.get("file_name"))[:80]
    if not isinstance(about, dict) or not isinstance(row.get(ORIGINAL_TASK), str):
        raise DataError(
            f"{name!r}: expected an object as {PROVENANCE} and a text as {ORIGINAL_TASK}; make the row anew"
        )
    for key, kind in _KINDS.items():
        if not isinstance(about.get(key), kind):
            raise DataError(f"{name!r}: {PROVENANCE} needs {key}, {kind.__name__}; make the row anew")
    if about["stage"] not in STAGES_OF_ROWS or not all(_is_verdict(each) for each in about["verdicts"]):
        known = ", ".join(STAGES_OF_ROWS)
        raise DataError(
            f"{name!r}: {PROVENANCE} needs a stage ({known}) and verdicts with by and verdict; make it anew"
        )


def _is_verdict(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("by"), str) and isinstance(entry.get("verdict"), bool)


@dataclass(frozen=True)
class StageRows:
    """What a stage made: the rows to go on with, and those it refused."""

    kept: tuple[DatasetRow, ...]
    rejected: tuple[DatasetRow, ...] = ()


def joined(parts: Iterable[StageRows]) -> StageRows:
    """Return the rows of several parts as those of one."""
    kept, rejected = list[DatasetRow](), list[DatasetRow]()
    for part in parts:
        kept += part.kept
        rejected += part.rejected
    return StageRows(tuple(kept), tuple(rejected))


def made_row(source: DatasetRow, stage: str, level: int, history: Sequence[Attempt], columns: Row) -> DatasetRow:
    """Return a row that a stage made of a source: its level, its other columns, and the history of asking."""
    last = next((each for each in reversed(history) if each.kind != "validate"), None)
    about = {
        "row": digest(str(source.provenance["row"]), stage, level, str(columns.get("file_name", ""))),
        "stage": stage,
        "teacher": last.teacher if last else "",
        "prompt_hash": last.prompt_hash if last else "",
        "attempt": last.attempt if last else 1,
        "history": [*source.provenance["history"], *(each.as_json() for each in history)],
        "verdicts": [],
    }
    return source.changed({"reward": level, "success": level == SUCCESS, **columns}, about)
