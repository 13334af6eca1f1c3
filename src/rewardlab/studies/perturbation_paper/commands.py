"""Commands `study perturbation` and `study montecarlo`: what each writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rewardlab.core.distributions import NORMAL_95
from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.run import Run, open_run
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help, Seed, as_command, recorded, several
from rewardlab.core.storage import atomic_write, csv_text, write_file
from rewardlab.core.trial import SEVERITIES
from rewardlab.evaluation.display import format_interval, format_number, markdown_text
from rewardlab.evaluation.findings import REFERENCE
from rewardlab.reporting.report import write_figures, write_report
from rewardlab.studies.perturbation_paper.claims import NOT_JUDGED, claims_page, paper_claims
from rewardlab.studies.perturbation_paper.equation import StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import SampleSize, fit_models, read_table, required_sample_sizes
from rewardlab.studies.perturbation_paper.measured import ACCURACY, MeasuredStudy, open_study
from rewardlab.studies.perturbation_paper.measured_tables import number_files
from rewardlab.studies.perturbation_paper.paper import CATEGORIES, ROLES
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, run_study, write_run, z_scores
from rewardlab.studies.perturbation_paper.simulation_tables import (
    TextTable,
    conditions_table,
    fit_table,
    power_table,
    study_tables,
)
from rewardlab.studies.perturbation_paper.strata import strata_files
from rewardlab.worlds.metaworld.tasks import FOLDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console


def study_perturbation(
    run: Annotated[Run | str | Path, Help("run folder of a stress test with all perturbations", metavar="RUN")],
    out: Annotated[Path | str, Help("folder to write to")],
    *,
    roles: Annotated[
        str | Sequence[str],
        Help(
            "model of the run for a role of the paper (general=, tuned= or ensemble=) or for one more row of any name; "
            "repeat a role for several trainings of one recipe",
            metavar="ROLE=MODEL",
            commas=False,
        ),
    ] = (),
    fold: Annotated[
        int | None, Help("fold of the Meta-World tasks that no model in a role was trained on, reported separately")
    ] = None,
) -> list[Path]:
    """Write the tables, figures and claims of the perturbation paper as a run measured them.

    `pocket-plain`, `pocket` and the run's only ensemble stand for the general, tuned and ensemble models of the paper;
    `roles` puts any other models of the run in their place. A role without a model stays empty.

    Examples:
        rewardlab study perturbation runs/robustness study
        rewardlab study perturbation runs/mine study --roles general=hf:Qwen/Qwen3-VL-4B-Instruct --roles tuned=pocket
    """
    if fold is not None and not 0 <= fold < FOLDS:
        raise PlanError(f"fold must be one of 0 to {FOLDS - 1}, got {fold}")
    source = run if isinstance(run, Run) else open_run(run)
    study, folder = open_study(source, _read_roles(roles), fold), Path(out)

    def figures() -> "dict[str, Figure]":
        from rewardlab.studies.perturbation_paper.measured_figures import measured_figures

        return measured_figures(study)

    return [*write_tables(study, folder), *write_figures(folder, figures)]


def _read_roles(given: str | Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Return the models of each role, None where none is given; PlanError if a text is no ROLE=MODEL or repeated."""
    pairs = [tuple(part.partition("=")[::2]) for part in several(given)]
    roles: dict[str, list[str]] = {}
    for role, model in pairs:
        roles.setdefault(role, []).append(model)
    if not all(role and model for role, model in pairs) or len(set(pairs)) < len(pairs):
        raise PlanError(
            f"roles must be ROLE=MODEL, such as {', '.join(ROLES)}, each model once in a role; got "
            f"{', '.join(several(given))}"
        )
    return roles or None


def write_tables(study: MeasuredStudy, folder: Path) -> list[Path]:
    """Write the files of the study that are text, numbers and claims, and return their paths."""
    claims = claims_page(paper_claims(study), _head(study), NOT_JUDGED)
    files = number_files(study) | strata_files(study) | {"claims.md": claims}
    return [write_file(folder / name, content) for name, content in files.items()]


def _head(study: MeasuredStudy) -> str:
    """Return what a reader of the claims must know first: who plays whom, on what, and what is missing."""
    record, basis = study.record, study.summary.bootstrap
    lines = [f"Made by `rewardlab study perturbation RUN FOLDER` from `{markdown_text(record.command)}`:"]
    lines[0] += f" {record.episodes} episodes in {basis.clusters} clusters."
    unfinished = record.trials - len(study.trials)
    lines += [f"**Unfinished: {unfinished:,} trials of the plan are not scored yet.**"] if unfinished > 0 else []
    missing = [category for category in CATEGORIES if category not in study.categories]
    lines += [f"**Not in this run: {', '.join(missing)} change.**"] if missing else []
    about = "The paper is about vision-language models. The results here are about the models in this table only:"
    lines += ["", about, "they are no test of claims about internet-scale models."]
    lines += ["", "| in the paper | here, in its place | what it is | to know first |", "|---|---|---|---|"]
    for role in ROLES:
        model = study.roles.get(role, "")
        known = markdown_text(study.summary.caveat(study.trainings(model)[0]))
        name = markdown_text(", ".join(map(study.shown, study.trainings(model)))) or "no model of this run"
        lines.append(f"| {role} | {name} | {markdown_text(study.part(role))} | {known} |")
    blind = study.summary.clean(REFERENCE, ACCURACY)
    if blind.value is not None:
        right = f"{format_number(blind.value)} {format_interval(blind)} of the clean episodes"
        lines += ["", f"`{REFERENCE}`, which sees nothing, is correct on {right}: a bound below that is no test."]
    return "\n".join(lines)


