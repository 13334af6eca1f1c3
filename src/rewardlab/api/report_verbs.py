"""Verbs that write what people look at: reports, comparisons, leaderboards, perturbed copies, a study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rewardlab.analysis.model_comparison import Comparison, compare_runs
from rewardlab.analysis.run_labels import run_and_model
from rewardlab.api.options import PerturbOptions, Place, documented_by, plan_from
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, open_run
from rewardlab.reporting.copies_and_sheets import perturbed_files
from rewardlab.reporting.leaderboard import write_leaderboard
from rewardlab.reporting.report_files import write_report
from rewardlab.runner.perturbed_dataset import PerturbPlan
from rewardlab.studies.perturbation_paper.measured.measured_report import write_study

AnyRun = Run | Place


def compare(a: AnyRun, b: AnyRun, *, draws: int = 10_000, seed: int = 0) -> Comparison:
    """Compare two models on the cells both scored: runs, run folders, or FOLDER::MODEL for one model of several."""
    (run_a, model_a), (run_b, model_b) = (run_and_model(str(x.folder if isinstance(x, Run) else x)) for x in (a, b))
    return compare_runs(run_a, run_b, model_a, model_b, draws, seed)


def leaderboard(runs: Sequence[AnyRun], out: Place = "leaderboard", *, trust: bool = False) -> Path:
    """Write a static site that ranks the judged models of runs beside published ones; return the path of its index.

    `trust` says that the runs are yours: the datasets are opened and the code is imported that they name.
    """
    return write_leaderboard(_opened(runs), Path(out), trust=trust)


def report(*runs: AnyRun, out: Place | None = None, trust: bool = False) -> Path:
    """Write the report of a run, or of several side by side, and return the path of its page.

    `trust` says that the runs are yours: the datasets are opened and the code is imported that they name.
    """
    opened = _opened(runs)
    if not opened:
        raise PlanError("name at least one run folder")
    page = opened[0].page if len(opened) == 1 else Path("report.html")
    written = write_report(opened, Path(out) if out else page, trust=trust)
    if written == opened[0].page:
        opened[0].publish()
    return written


@documented_by(PerturbPlan)
def perturb(data: Place, **settings: Unpack[PerturbOptions]) -> list[str]:
    """Write perturbed copies or contact sheets; return what was written and what was left out, with the reason."""
    return list(perturbed_files(plan_from(PerturbPlan, {"data": data, **settings})))


def study(run: AnyRun, out: Place, roles: Mapping[str, str] | None = None) -> list[Path]:
    """Write the tables, figures and claims of the perturbation paper as a run measured them, and return the paths.

    `roles` says which of the run's models plays general, tuned and ensemble; without it the shipped ones do.
    """
    return write_study(_opened([run])[0], Path(out), roles)


def _opened(runs: Sequence[AnyRun]) -> list[Run]:
    return [run if isinstance(run, Run) else open_run(run) for run in runs]
