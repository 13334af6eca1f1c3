"""Verbs about rewards and policies: train policies against rewards, and write the page of what came out."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Unpack

from rewardlab.analysis.rl_results import RlResults
from rewardlab.api.options import Place, RlReportOptions, RlRunOptions, documented_by, plan_from
from rewardlab.core.errors import PlanError
from rewardlab.reporting.rl_page import RlReportPlan, write_rl_page
from rewardlab.rl.run_settings import RlRunPlan

_PACKAGES = ("torch", "stable_baselines3", "gymnasium", "metaworld", "mujoco")


@documented_by(RlRunPlan)
def rl_run(plan: Place, **settings: Unpack[RlRunOptions]) -> RlResults:
    """Train every cell of a plan that is not finished yet; needs the extra `rl-train`."""
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"rl run needs the package {missing}; install rewardlab with its extra: rewardlab[rl-train]")
    from rewardlab.rl.live_table import live_table
    from rewardlab.rl.run_command import run_rl

    with live_table() as table:
        return run_rl(plan_from(RlRunPlan, {"plan": plan, **settings}), table.add)


@documented_by(RlReportPlan)
def rl_report(runs: Place | Sequence[Place], **settings: Unpack[RlReportOptions]) -> Path:
    """Write one page about one or several studies."""
    folders = (runs,) if isinstance(runs, str | Path) else tuple(runs)
    return write_rl_page(plan_from(RlReportPlan, {"runs": folders, **settings}))
