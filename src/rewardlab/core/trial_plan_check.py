"""Trials held against the plan of their run: what no run of that plan can have written is refused by its row."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from rewardlab.core.graded_name import graded_parts
from rewardlab.core.run_record import RunPlan
from rewardlab.core.trial import CATEGORIES, CLEAN, SEVERITIES, Expectation, Status

if TYPE_CHECKING:
    import pyarrow

_REQUIRED = ("id", "episode", "video", "subset", "task", "instruction", "shown", "frames_hash")
_BLOCK = 20_000  # trials whose lists are checked at a time: that takes ten times the memory of the lists
Rule = tuple[str, str, Any]  # a column, what it must be, and where it is so


def check_trials(table: "pyarrow.Table", plan: RunPlan) -> None:
    """Raise a ValueError that names the first trial that does not belong to the plan, or cannot be."""
    import pyarrow.compute as pc

    for column, expected, holds in (*_names(table, plan), *_outcomes(table), *_lists(table)):
        row = pc.index(holds, False).as_py()
        if row >= 0:
            got = str(table[column][row].as_py())
            raise ValueError(f"row {row}: {column} must be {expected}, got {got[:60]!r}")


def _names(table: "pyarrow.Table", plan: RunPlan) -> Iterator[Rule]:
    import pyarrow.compute as pc

    for column in _REQUIRED:
        yield column, "there", pc.is_valid(table[column])
    yield "model", "a model of the plan", _among(table, "model", plan.models)
    yield "perturbation", "a perturbation of the plan", _among(table, "perturbation", _perturbations(table, plan))
    yield "category", "a category", _among(table, "category", (CLEAN, *CATEGORIES))
    yield "severity", "a severity of the plan", _among(table, "severity", (0, *plan.severities))
    yield "seed", f"{plan.seed}, as in the plan", _among(table, "seed", (plan.seed,))
    clean = pc.equal(table["perturbation"], CLEAN)
    for column, value in (("category", CLEAN), ("severity", 0)):
        yield column, f"{value} where the episode is clean, only there", pc.equal(clean, pc.equal(table[column], value))


def _perturbations(table: "pyarrow.Table", plan: RunPlan) -> tuple[str, ...]:
    """Return the names that trials of the plan may have; in a graded one also those that state a severity up to 4."""
    import pyarrow.compute as pc

    planned = (CLEAN, *plan.perturbations)
    if not plan.graded:
        return planned
    found = [name for name in pc.unique(table["perturbation"]).to_pylist() if name is not None]
    return (*planned, *(name for name in found if _is_graded(name, plan.perturbations)))


def _is_graded(name: str, known: tuple[str, ...]) -> bool:
    parts = graded_parts(name)
    return bool(parts) and all(base in known and 0 < severity <= SEVERITIES[-1] for base, severity in parts)


def _outcomes(table: "pyarrow.Table") -> Iterator[Rule]:
    import pyarrow.compute as pc

    yield "expectation", "one of rewardlab's", _among(table, "expectation", get_args(Expectation))
    yield "status", "scored, failed or dropped", _among(table, "status", get_args(Status))
    scored = pc.equal(table["status"], "scored")
    yield "level", "there where the cell is scored, only there", pc.equal(scored, pc.is_valid(table["level"]))
    yield "level", "from 1 to 5", _within(table["level"], 1, 5)
    yield "truth_level", "from 1 to 5", _within(table["truth_level"], 1, 5)
    seconds = table["seconds"]
    yield "seconds", "0 or more", pc.and_(pc.is_valid(seconds), _within(seconds, 0, 1e12))


def _lists(table: "pyarrow.Table") -> Iterator[Rule]:
    import pyarrow.compute as pc

    sizes = pc.list_value_length(table["probabilities"])
    yield "probabilities", "five numbers", pc.fill_null(pc.equal(sizes, 5), True)
    yield "probabilities", "numbers from 0 to 1", _each(table, "probabilities", lambda x: _within(x, 0, 1))
    for column in ("progress", "truth_progress"):
        yield column, "finite numbers", _each(table, column, lambda x: pc.fill_null(pc.is_finite(x), False))
    yield "shown", "indices of frames", _each(table, "shown", lambda x: _within(x, 0, 2**31 - 1))


def _among(table: "pyarrow.Table", column: str, allowed: tuple[object, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table.schema.field(column).type
    names = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pc.is_in(table[column], value_set=pa.array(list(allowed), type=names))


def _within(values: Any, low: float, high: float) -> Any:
    """Tell where values are missing or in the range; nan is in none."""
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return pc.fill_null(inside, True)


def _each(table: "pyarrow.Table", column: str, holds: Callable[[Any], Any]) -> Any:
    """Tell of which rows every number in the list does; a missing number does not."""
    import pyarrow as pa

    blocks = (chunk.slice(start, _BLOCK) for chunk in table[column].chunks for start in range(0, len(chunk), _BLOCK))
    return pa.chunked_array([_each_in_block(block, holds) for block in blocks], pa.bool_())


def _each_in_block(lists: "pyarrow.ListArray", holds: Callable[[Any], Any]) -> "pyarrow.Array":
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = lists.flatten()
    sound = pc.and_(pc.is_valid(flat), holds(flat)).to_numpy(zero_copy_only=False)
    rows = np.ones(len(lists), dtype=bool)
    rows[pc.list_parent_indices(lists).to_numpy()[~sound]] = False
    return pa.array(rows)
