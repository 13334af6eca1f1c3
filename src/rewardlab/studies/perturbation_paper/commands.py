"""Commands `study perturbation` and `study montecarlo`: what each writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import as_command, setting
from rewardlab.core.run import Run, open_run
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.storage import atomic_write, csv_text, writable
from rewardlab.core.trial import SEVERITIES
from rewardlab.evaluation.display import format_interval, format_number, markdown_text
from rewardlab.evaluation.findings import REFERENCE
from rewardlab.reporting.report import write_figures
from rewardlab.studies.perturbation_paper.claims import NOT_JUDGED, claims_page, paper_claims
from rewardlab.studies.perturbation_paper.equation import StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import (
    FittedCompetence,
    SampleSize,
    fit_models,
    read_table,
    required_sample_sizes,
)
from rewardlab.studies.perturbation_paper.measured import ACCURACY, MeasuredStudy, open_study
from rewardlab.studies.perturbation_paper.measured_tables import number_files
from rewardlab.studies.perturbation_paper.paper import CATEGORIES, ROLES
from rewardlab.studies.perturbation_paper.sampler import NORMAL_95
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, run_study, write_run, z_scores
from rewardlab.studies.perturbation_paper.simulation_tables import (
    TextTable,
    conditions_table,
    fit_table,
    power_table,
    study_tables,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def study_perturbation(
    run: Annotated[Run | str | Path, Help("run folder of a stress test with all perturbations", metavar="RUN")],
    out: Annotated[Path | str, Help("folder to write to")],
    roles: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the tables, figures and claims of the perturbation paper as a run measured them.

    `roles` says which of the run's models plays general, tuned and ensemble; without it the shipped ones do.

    Examples:
        rewardlab study perturbation runs/robustness study
    """
    return write_study(run if isinstance(run, Run) else open_run(run), Path(out), roles)


def write_study(run: Run, folder: Path, roles: Mapping[str, str] | None = None) -> list[Path]:
    """Write every file of the study and return their paths; `roles` names the models that play the paper's."""
    study = open_study(run, roles)
    return [*write_tables(study, folder), *write_figures(folder, lambda: _figures(study))]


def write_tables(study: MeasuredStudy, folder: Path) -> list[Path]:
    """Write the files of the study that are text, numbers and claims, and return their paths."""
    claims = claims_page(paper_claims(study), _head(study), NOT_JUDGED)
    files = number_files(study) | {"claims.md": claims}
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with atomic_write(folder / name) as partial:
            partial.write_text(content, encoding="utf-8")
    return [folder / name for name in files]


def _figures(study: MeasuredStudy) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.measured_figures import measured_figures

    return measured_figures(study)


def _head(study: MeasuredStudy) -> str:
    """Return what a reader of the claims must know first: who plays whom, on what, and what is missing."""
    record, basis = study.record, study.summary.bootstrap
    lines = [f"Made by `rewardlab report RUN --study FOLDER` from `{markdown_text(record.command)}`:"]
    lines[0] += f" {record.episodes} episodes in {basis.clusters} clusters."
    unfinished = record.trials - len(study.trials)
    lines += [f"**Unfinished: {unfinished:,} cells of the plan are not scored yet.**"] if unfinished > 0 else []
    missing = [category for category in CATEGORIES if category not in study.categories]
    lines += [f"**Not in this run: {', '.join(missing)} change.**"] if missing else []
    lines += [
        "",
        "The paper speaks of vision-language models. What is said here is said of the models in this table alone:",
    ]
    lines += ["no claim about models of internet scale is tested by others that stand in their place."]
    lines += ["", "| in the paper | here, in its place | what it is | to know first |", "|---|---|---|---|"]
    for role in ROLES:
        model = study.roles.get(role, "")
        known = markdown_text(study.summary.caveat(model))
        name = markdown_text(model) or "no model of this run"
        lines.append(f"| {role} | {name} | {markdown_text(study.part(role))} | {known} |")
    blind = study.summary.clean(REFERENCE, ACCURACY)
    if blind.value is not None:
        right = f"{format_number(blind.value)} {format_interval(blind)} of the clean episodes"
        lines += ["", f"`{REFERENCE}`, which sees nothing, is right in {right}: a bound below that is no test."]
    return "\n".join(lines)


# The settings of `rewardlab study montecarlo`.

MOST_TRIALS = 5_000  # episodes a condition up to which single trials are worth keeping


@dataclass(frozen=True)
class MonteCarloPlan:
    """Run the perturbation paper's simulated study, or fit its equation to your own accuracies, and say what holds."""

    episodes: int = setting("episodes sampled per condition", 500)
    seed: int = setting("seed of everything drawn by chance", 0)
    severities: tuple[int, ...] = setting("severities to simulate", (0, 1, 2, 3, 4))
    steps: int = setting("steps of an episode (T)", 4)
    rho: float = setting("correlation of the noise from one step to the next", 0.40)
    noise: float = setting("noise of a model without any competence (k), in units of progress", 0.42)
    correlation: float = setting("correlation between the errors of the three members that vote", 0.0)
    reliable_at: float = setting("level below which a model counts as unreliable", 0.70)
    fit: Path | None = setting("CSV of your accuracies (model,category,severity,accuracy) to fit and extrapolate", None)
    power: bool = setting("say how many episodes a study needs to certify --reliable-at, and stop", False)
    trials: bool = setting(f"write every episode as a trial, up to {MOST_TRIALS:,} a condition, with a report", True)
    out: Path | None = setting("folder to write to; by default runs/ plus a name made from the plan", None)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise PlanError(f"seed must not be negative, got {self.seed}")


# `rewardlab study montecarlo`: from a plan to tables, figures and, for ordinary sizes, a run folder.

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
    from rewardlab.studies.perturbation_paper.simulation_figures import draw_sample_sizes

    return {"power": draw_sample_sizes(sizes, level, command)}


def _study_figures(results: SimulationResults, command: str) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.simulation_figures import study_figures

    return study_figures(results, command)


def keep_trials(plan: MonteCarloPlan, made: MonteCarloOutput) -> Run | None:
    """Write the sampled episodes as a run beside the tables, if the plan asks for it and its size allows it."""
    fits = plan.episodes <= MOST_TRIALS and set(plan.severities) <= set(SEVERITIES)
    if made.results is None or not plan.trials or not fits:
        return None
    return write_run(
        made.results, made.folder, json.loads(json.dumps(asdict(plan), default=str)), as_command("montecarlo", plan)
    )


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
