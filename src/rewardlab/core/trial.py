"""Score, Failure and Trial: one scored cell of a study, and the table of many."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import ModelError, ModelRaised
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.trial_columns import as_dictionary, with_plain_texts

if TYPE_CHECKING:
    import pyarrow

Category = Literal["visual", "semantic", "temporal", "domain", "pair"]
Expectation = Literal["same", "lower", "relabel", "reversed", "undefined"]
Status = Literal["scored", "failed", "dropped"]

_MAX_REASON = 2_000  # characters of an error that are kept
_BLOCK = 50_000  # trials held at a time where each takes much memory
SEVERITIES = (0, 1, 2, 3, 4)
CLEAN = "clean"  # the name of the perturbation that changes nothing
CATEGORIES: tuple[Category, ...] = ("visual", "semantic", "temporal", "domain", "pair")  # of perturbations


@dataclass(frozen=True)
class Score:
    """A model's answer: a level in [1, 5] and, if it has them, probabilities over the levels and per-frame progress."""

    level: float
    probabilities: tuple[float, ...] | None = None
    progress: tuple[float, ...] | None = None
    raw: str | None = None


@dataclass(frozen=True)
class Failure:
    """A model gave no usable answer; nothing stands in for it. `raw` is what it said, if it said anything."""

    reason: str
    raw: str | None = None


Answer = Score | Failure


def validate_answer(answer: object, shown_frames: int) -> Answer:
    """Return the answer if it keeps the contract, else the Failure that says how it broke it."""
    try:
        if isinstance(answer, Failure):
            return Failure(_bounded(answer.reason), None if answer.raw is None else _bounded(answer.raw))
        if not isinstance(answer, Score):
            return Failure(f"expected a Score or a Failure, got {type(answer).__name__}")
        score = _plain_score(answer)
        _check_score(score, shown_frames)
    except Exception as error:  # what a model puts into an answer may be an object of any kind
        return failure_of(error, with_type=not isinstance(error, ModelError | TypeError | ValueError))
    return score


def failure_of(error: BaseException, *, with_type: bool = True) -> Failure:
    """Return the Failure of a model that raised this."""
    return Failure(error_text(error, with_type=with_type and not isinstance(error, ModelRaised)))


def error_text(error: BaseException, *, with_type: bool = False) -> str:
    """Return what an error says as text that can be written, of bounded length, whatever its class does."""
    try:
        said = _printable(error)
    except Exception:
        said = "an error that cannot be told"
    return f"{type(error).__name__}: {said}"[:_MAX_REASON] if with_type else said[:_MAX_REASON]


def _plain_score(score: Score) -> Score:
    """Return the score in plain numbers and printable text, whatever kinds of numbers the model used."""
    if isinstance(score.level, str):
        raise ModelError(f"level must be a number from 1 to 5, got the text {score.level!r}")
    probs = None if score.probabilities is None else tuple(float(p) for p in score.probabilities)
    progress = None if score.progress is None else tuple(float(p) for p in score.progress)
    return Score(float(score.level), probs, progress, None if score.raw is None else _bounded(score.raw))


def _bounded(text: object) -> str:
    """Return text of a model; a longer one than is taken in is no answer."""
    found = _printable(text)
    if len(found) > ANSWER_CHARACTERS.value:
        raise ModelError(f"an answer of {len(found):,} characters, {ANSWER_CHARACTERS.describe()}")
    return found


