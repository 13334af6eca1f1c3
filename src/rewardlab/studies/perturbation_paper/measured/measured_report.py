"""Write the study of a run into a folder: tables, figures and claims."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.analysis.figure_files import write_figures
from rewardlab.analysis.findings import REFERENCE
from rewardlab.analysis.format import format_interval, format_number, markdown_text
from rewardlab.core.run import Run, atomic_write, writable
from rewardlab.studies.perturbation_paper.measured.claim_decision import claims_page
from rewardlab.studies.perturbation_paper.measured.measured_condition_means import ACCURACY, MeasuredStudy, open_study
from rewardlab.studies.perturbation_paper.measured.measured_tables import number_files
from rewardlab.studies.perturbation_paper.measured.paper_claims import NOT_JUDGED, paper_claims
from rewardlab.studies.perturbation_paper.measured.paper_models_and_tasks import CATEGORIES, ROLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    from rewardlab.studies.perturbation_paper.measured.measured_figures import measured_figures

    return measured_figures(study)


def _head(study: MeasuredStudy) -> str:
    """Return what a reader of the claims must know first: who plays whom, on what, and what is missing."""
    record, basis = study.record, study.summary.bootstrap
    lines = [f"Made by `rewardlab report RUN --study FOLDER` from `{markdown_text(record.command)}`:"]
    lines[0] += f" {record.episodes} episodes in {basis.clusters} clusters."
    unfinished = record.cells - len(study.trials)
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
