"""SQL over the trials of many runs, by DuckDB: it reads these tables, and neither files nor addresses nor Python."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewardlab.analysis.joined_trials import joined_schema, trials_of_runs
from rewardlab.analysis.run_collection import RunEntry
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import TRIAL_COLUMNS

if TYPE_CHECKING:
    import pyarrow

_LOCKED = {  # settings that no query can change again
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}
_LARGE = ("raw", "progress", "truth_progress", "probabilities", "shown")  # read only where a query names them


def query_trials(entries: Sequence[RunEntry], sql: str) -> "pyarrow.Table":
    """Return what one SELECT says of the tables `trials` and `runs`; PlanError says what is wrong with it.

    Columns with lists and texts of models are there where the query names them; `*` shows the others.
    """
    try:
        import duckdb
    except ImportError:
        raise PlanError("SQL needs the package duckdb: pip install 'rewardlab[sql]'") from None
    import pyarrow as pa

    try:
        _require_select(duckdb.extract_statements(sql))
        columns = _columns(sql)
        trials = pa.concat_tables([joined_schema(columns).empty_table(), *trials_of_runs(entries, columns)])
        with duckdb.connect(":memory:", config=_LOCKED) as connection:
            connection.register("trials", trials)
            connection.register("runs", _run_table(entries))
            return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        what = " ".join(str(error).split())[:400]
        raise PlanError(f"the query cannot be answered: {what}; the tables are trials and runs") from None


def _require_select(statements: Sequence[object]) -> None:
    kinds = [str(statement.type).rpartition(".")[2] for statement in statements]  # type: ignore[attr-defined]
    if kinds != ["SELECT"]:
        raise PlanError(f"expected one SELECT, got {', '.join(kinds) or 'nothing'}; queries change nothing")


def _columns(sql: str) -> tuple[str, ...]:
    named = set(re.findall(r"\w+", sql.lower()))
    return tuple(name for name in TRIAL_COLUMNS if name not in _LARGE or name in named)


def _run_table(entries: Sequence[RunEntry]) -> "pyarrow.Table":
    import pyarrow as pa

    names = ("name", "state", "kind", "data", "version", "created", "episodes", "cells", "trials", "problem")
    columns = {name: [vars(entry)[name] for entry in entries] for name in names}
    types = {**dict.fromkeys(("episodes", "cells", "trials"), pa.int64())}
    fields = [(name, types.get(name, pa.string())) for name in names]
    models = pa.array([list(entry.models) for entry in entries], pa.list_(pa.string()))
    return pa.table(columns, schema=pa.schema(fields)).append_column("models", models)
