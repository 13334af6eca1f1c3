"""Verbs about many runs: list them, ask their trials in SQL, put shards together, and hand numbers on."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.analysis.run_collection import RunEntry, find_runs
from rewardlab.analysis.run_merging import Merged, MergePlan, merge_runs
from rewardlab.analysis.trial_sql import query_trials
from rewardlab.api.options import Names, Place
from rewardlab.core.run import Run
from rewardlab.reporting.experiment_trackers import ExportPlan, export_run

if TYPE_CHECKING:
    import pyarrow


def runs(folder: Place = "runs", *, where: Names = ()) -> list[RunEntry]:
    """Return the runs below a folder that match every condition, such as `model=pocket*`, the oldest first."""
    return find_runs(Path(folder), (where,) if isinstance(where, str) else where)


def query(sql: str, folder: Place = "runs", *, where: Names = ()) -> "pyarrow.Table":
    """Return what one SELECT says of the tables `trials` and `runs` of a folder, as an Arrow table.

    DuckDB must be installed (extra sql); the query reads nothing else.
    """
    return query_trials(runs(folder, where=where), sql)


def merge(shards: Sequence[Run | Place], out: Place) -> Merged:
    """Put shards of one run together after a check that they belong together; return what was made."""
    folders = tuple(str(shard.folder if isinstance(shard, Run) else shard) for shard in shards)
    plan = MergePlan(folders, Path(out))
    return merge_runs([Run(Path(folder)) for folder in plan.runs], plan.out)


def export(run: Run | Place, to: str = "mlflow", *, project: str = "rewardlab", place: str | None = None) -> str:
    """Write the numbers of a run to MLflow or Weights & Biases, and return where they are.

    `place` is the tracking URI of MLflow, or the folder for the offline files of wandb.
    """
    plan = ExportPlan(str(run.folder if isinstance(run, Run) else run), to, project, place)
    return export_run(Run(Path(plan.run)), plan.to, plan.project, plan.place)
