"""Verbs for people who look at a dataset: have its labels verified, and write a page about it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Unpack

from rewardlab.api.options import DataReportOptions, Place, VerifyOptions, documented_by, plan_from
from rewardlab.core.errors import PlanError
from rewardlab.core.garbage_collection import paused_garbage_collection
from rewardlab.reporting.data_report_plan import DataReportPlan
from rewardlab.verification.verify_settings import VerifyPlan


@documented_by(VerifyPlan)
def verify(data: Place, **settings: Unpack[VerifyOptions]) -> None:
    """Serve the page on which people check labels until the process is told to stop; needs the extra `serve`.

    With `export` nothing is served: the verified rows and their videos are written into that folder.
    """
    missing = next((name for name in ("starlette", "uvicorn") if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"verify needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")
    from rewardlab.verification.verify_command import verify as verify_by_plan

    verify_by_plan(plan_from(VerifyPlan, {"data": data, **settings}))


@documented_by(DataReportPlan)
def data_report(data: Place, **settings: Unpack[DataReportOptions]) -> Path:
    """Write a page about a dataset, with what blind models reach on it, and return its path."""
    from rewardlab.reporting.data_page import write_data_page
    from rewardlab.reporting.data_report import measure_data

    plan = plan_from(DataReportPlan, {"data": data, **settings})
    with paused_garbage_collection():
        return write_data_page(measure_data(plan), plan.out)
