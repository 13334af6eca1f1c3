"""Tables of the simulated study."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.core.distributions import NORMAL_95
from rewardlab.studies.perturbation_paper.equation import MEASURES, StudyConfig
from rewardlab.studies.perturbation_paper.fit_and_power import CONFIDENCE, MOST, POWER, FittedCompetence, SampleSize
from rewardlab.studies.perturbation_paper.paper import STATED_ACCURACY, STATED_THRESHOLD
from rewardlab.studies.perturbation_paper.reproduction import claim_checks, reproductions
from rewardlab.studies.perturbation_paper.sampler import SampledMean
from rewardlab.studies.perturbation_paper.simulation_results import (
    ConditionResult,
    ReliableRange,
    SimulationResults,
    averaged,
    reliable_range,
)

Cells = tuple[str, ...]
NEVER, NONE = "never", "none"


@dataclass(frozen=True)
class TextTable:
    """One table: a cell may hold several lines; `note` says how to read it."""

    name: str
    title: str
    columns: Cells
    rows: tuple[Cells, ...]
    note: str = ""


def study_tables(results: SimulationResults) -> list[TextTable]:
    """Return every table of a study that has something in it."""
    checked = tuple((c.sentence, "yes" if c.holds else "NO", c.found) for c in claim_checks(results))
    tables = [
        *(stated_table(results), worst_case_table(results), accuracy_table(results), tau_table(results)),
        *(task_table(results), reliability_table(results), vote_table(results), calibration_table(results)),
        TextTable("claims", "What the paper says in words", ("sentence", "holds", "found"), checked),
    ]
    return [table for table in tables if table.rows]


def stated_table(results: SimulationResults) -> TextTable:
    """Return the numbers of the paper beside ours, with the reason where one cannot be met."""
    found = reproductions(results)
    rows = tuple(
        (
            c.stated.where,
            f"{c.stated.measure}, {c.stated.model}",
            c.stated.categories[0] if len(c.stated.categories) == 1 else "mean",
            str(c.stated.severity),
            number(c.stated.value, c.stated.decimals),
            number(c.expected, 4),
            with_interval(c.sampled),
            f"{c.distance:+.1f}",
            "met" if c.met else "NO",
        )
        for c in found
    )
    columns = ("where", "what", "category", "sev.", "stated", "closed", "sampled", "SE", "verdict")
    note = "SE: stated less closed form, in standard errors of a study of 500 episodes; met: within two."
    for c in found:
        if not c.met:
            why = c.stated.reason or "the settings are not the fitted ones"
            note += f"\n{c.stated.model}, {c.stated.categories[0]}: {why}."
    return TextTable("stated", "Every stated number", columns, rows, note)


def with_interval(estimate: SampledMean) -> str:
    """Return a sampled number with half the width of its 95% interval."""
    return f"{number(estimate.value)} ±{number(NORMAL_95 * estimate.error)}"


def _beside(expected: float, estimate: SampledMean, stated: str = "") -> str:
    words = [number(expected), with_interval(estimate)]
    return " / ".join([stated, *words] if stated else words)


def _reading(results: SimulationResults) -> str:
    paper = "stated / " if results.study.of_paper else ""
    drawn = "Sampling draws the noise of Eq. 1 once per condition; the closed form averages over it."
    return f"Each cell: {paper}closed form / sampled with its 95% interval. {drawn}"


def worst_case_table(results: SimulationResults) -> TextTable:
    """Return accuracy at the highest severity by model and category."""
    study, worst = results.study, max(results.study.severities)
    missed = {(c.stated.model, c.stated.categories[0]) for c in reproductions(results) if not c.met}

    def cell(model: str, category: str) -> str:
        outcome = results.find(model, category, worst)
        known = results.study.of_paper and worst == 4 and model in STATED_ACCURACY
        stated = number(STATED_ACCURACY[model][category]) if known else ""
        mark = " ≠" if (model, category) in missed and known else ""
        return _cell(outcome, "accuracy", stated) + mark

    rows = tuple((model, *(cell(model, category) for category in study.categories)) for model in study.models)
    mark = " ≠ cannot be met; the reason is in the table of stated numbers." if study.of_paper else ""
    title = f"Table 1: accuracy at severity {worst}"
    return TextTable("table1", title, ("model", *study.categories), rows, _reading(results) + mark)


def accuracy_table(results: SimulationResults) -> TextTable:
    """Return accuracy over severity."""
    study = results.study
    rows = tuple(
        (model, category, *(_cell(results.find(model, category, s)) for s in study.severities))
        for model in study.models
        for category in study.categories
    )
    columns = ("model", "category", *(f"sev. {s}" for s in study.severities))
    return TextTable("figure1", "Figure 1: accuracy over severity", columns, rows, "Closed form / sampled ± 95%.")


def _cell(outcome: ConditionResult, measure: str = "accuracy", stated: str = "") -> str:
    return _beside(outcome.expected[measure], outcome.sampled[measure], stated)


def tau_table(results: SimulationResults) -> TextTable:
    """Return tau, averaged over categories, over severity."""
    study = results.study
    taus = [c.stated for c in reproductions(results) if c.stated.measure == "tau"]
    stated = {(s.model, s.severity): s.value for s in taus}

    def cell(model: str, severity: int) -> str:
        found = [results.find(model, category, severity) for category in study.categories]
        expected = sum(outcome.expected["tau"] for outcome in found) / len(found)
        said = number(stated[model, severity], 2) if (model, severity) in stated else "-" if stated else ""
        return _beside(expected, averaged([outcome.sampled["tau"] for outcome in found]), said)

    rows = tuple((model, *(cell(model, severity) for severity in study.severities)) for model in study.models)
    columns = ("model", *(f"sev. {s}" for s in study.severities))
    return TextTable("figure2", "Figure 2: Kendall's tau-b, mean over categories", columns, rows, _reading(results))


def task_table(results: SimulationResults) -> TextTable:
    """Return accuracy by task, averaged over categories."""
    study = results.study

    def cell(model: str, task: str) -> str:
        found = [o for o in results.tasks if o.condition.model == model and o.condition.task == task]
        expected = sum(outcome.expected["accuracy"] for outcome in found) / len(found)
        return _beside(expected, averaged([outcome.sampled["accuracy"] for outcome in found]))

    rows = tuple(
        (task, f"{factor:g}", *(cell(model, task) for model in study.models)) for task, factor in study.tasks.items()
    )
    title = f"Figure 3: accuracy by task at severity {study.task_severity}, mean over categories"
    note = (
        "Closed form / sampled ± 95%. The paper states no number here; how much each task scales sigma is our choice."
    )
    return TextTable("figure3", title, ("task", "sigma times", *study.models), rows, note)


def reliability_table(results: SimulationResults) -> TextTable:
    """Return the severity threshold of each model, both ways, on competence and on accuracy."""
    study = results.study
    rows = []
    for model in study.models:
        for category in study.categories:
            found = [results.find(model, category, severity) for severity in study.severities]
            centre = [study.centre(outcome.condition) for outcome in found]
            expected = reliable_range(study, centre)
            sampled = reliable_range(study, [outcome.competence for outcome in found])
            measured = reliable_range(study, [outcome.sampled["accuracy"].value for outcome in found])
            stated = STATED_THRESHOLD[model] if study.of_paper else "-"
            chance = number(_chance_of(study, centre, expected))
            both = (", ".join(_both(sampled)), ", ".join(_both(measured)))
            rows.append((model, category, stated, *_both(expected), chance, *both))
    columns = ("model", "category", "stated", "last", "fails", "chance", "as drawn", "on accuracy")
    note = (
        f"Competence of Eq. 1 at {study.reliable_at:g} or more. last: the last reliable severity, as the paper defines "
        "it; fails: the first failing one, which is what it states. chance: that the noise of Eq. 1 leaves it there; "
        "as drawn: last, fails in this study; on accuracy: last, fails if sampled accuracy had to stay above the level."
    )
    return TextTable("reliability", f"Reliable at {study.reliable_at:g}", columns, tuple(rows), note)


def _both(found: ReliableRange) -> Cells:
    last, first = found.last_reliable, found.first_failing
    return NONE if last is None else str(last), NEVER if first is None else str(first)


def _chance_of(study: StudyConfig, centre: Sequence[float], found: ReliableRange) -> float:
    """Return the chance that a study with the noise of Eq. 1 finds the same first failing severity."""
    from scipy.special import ndtr

    above = np.array(centre) - study.reliable_at
    stays = ndtr(above / study.drift) if study.drift else (above >= 0).astype(np.float64)
    if found.first_failing is None:
        return float(np.prod(stays))
    place = study.severities.index(found.first_failing)
    return float(np.prod(stays[:place]) * (1 - stays[place]))


def vote_table(results: SimulationResults) -> TextTable:
    """Return the row of Eq. 1 beside a real majority vote of three such members."""
    study, worst = results.study, max(results.study.severities)
    rows = []
    for vote in results.votes:
        condition = vote.condition
        if condition.severity in (0, worst):
            row = results.find(condition.model, condition.category, condition.severity)
            known = results.study.of_paper and condition.severity == 4
            stated = number(STATED_ACCURACY[condition.model][condition.category]) if known else "-"
            taus = (number(row.expected["tau"]), number(vote.sampled["tau"].value))
            cells = (_cell(row), _beside(vote.expected, vote.sampled["accuracy"]))
            rows.append((condition.category, str(condition.severity), stated, *cells, *taus))
    columns = ("category", "sev.", "stated", "row of Eq. 1", "vote of three", "tau: row", "vote")
    title = f"{study.voters}: its own row of Eq. 1, and a real vote whose members' errors correlate by"
    note = "Accuracy: closed form / sampled ± 95%. A vote answers with the middle one of three predictions."
    return TextTable("vote", f"{title} {study.correlation:g}", columns, tuple(rows), note)


def calibration_table(results: SimulationResults) -> TextTable:
    """Return calibration error and mean absolute error of predicted progress, clean and at the highest severity."""
    study = results.study
    ends = sorted({study.severities[0], study.severities[-1]})
    rows = tuple(
        (model, category, *(_cell(results.find(model, category, s), m) for m in ("ece", "mae") for s in ends))
        for model in study.models
        for category in study.categories
    )
    columns = ("model", "category", *(f"{m}, sev. {s}" for m in ("ECE", "MAE") for s in ends))
    note = (
        "Of predicted against true progress, ten bins. Closed form / sampled ± 95%. The paper states neither. A "
        "sampled ECE is a sum of absolute values and lies above the closed form when episodes are few."
    )
    return TextTable("calibration", "Calibration error and mean absolute error", columns, rows, note)


def number(value: float, decimals: int = 3) -> str:
    """Return a number for a cell, without a leading zero; a dash where there is none."""
    if math.isnan(value):
        return "-"
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("0.") else text


# Tables of the fit and of the planning of a study, and every condition as numbers.

POOR_FIT = 0.02  # a misfit of accuracy beyond which the equation does not describe the model


def fit_table(fitted: Mapping[str, FittedCompetence]) -> TextTable:
    """Return the fitted numbers of Eq. 1 with their standard errors."""
    rows = []
    for model, found in fitted.items():
        verdict = "fits" if found.lines > len(found.errors) else "untested"
        verdict = "Eq. 1 does not fit" if found.largest_misfit > POOR_FIT else verdict
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
