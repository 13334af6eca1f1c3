"""`rewardlab montecarlo`: from a plan to tables, figures and, for ordinary sizes, a run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rewardlab.analysis.figure_files import write_figures
from rewardlab.core.command_settings import as_command
from rewardlab.core.csv_export import csv_text
from rewardlab.core.run import Run, atomic_write, writable
from rewardlab.core.seeding import digest
from rewardlab.core.trial import SEVERITIES
from rewardlab.studies.perturbation_paper.simulated.competence_fit import FittedCompetence, fit_models, read_table
from rewardlab.studies.perturbation_paper.simulated.fit_and_power_tables import conditions_table, fit_table, power_table
from rewardlab.studies.perturbation_paper.simulated.montecarlo_plan import MOST_TRIALS, MonteCarloPlan
from rewardlab.studies.perturbation_paper.simulated.power_analysis import SampleSize, required_sample_sizes
from rewardlab.studies.perturbation_paper.simulated.sampler import NORMAL_95
from rewardlab.studies.perturbation_paper.simulated.simulated_run import write_run
from rewardlab.studies.perturbation_paper.simulated.simulation_results import SimulationResults, run_study, z_scores
from rewardlab.studies.perturbation_paper.simulated.simulation_tables import TextTable, study_tables
from rewardlab.studies.perturbation_paper.simulated.study_config import StudyConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 150  # columns of the printed tables in a file
_MANY = 100_000  # episodes from which on z-scores are close to normal
_PLANNED = ("severities", "episodes", "steps", "rho", "noise", "reliable_at", "correlation")  # settings of the study


@dataclass(frozen=True)
class MonteCarloOutput:
    """What the command made: tables, remarks, the folder it wrote, and the results if a study was sampled."""

    tables: tuple[TextTable, ...]
    remarks: tuple[str, ...]
    folder: Path
    results: SimulationResults | None = None


def run_montecarlo(plan: MonteCarloPlan) -> MonteCarloOutput:
    """Sample the study of a plan, or fit or plan one, and write tables and figures to its folder."""
    study, fitted = _study(plan)
    first = [fit_table(fitted)] if fitted else []
    command = as_command("montecarlo", plan)
    if plan.power:
        sizes = required_sample_sizes(study, plan.seed)
        made = MonteCarloOutput((*first, power_table(sizes, study.reliable_at)), (), _folder(plan))
        _write_tables(plan, made)
        write_figures(made.folder, lambda: _power_figures(sizes, study.reliable_at, command))
        return made
    results = run_study(study, plan.seed)
    made = MonteCarloOutput((*first, *study_tables(results)), (_check(results),), _folder(plan), results)
    _write_tables(plan, made)
    write_figures(made.folder, lambda: _study_figures(results, command))
    return made


def _power_figures(sizes: Sequence[SampleSize], level: float, command: str) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.simulated.simulation_figures import draw_sample_sizes

    return {"power": draw_sample_sizes(sizes, level, command)}


def _study_figures(results: SimulationResults, command: str) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.simulated.simulation_figures import study_figures

    return study_figures(results, command)


def keep_trials(plan: MonteCarloPlan, made: MonteCarloOutput) -> Run | None:
    """Write the sampled episodes as a run beside the tables, if the plan asks for it and its size allows it."""
    fits = plan.episodes <= MOST_TRIALS and set(plan.severities) <= set(SEVERITIES)
    if made.results is None or not plan.trials or not fits:
        return None
    return write_run(plan, made.results, made.folder)


def _study(plan: MonteCarloPlan) -> tuple[StudyConfig, Mapping[str, FittedCompetence]]:
    study = StudyConfig(**{name: vars(plan)[name] for name in _PLANNED})
    if plan.fit is None:
        return study, {}
    fitted = fit_models(read_table(plan.fit), study)
    models = {name: found.competence for name, found in fitted.items()}
    return replace(study, models=models, categories=tuple(next(iter(models.values())).sigma)), fitted


def _check(results: SimulationResults) -> str:
    """Say how the sampler stands to the closed form."""
    distances = np.abs(z_scores(results))
    inside = int((distances <= NORMAL_95).sum())
    words = f"{inside} of {len(distances)} sampled 95% intervals hold the closed form at the competence drawn"
    if results.study.episodes < _MANY:
        return words
    return f"{words}; the largest distance is {distances.max():.2f} standard errors"


def _folder(plan: MonteCarloPlan) -> Path:
    return plan.out or Path("runs") / f"montecarlo-{digest(repr(plan))[:8]}"


def _write_tables(plan: MonteCarloPlan, made: MonteCarloOutput) -> None:
    """Write the tables as CSV files and as they are printed."""
    with writable(made.folder):
        made.folder.mkdir(parents=True, exist_ok=True)
    for table in [*made.tables, *([conditions_table(made.results)] if made.results else [])]:
        with atomic_write(made.folder / f"{table.name}.csv") as partial:
            partial.write_bytes(csv_text([table.columns, *table.rows]).encode())
    name = "power.txt" if plan.power else "tables.txt"
    with atomic_write(made.folder / name) as partial, partial.open("w", encoding="utf-8") as handle:
        print(as_command("montecarlo", plan), file=handle)
        print_montecarlo(made, Console(file=handle, width=_WIDE))


def print_montecarlo(made: MonteCarloOutput, console: Console) -> None:
    """Print the tables, how to read them, and the remarks."""
    for table in made.tables:
        grid = Table(*table.columns, title=table.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        grid.pad_edge, grid.padding, grid.collapse_padding = False, (0, 1, 0, 0), True
        for row in table.rows:
            grid.add_row(*(escape(cell.replace(" / ", "\n")) for cell in row))
        console.print(grid)
        if table.note:
            console.print(escape(table.note), style="dim", highlight=False)
            console.print()
    for remark in made.remarks:
        console.print(remark, highlight=False)
