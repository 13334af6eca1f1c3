"""Verbs for a running robot: serve a model, fit a guard for it, write its progress into a dataset's table."""

from importlib.util import find_spec
from typing import Unpack

from rewardlab.api.options import GuardFitOptions, Place, RelabelOptions, ServeOptions, documented_by, plan_from
from rewardlab.core.errors import PlanError
from rewardlab.rl.relabel import Relabelled, RelabelPlan
from rewardlab.rl.relabel import relabel as relabel_by_plan
from rewardlab.runner.guard_fit import GuardPlan, GuardRun, run_guard_fit
from rewardlab.serving.serve_settings import ServePlan

_PACKAGES = ("fastapi", "uvicorn", "python_multipart", "websockets", "prometheus_client")


@documented_by(ServePlan)
def serve(model: str, **settings: Unpack[ServeOptions]) -> None:
    """Serve a model over HTTP until the process is told to stop; needs the extra `serve`."""
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"serve needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")
    from rewardlab.serving.serve_command import serve as serve_by_plan

    serve_by_plan(plan_from(ServePlan, {"model": model, **settings}))


@documented_by(GuardPlan)
def guard_fit(model: str, data: Place, **settings: Unpack[GuardFitOptions]) -> GuardRun:
    """Fit a guard that withholds doubtful successes; `MODEL+FOLDER` is then the guarded model."""
    return run_guard_fit(plan_from(GuardPlan, {"model": model, "data": data, **settings}))


@documented_by(RelabelPlan)
def relabel(data: Place, **settings: Unpack[RelabelOptions]) -> Relabelled:
    """Write a model's progress for every frame of a dataset as the Parquet file that LeRobot reads."""
    return relabel_by_plan(plan_from(RelabelPlan, {"data": data, **settings}))
