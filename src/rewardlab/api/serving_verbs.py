"""Verbs for a running robot and for people: serve a model, fit a guard for it, relabel a dataset, have it verified."""

from importlib.util import find_spec
from typing import Unpack

from rewardlab.api.options import (
    GuardFitOptions,
    Place,
    RelabelOptions,
    ServeOptions,
    VerifyOptions,
    documented_by,
    plan_from,
)
from rewardlab.core.errors import PlanError
from rewardlab.rl.relabel import Relabelled, RelabelPlan
from rewardlab.rl.relabel import relabel as relabel_by_plan
from rewardlab.runner.guard_fit import GuardPlan, GuardRun, run_guard_fit
from rewardlab.serving.serve_settings import ServePlan
from rewardlab.verification.verify_settings import VerifyPlan

_PACKAGES = ("fastapi", "uvicorn", "python_multipart", "websockets", "prometheus_client")


@documented_by(ServePlan)
def serve(model: str, **settings: Unpack[ServeOptions]) -> None:
    """Serve a model over HTTP until the process is told to stop; needs the extra `serve`."""
    _require_packages("serve")
    from rewardlab.serving.serve_command import serve as serve_by_plan

    serve_by_plan(plan_from(ServePlan, {"model": model, **settings}))


@documented_by(VerifyPlan)
def verify(data: Place, **settings: Unpack[VerifyOptions]) -> None:
    """Serve the page on which people check labels until the process is told to stop; needs the extra `serve`.

    With `export` nothing is served: the verified rows and their videos are written into that folder.
    """
    _require_packages("verify")
    from rewardlab.verification.verify_command import verify as verify_by_plan

    verify_by_plan(plan_from(VerifyPlan, {"data": data, **settings}))


def _require_packages(verb: str) -> None:
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"{verb} needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")


@documented_by(GuardPlan)
def guard_fit(model: str, data: Place, **settings: Unpack[GuardFitOptions]) -> GuardRun:
    """Fit a guard that withholds doubtful successes; `MODEL+FOLDER` is then the guarded model."""
    return run_guard_fit(plan_from(GuardPlan, {"model": model, "data": data, **settings}))


@documented_by(RelabelPlan)
def relabel(data: Place, **settings: Unpack[RelabelOptions]) -> Relabelled:
    """Write a model's progress for every frame of a dataset as the Parquet file that LeRobot reads."""
    return relabel_by_plan(plan_from(RelabelPlan, {"data": data, **settings}))
