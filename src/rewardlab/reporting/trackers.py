"""The numbers of a run in MLflow or Weights & Biases, where these are installed; nothing but numbers and settings."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import setting
from rewardlab.core.run import Run
from rewardlab.core.trial import CATEGORIES, CLEAN
from rewardlab.evaluation.display import names_of_run
from rewardlab.evaluation.summary import load_summary

_KEY = re.compile(r"[^\w./ :-]+")  # what neither of them takes in a name
_TEXT = 500  # characters of a setting


@dataclass(frozen=True)
class ExportPlan:
    """Write the numbers of a finished run to an experiment tracker that is installed."""

    run: str = setting("run folder", positional=True)
    to: str = setting("mlflow or wandb", "mlflow")
    project: str = setting("experiment of MLflow, or project of Weights & Biases", "rewardlab")
    place: str | None = setting("tracking URI of MLflow, or folder of wandb's offline files; else as set up", None)

    def __post_init__(self) -> None:
        find(TRACKERS, self.to, "tracker")


@dataclass(frozen=True)
class ExportedRun:
    """What a tracker is given: a name, settings as text, and numbers by name."""

    name: str
    settings: Mapping[str, str]
    numbers: Mapping[str, float]


def exported_run(run: Run) -> ExportedRun:
    """Return the numbers of the judged models, clean and by category and severity, and the settings of the run."""
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


def export_run(run: Run, to: str, project: str, place: str | None) -> str:
    """Write a run to a tracker and return where it is; PlanError where the tracker is missing or does not answer."""
    return TRACKERS[to](exported_run(run), project, place)


def _to_mlflow(exported: ExportedRun, project: str, place: str | None) -> str:
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise PlanError("this needs the package mlflow: pip install mlflow-skinny") from None
    try:
        client = MlflowClient(tracking_uri=place)
        known = client.get_experiment_by_name(project)
        experiment = known.experiment_id if known is not None else client.create_experiment(project)
        started = client.create_run(experiment, run_name=exported.name).info
        numbers = [Metric(name, value, started.start_time, 0) for name, value in exported.numbers.items()]
        stated = [Param(name, value) for name, value in exported.settings.items()]
        for start in range(0, max(len(numbers), 1), 1000):  # as many as it takes at once
            client.log_batch(started.run_id, numbers[start : start + 1000], stated if start == 0 else [], [])
        client.set_terminated(started.run_id)
    except MlflowException as error:
        raise PlanError(f"MLflow does not take the run: {' '.join(str(error).split())[:300]}") from error
    return f"{project}/{started.run_id}"


def _to_wandb(exported: ExportedRun, project: str, place: str | None) -> str:
    try:
        import wandb
    except ImportError:
        raise PlanError("this needs the package wandb: pip install wandb") from None
    quiet = wandb.Settings(silent=True, console="off", save_code=False, disable_git=True, x_disable_stats=True)
    mode: Literal["offline"] | None = None if place is None else "offline"
    try:
        started = wandb.init(
            project=project, name=exported.name, config=dict(exported.settings), dir=place, mode=mode, settings=quiet
        )
        started.summary.update(dict(exported.numbers))
        started.finish()
    except wandb.Error as error:
        raise PlanError(f"Weights & Biases does not take the run: {' '.join(str(error).split())[:300]}") from error
    return f"{project}/{started.id}"


TRACKERS: dict[str, Callable[[ExportedRun, str, str | None], str]] = {"mlflow": _to_mlflow, "wandb": _to_wandb}
