"""Tables of the fit and of the planning of a study, and every condition as numbers."""

from collections.abc import Iterable, Mapping

from rewardlab.studies.perturbation_paper.simulated.competence_fit import FittedCompetence
from rewardlab.studies.perturbation_paper.simulated.power_analysis import CONFIDENCE, MOST, POWER, SampleSize
from rewardlab.studies.perturbation_paper.simulated.simulation_results import SimulationResults
from rewardlab.studies.perturbation_paper.simulated.simulation_tables import TextTable, number
from rewardlab.studies.perturbation_paper.simulated.study_config import MEASURES

POOR_FIT = 0.02  # a misfit of accuracy beyond which the equation does not describe the model


def fit_table(fitted: Mapping[str, FittedCompetence]) -> TextTable:
    """Return the fitted numbers of Eq. 1 with their standard errors."""
    rows = []
    for model, found in fitted.items():
        verdict = _verdict(found)
        numbers = {"alpha": found.competence.alpha, **found.competence.sigma}
        for name, value in numbers.items():
            error = found.errors.get(name)
            shown = "stated" if error is None else number(error, 4)
            words = (f"{found.largest_misfit:.3f}", str(found.lines), verdict)
            rows.append((model, name, f"{value:.4f}", shown, *words))
    columns = ("model", "alpha or sigma of", "value", "error", "misfit", "lines", "verdict")
    note = (
        "Least squares on accuracy under the noise of this study. untested: as many unknowns as lines, so the fit "
        "passes through every line and no standard error can be given."
    )
    return TextTable("fit", "Eq. 1 fitted to your table", columns, tuple(rows), note)


def _verdict(found: FittedCompetence) -> str:
    if found.largest_misfit > POOR_FIT:
        return "Eq. 1 does not fit"
    return "fits" if found.lines > len(found.errors) else "untested"


def power_table(found: Iterable[SampleSize], level: float) -> TextTable:
    """Return how many episodes certify each condition."""
    rows = tuple(
        (
            need.condition.model,
            need.condition.category,
            str(need.condition.severity),
            number(need.accuracy, 4),
            "reliable" if need.reliable else "unreliable",
            f"over {MOST:,}" if need.episodes is None else f"{need.episodes:,}",
            f"{need.by_formula:,.0f}",
            number(need.false_rate),
        )
        for need in found
    )
    columns = ("model", "category", "sev.", "accuracy", "certifies", "episodes", "formula", "false")
    note = (
        f"Episodes after which {POWER:.0%} of simulated studies put their one-sided {CONFIDENCE:.0%} bound beyond the "
        "level (30 at least). formula: normal approximation. false: the share of studies of that size that "
        f"certify a model exactly at the level; {1 - CONFIDENCE:.0%} is meant."
    )
    return TextTable("power", f"Episodes needed to certify an accuracy of {level:g}", columns, rows, note)


def conditions_table(results: SimulationResults) -> TextTable:
    """Return every condition with every measure as plain numbers, for other programs."""
    rows = []
    for outcome in (*results.outcomes, *results.tasks):
        c = outcome.condition
        cells = [c.model, c.category, c.task, str(c.severity), f"{outcome.competence:.6f}"]
        for name in MEASURES:
            estimate = outcome.sampled[name]
            low, high = estimate.interval
            numbers = (outcome.expected[name], outcome.given[name], estimate.value, low, high)
            cells += [f"{value:.6f}" for value in numbers]
        rows.append(tuple(cells))
    parts = ("expected", "given", "sampled", "low", "high")
    columns = ("model", "category", "task", "severity", "competence", *(f"{m}_{p}" for m in MEASURES for p in parts))
    return TextTable("conditions", "Every condition", columns, tuple(rows))