def _printable(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()


def _check_score(score: Score, shown_frames: int) -> None:
    if not (math.isfinite(score.level) and 1 <= score.level <= 5):
        raise ModelError(f"level must be a number from 1 to 5, got {score.level}")
    probs = score.probabilities
    if probs is not None and not (len(probs) == 5 and all(0 <= p <= 1 for p in probs) and abs(sum(probs) - 1) < 1e-3):
        raise ModelError(f"probabilities must be five numbers that sum to 1, got {probs}")
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


TRIAL_COLUMNS = tuple(f.name for f in fields(Trial))
WITHOUT_RAW = tuple(name for name in TRIAL_COLUMNS if name != "raw")  # what models said in words can be most of a run


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
    """Many trials as columns; missing numbers are nan. Metrics read this.

    `where` gives a view: it shares the source and the columns read so far, so that thousands of subsets cost little.
    """

    source: "pyarrow.Table"
    row_indices: NDArray[np.int64] | None = None  # the rows of the source in this view; None for all
    cache: dict[str, Any] = field(default_factory=dict, repr=False)  # columns of the source read so far

    @property
    def arrow(self) -> "pyarrow.Table":
        """Return the trials as an Arrow table of their own."""
        return with_plain_texts(self._own())

    def __len__(self) -> int:
        return int(self.source.num_rows) if self.row_indices is None else len(self.row_indices)

    def text(self, column: str) -> NDArray[np.object_]:
        """Return a text column as an object array, None where missing."""
        return self._column(column, lambda: _text(TrialTable(self.source, cache=self.cache), column))

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a numeric or boolean column as floats, nan where missing."""
        return self._column(column, lambda: _number(self.source[column]))

    def codes(self, column: str) -> tuple[NDArray[np.int64], list[str]]:
        """Return a text column as whole numbers and the names they stand for, in order of first appearance.

        A missing text is -1.
        """
        key = f"codes of {column}"
        if key not in self.cache:
            encoded = as_dictionary(self.source[column])
            self.cache[key] = encoded.dictionary.to_pylist()
            self.cache[f"{key}: rows"] = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        rows = self.cache[f"{key}: rows"]
        return (rows if self.row_indices is None else rows[self.row_indices]), self.cache[key]

    def matches(self, column: str, value: str) -> NDArray[np.bool_]:
        """Tell at which trials a text column holds this value."""
        rows, names = self.codes(column)
        found: NDArray[np.bool_] = rows == (names.index(value) if value in names else -1)
        return found

    def lists(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return a column of lists as one flat array and the length of each trial's list, 0 where missing."""
        import pyarrow.compute as pc

        data = self.source[column] if self.row_indices is None else self.source[column].take(self.row_indices)
        return np.asarray(pc.list_flatten(data).to_numpy(), dtype=np.float64), self.list_lengths(column)

    def list_lengths(self, column: str) -> NDArray[np.int64]:
        """Return the length of each trial's list, 0 where missing."""
        return self._column(f"lengths of {column}", lambda: _list_lengths(self.source[column]))

    def vectors(self, column: str, width: int) -> NDArray[np.float64]:
        """Return a column of lists of one length as rows, nan where missing."""
        flat, lengths = self.lists(column)
        found = np.full((len(lengths), width), np.nan)
        found[lengths == width] = flat[np.repeat(lengths == width, lengths)].reshape(-1, width)
        return found

    def where(self, mask: NDArray[np.bool_]) -> "TrialTable":
        """Return the trials at which the mask is true."""
        return self.take(np.flatnonzero(mask))

    def take(self, rows: NDArray[np.int64]) -> "TrialTable":
        """Return the trials at these rows, in this order."""
        return TrialTable(self.source, rows if self.row_indices is None else self.row_indices[rows], self.cache)

    def with_column(self, column: str, values: NDArray[np.float64] | NDArray[np.int64]) -> "TrialTable":
        """Return the same trials with one more column of numbers."""
        import pyarrow as pa

        if self.row_indices is None:
            return TrialTable(self.source.append_column(column, pa.array(values)), cache=dict(self.cache))
        whole = np.zeros(self.source.num_rows, dtype=values.dtype)  # of the source, which is too much to copy
        whole[self.row_indices] = values
        if not np.array_equal(whole[self.row_indices], values, equal_nan=True):  # a trial is in the view twice
            return TrialTable(self._own().append_column(column, pa.array(values)))
        return TrialTable(self.source.append_column(column, pa.array(whole)), self.row_indices, dict(self.cache))

    def blocks(self) -> Iterator["TrialTable"]:
        """Yield the trials in pieces of bounded size, for what takes much memory per trial."""
        for start in range(0, len(self), _BLOCK):
            yield self.take(np.arange(start, min(start + _BLOCK, len(self))))

    def select(self, columns: Sequence[str]) -> "TrialTable":
        """Return the same trials with these columns only."""
        return TrialTable(self.source.select(columns), self.row_indices)

    def derived(self, name: str, compute: Callable[["TrialTable"], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return one number per trial, computed once for the source and all its views."""
        return self._column(name, lambda: compute(TrialTable(self.source, cache=self.cache)))

    def rows(self) -> list[Trial]:
        """Return the trials as objects; for few trials, not for statistics."""
        return [_trial(record) for record in self.records(TRIAL_COLUMNS)]

    def records(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return these columns of each trial by their names, None where missing; for few trials too."""
        found: list[dict[str, Any]] = self.select(columns).arrow.to_pylist()
        return found

    def _own(self) -> "pyarrow.Table":
        return self.source if self.row_indices is None else self.source.take(self.row_indices)

    def _column(self, column: str, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if column not in self.cache:
            self.cache[column] = read()
            self.cache[column].flags.writeable = False  # it is shared by every view
        whole: NDArray[Any] = self.cache[column]
        return whole if self.row_indices is None else whole[self.row_indices]


def _text(trials: TrialTable, column: str) -> NDArray[np.object_]:
    if column == "id":  # no two are alike, so that codes would only be in the way
        return np.array(trials.source[column].to_pylist(), dtype=object)
    rows, names = trials.codes(column)
    texts: NDArray[np.object_] = np.array([*names, None], dtype=object)[rows]  # -1 is the last
    return texts


def _list_lengths(data: "pyarrow.ChunkedArray") -> NDArray[np.int64]:
    import pyarrow.compute as pc

    lengths: NDArray[np.int64] = pc.fill_null(pc.list_value_length(data), 0).to_numpy().astype(np.int64)
    return lengths


def _number(data: "pyarrow.ChunkedArray") -> NDArray[np.float64]:
    import pyarrow as pa

    return np.array(data.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _trial(row: dict[str, Any]) -> Trial:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Trial(**values)
