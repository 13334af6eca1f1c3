"""Command `runs export`: the numbers and settings of a run in MLflow or Weights & Biases, and nothing else of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.run import Run, open_run
from rewardlab.core.settings import Help
from rewardlab.core.trial import CATEGORIES, CLEAN
from rewardlab.evaluation.display import names_of_run
from rewardlab.evaluation.summary import load_summary

_KEY = re.compile(r"[^\w./ :-]+")  # characters that neither of them takes in a name
_TEXT = 500  # most characters of a setting


def runs_export(
    run: Annotated[Run | str | Path, Help("run folder", metavar="RUN")],
    *,
    to: Annotated[Literal["mlflow", "wandb"], Help("the tracker, which must be installed")] = "mlflow",
    project: Annotated[str, Help("experiment of MLflow, or project of Weights & Biases")] = "rewardlab",
    tracking_uri: Annotated[
        str | None, Help("tracking URI of MLflow, or folder for wandb's offline files; default: as configured")
    ] = None,
) -> str:
    """Write the numbers of a finished run to an experiment tracker and return where they are.

    Examples:
        rewardlab runs export runs/pocket --project rewards --tracking-uri sqlite:///mlflow.db
        rewardlab runs export runs/pocket --to wandb --tracking-uri offline
    """
    find(TRACKERS, to, "tracker")
    return TRACKERS[to](exported_run(run if isinstance(run, Run) else open_run(run)), project, tracking_uri)


@dataclass(frozen=True)
class ExportedRun:
    """What a tracker receives: a name, settings as text, and numbers by name."""

    name: str
    settings: Mapping[str, str]
    numbers: Mapping[str, float]


def exported_run(run: Run) -> ExportedRun:
    """Return the numbers of the evaluated models, clean and by category and severity, and the settings of the run."""
    record, summary = run.record, load_summary(run)
    names = names_of_run(record, summary.models)
    numbers = {}
    for each in summary.measurements:
        is_shown = each.group == CLEAN or (each.group in CATEGORIES and each.severity > 0)
        if is_shown and each.model in record.evaluated and each.value is not None:
            where = CLEAN if each.group == CLEAN else f"{each.group}_{each.severity}"
            numbers[_KEY.sub("_", f"{names[each.model]}/{where}/{each.metric}")[:250]] = each.value
    stated = {"data": record.settings.data, "seed": record.settings.seed, "frames": record.settings.frames}
    made = {"kind": record.kind, "version": record.version, "command": record.command, "plan": record.plan_digest}
    settings = {name: str(value)[:_TEXT] for name, value in {**stated, **made}.items()}
    return ExportedRun(run.folder.resolve().name, settings, numbers)


def _to_mlflow(exported: ExportedRun, project: str, tracking_uri: str | None) -> str:
    require_packages("--to mlflow", "mlflow", extra="trackers")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(tracking_uri=tracking_uri)
        known = client.get_experiment_by_name(project)
        experiment = known.experiment_id if known is not None else client.create_experiment(project)
        started = client.create_run(experiment, run_name=exported.name).info
        numbers = [Metric(name, value, started.start_time, 0) for name, value in exported.numbers.items()]
        stated = [Param(name, value) for name, value in exported.settings.items()]
        for start in range(0, max(len(numbers), 1), 1000):  # the most that it takes at once
            client.log_batch(started.run_id, numbers[start : start + 1000], stated if start == 0 else [], [])
        client.set_terminated(started.run_id)
    except MlflowException as error:
        raise PlanError(f"MLflow rejects the run: {' '.join(str(error).split())[:300]}") from error
    return f"{project}/{started.run_id}"


def _to_wandb(exported: ExportedRun, project: str, tracking_uri: str | None) -> str:
    require_packages("--to wandb", "wandb", extra="trackers")
    import wandb

    quiet = wandb.Settings(silent=True, console="off", save_code=False, disable_git=True, x_disable_stats=True)
    mode: Literal["offline"] | None = None if tracking_uri is None else "offline"
    try:
        started = wandb.init(
            project=project,
            name=exported.name,
            config=dict(exported.settings),
            dir=tracking_uri,
            mode=mode,
            settings=quiet,
        )
        started.summary.update(dict(exported.numbers))
        started.finish()
    except wandb.Error as error:
        raise PlanError(f"Weights & Biases rejects the run: {' '.join(str(error).split())[:300]}") from error
    return f"{project}/{started.id}"


TRACKERS: dict[str, Callable[[ExportedRun, str, str | None], str]] = {"mlflow": _to_mlflow, "wandb": _to_wandb}
