"""Score, Failure and Trial: one scored cell of a study, and the table of many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import ModelError

if TYPE_CHECKING:
    import pyarrow

Expectation = Literal["same", "lower", "relabel", "reversed", "undefined"]
Status = Literal["scored", "failed", "dropped"]

CLEAN = "clean"  # the name of the perturbation that changes nothing


@dataclass(frozen=True)
class Score:
    """A model's answer: a level in [1, 5] and, if it has them, probabilities over the levels and per-frame progress."""

    level: float
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None


@dataclass(frozen=True)
class Failure:
    """A model gave no usable answer; nothing stands in for it."""

    reason: str


Answer = Score | Failure


def checked(answer: object, shown_frames: int) -> Answer:
    """Return the answer if it keeps the contract, else the Failure that says how it broke it."""
    if isinstance(answer, Failure):
        return answer
    if not isinstance(answer, Score):
        return Failure(f"expected a Score or a Failure, got {type(answer).__name__}")
    try:
        _check_score(answer, shown_frames)
    except ModelError as error:
        return Failure(str(error))
    return answer


def _check_score(score: Score, shown_frames: int) -> None:
    if not (math.isfinite(score.level) and 1 <= score.level <= 5):
        raise ModelError(f"level must be a number from 1 to 5, got {score.level}")
    chances = score.probabilities
    if chances is not None and not (
        len(chances) == 5 and all(0 <= p <= 1 for p in chances) and abs(sum(chances) - 1) < 1e-3
    ):
        raise ModelError(f"probabilities must be five numbers that sum to 1, got {chances}")
    progress = score.progress
    if progress is not None and not (len(progress) == shown_frames and all(math.isfinite(p) for p in progress)):
        raise ModelError(f"progress must be {shown_frames} finite numbers, one per frame, got {len(progress)}")


@dataclass(frozen=True)
class Trial:
    """One cell: episode x perturbation x severity x model, with what was expected and what came."""

    id: str
    model: str
    episode: str
    video: str
    subset: str
    task: str
    perturbation: str
    category: str
    severity: int
    seed: int
    expectation: Expectation
    truth_level: int | None
    truth_success: bool | None
    truth_progress: tuple[float, ...] | None
    instruction: str
    shown: tuple[int, ...]
    frames_hash: str
    status: Status
    level: float | None = None
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None
    reason: str | None = None
    seconds: float = 0.0


def trial_schema() -> "pyarrow.Schema":
    """Return the Parquet schema of trials: one column per field of Trial."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    types = {
        "severity": pa.int8(),
        "seed": pa.int64(),
        "truth_level": pa.int8(),
        "truth_success": pa.bool_(),
        "truth_progress": numbers,
        "shown": pa.list_(pa.int32()),
        "level": pa.float64(),
        "probabilities": numbers,
        "progress": numbers,
        "seconds": pa.float64(),
    }
    return pa.schema([(f.name, types.get(f.name, pa.string())) for f in fields(Trial)])


def to_arrow(trials: Sequence[Trial]) -> "pyarrow.Table":
    """Return trials as an Arrow table with the trial schema."""
    import pyarrow as pa

    columns = {f.name: [getattr(trial, f.name) for trial in trials] for f in fields(Trial)}
    return pa.table(columns, schema=trial_schema())


@dataclass(frozen=True, eq=False)
class TrialTable:
    """Many trials as columns; missing numbers are nan. Metrics read this."""

    arrow: "pyarrow.Table"

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def text(self, column: str) -> NDArray[np.object_]:
        """Return a text column as an object array."""
        return np.asarray(self.arrow[column].to_pylist(), dtype=object)

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a numeric or boolean column as floats, nan where missing."""
        import pyarrow as pa

        return np.asarray(self.arrow[column].cast(pa.float64()).to_numpy(), dtype=np.float64)

    def where(self, mask: NDArray[np.bool_]) -> "TrialTable":
        """Return the trials at which the mask is true."""
        import pyarrow as pa

        return TrialTable(self.arrow.filter(pa.array(mask)))

    def rows(self) -> list[Trial]:
        """Return the trials as objects; for few trials, not for statistics."""
        return [_trial(row) for row in self.arrow.to_pylist()]


def _trial(row: dict[str, Any]) -> Trial:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Trial(**values)