MOST_TRIALS = 5_000  # episodes per condition up to which single trials are worth keeping
_WIDE = 150  # columns of the printed tables in a file
_MANY = 100_000  # episodes from which on z-scores are close to normal


@dataclass(frozen=True)
class MonteCarloOutput:
    """What the study made: tables, remarks, its folder; the results and the run if episodes were sampled and kept."""

    tables: tuple[TextTable, ...]
    remarks: tuple[str, ...]
    folder: Path
    results: SimulationResults | None = None
    run: Run | None = None


def study_montecarlo(
    *,
    episodes: Annotated[int, Help("episodes sampled per condition")] = 500,
    seed: Seed = 0,
    severities: Annotated[int | Sequence[int], Help("severities to simulate")] = (0, 1, 2, 3, 4),
    steps: Annotated[int, Help("steps of an episode (T)")] = 4,
    rho: Annotated[float, Help("correlation of the noise from one step to the next")] = 0.40,
    noise: Annotated[float, Help("noise of a model without any competence (k), in units of progress")] = 0.42,
    correlation: Annotated[float, Help("correlation between the errors of the three models that vote")] = 0.0,
    accuracy_threshold: Annotated[float, Help("accuracy below which a model counts as unreliable")] = 0.70,
    fit: Annotated[
        Path | str | None,
        Help("CSV of your accuracies (model,category,severity,accuracy): fit the equation to them and extrapolate"),
    ] = None,
    power: Annotated[bool, Help("only compute how many episodes certify --accuracy-threshold")] = False,
    trials: Annotated[bool, Help("write neither trials nor a report")] = True,
    out: Annotated[Path | str | None, Help("folder to write to; default: runs/montecarlo-...")] = None,
) -> MonteCarloOutput:
    """Run the simulated study of the perturbation paper, or fit its equation to your own accuracies.

    Writes tables and figures and, up to 5,000 episodes per condition, every episode as a trial of a run with a report.

    Examples:
        rewardlab study montecarlo
        rewardlab study montecarlo --power --accuracy-threshold 0.9
    """
    settings = recorded(study_montecarlo, locals())
    require_packages("study montecarlo", "scipy", extra="fit")
    if seed < 0:
        raise PlanError(f"seed must not be negative, got {seed}")
    levels, first = several(severities), tuple[TextTable, ...]()
    study = StudyConfig(severities=levels, episodes=episodes, steps=steps, rho=rho, noise=noise)
    study = replace(study, reliable_at=accuracy_threshold, correlation=correlation)
    if fit is not None:
        fitted = fit_models(read_table(Path(fit)), study)
        models = {name: found.competence for name, found in fitted.items()}
        study = replace(study, models=models, categories=tuple(next(iter(models.values())).sigma))
        first = (fit_table(fitted),)
    command = as_command("study montecarlo", study_montecarlo, settings)
    folder = Path(out) if out else Path("runs") / f"montecarlo-{digest(json.dumps(settings))[:8]}"
    if power:
        sizes = required_sample_sizes(study, seed)
        made = MonteCarloOutput((*first, power_table(sizes, study.reliable_at)), (), folder)
        _write_tables(made, "power.txt", command)
        write_figures(folder, lambda: _power_figures(sizes, study.reliable_at, command))
        return made
    results = run_study(study, seed)
    made = MonteCarloOutput((*first, *study_tables(results)), (_check(results),), folder, results)
    _write_tables(made, "tables.txt", command)
    write_figures(folder, lambda: _study_figures(results, command))
    if not trials or episodes > MOST_TRIALS or not set(levels) <= set(SEVERITIES):
        return made
    run = write_run(results, folder, settings, command)
    write_report([run], run.page, allow_code=True)  # made by this very process
    return replace(made, run=run)


def _power_figures(sizes: Sequence[SampleSize], level: float, command: str) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.simulation_figures import draw_sample_sizes

    return {"power": draw_sample_sizes(sizes, level, command)}


def _study_figures(results: SimulationResults, command: str) -> "dict[str, Figure]":
    from rewardlab.studies.perturbation_paper.simulation_figures import study_figures

    return study_figures(results, command)


def _check(results: SimulationResults) -> str:
    """Return how the samples compare with the closed form."""
    distances = np.abs(z_scores(results))
    inside = int((distances <= NORMAL_95).sum())
    words = f"{inside} of {len(distances)} sampled 95% intervals hold the closed form at the competence drawn"
    if results.study.episodes < _MANY:
        return words
    return f"{words}; the largest distance is {distances.max():.2f} standard errors"


def _write_tables(made: MonteCarloOutput, name: str, command: str) -> None:
    """Write each table as a CSV file, and all of them as they are printed."""
    from rich.console import Console

    for table in [*made.tables, *([conditions_table(made.results)] if made.results else [])]:
        write_file(made.folder / f"{table.name}.csv", csv_text([table.columns, *table.rows]))
    with atomic_write(made.folder / name) as partial, partial.open("w", encoding="utf-8") as handle:
        print(command, file=handle)
        print_montecarlo(made, Console(file=handle, width=_WIDE))


def print_montecarlo(made: MonteCarloOutput, console: "Console") -> None:
    """Print the tables, how to read them, and the remarks."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

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
