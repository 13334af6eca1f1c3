"""The page of one run or several: what it shows, ready for the template."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from functools import cache

from jinja2 import Environment

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.summary import (
    CalibrationErrors,
    Measurement,
    PairedReference,
    Summary,
    join_summaries,
    rename_models,
)
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.display import (
    format_coverage,
    format_date,
    format_interval,
    format_number,
    format_p_value,
    format_threshold,
    names_of_run,
    run_names,
)
from rewardlab.evaluation.replay import TrialReplay, replay
from rewardlab.metrics import METRICS, metrics_shown
from rewardlab.metrics.contract import Metric
from rewardlab.models.protocols import QUESTION
from rewardlab.perturbations import choose_perturbations, is_in_catalogue
from rewardlab.reporting.benchmark_tables import (
    PROTOCOL,
    error_text,
    helm_mark,
    load_benchmark,
    short_name,
    unread_text,
)
from rewardlab.reporting.findings_text import certified_phrase, data_sentences, findings
from rewardlab.reporting.page import templates
from rewardlab.reporting.severity_curves import (
    KEPT,
    calibration_figures,
    calibration_sentence,
    curve_figures,
    why_empty,
)
from rewardlab.reporting.svg_charts import reliability_chart
from rewardlab.reporting.trial_cards import (
    ClipCard,
    GalleryCard,
    ShownTrial,
    ViewedTrial,
    cannot_show,
    clip_cards,
    gallery_cards,
    viewed_trials,
)

MOST_REASONS = 200  # reasons listed on the page; all are in the Parquet file
EVERY_MODEL = "every model"


@dataclass(frozen=True)
class NumberCell:
    """A number as the page shows it: text, interval, coverage, and how good it is from 0 to 1."""

    text: str
    interval: str
    coverage: str
    value: float | None
    good: float | None
    held_against: str = (
        ""  # on the same trials: the clean value and, where a change sets new labels, the best constant's
    )
    why: str = ""  # there is no number


@dataclass(frozen=True)
class ModelView:
    """Everything that the page shows of one model."""

    name: str
    judged: bool
    colour: int
    findings: list[str]
    tiles: list[tuple[str, NumberCell]]
    wrong_rewards: list[tuple[str, NumberCell]]
    thresholds: list[tuple[str, str, str, list[tuple[int, str]]]]  # category, certified, measured, state by severity
    heat: list[tuple[str, list[tuple[str, list[NumberCell]]]]]  # metric, then category, then one number per severity
    diagrams: list[tuple[str, CalibrationErrors]]  # drawing, numbers
    calibration: list[tuple[str, str]]  # over severity: heading, drawing
    calibration_finding: str


@dataclass(frozen=True)
class PerturbationView:
    """A line of the table of perturbations."""

    name: str
    severity: int
    category: str
    summary: str
    model: str
    cells: list[NumberCell]
    dropped: int


@dataclass(frozen=True)
class UnscoredTrials:
    """Trials without a score that share model, perturbation and reason."""

    status: str
    model: str
    perturbation: str
    reason: str
    trials: int


def model_views(summary: Summary) -> list[ModelView]:
    """Return the models in their order, evaluated ones first."""
    return [_model(summary, place, name) for place, name in enumerate(summary.models)]


def _model(summary: Summary, place: int, name: str) -> ModelView:
    return ModelView(
        name=name,
        judged=name in summary.evaluated,
        colour=place % 8,
        findings=findings(summary, name) if name in summary.evaluated else [],
        tiles=[(m.heading, _clean_number(summary, name, m)) for m in metrics_shown(lambda d: d.headline)],
        wrong_rewards=[(m.heading, _clean_number(summary, name, m)) for m in metrics_shown(lambda d: d.wrong_reward)],
        thresholds=[_thresholds(summary, name, category) for category in summary.categories],
        heat=[(m.name, _heat(summary, name, m)) for m in metrics_shown(lambda d: d.heat_map)],
        diagrams=_diagrams(summary, name),
        calibration=calibration_figures(summary, name),
        calibration_finding=calibration_sentence(summary, name),
    )


def _clean_number(summary: Summary, model: str, metric: Metric) -> NumberCell:
    """Return a metric of the clean episodes, beside how far it can reach there where that is known."""
    number = _number(summary.clean(model, metric.name), metric)
    ceiling = summary.clean(model, metric.display.ceiling).value
    return number if ceiling is None else replace(number, held_against=f"ceiling {format_number(ceiling)}")


def _number(row: Measurement, metric: Metric, held: PairedReference | None = None) -> NumberCell:
    blind = held.blind if held and held.relabelled else None
    return NumberCell(
        format_number(row.value),
        format_interval(row),
        format_coverage(row),
        row.value,
        _goodness(row.value, metric, blind),
        _held_against(held) if held and row.value is not None else "",
        why_empty([row], metric),
    )


def _held_against(held: PairedReference) -> str:
    """Return the references of a number under change."""
    clean = f"clean {format_number(held.clean)}" if held.severity and held.clean is not None else ""
    blind = f"constant {format_number(held.blind)}" if held.relabelled else ""
    return ", ".join(text for text in (clean, blind) if text)


def _goodness(value: float | None, metric: Metric, blind: float | None) -> float | None:
    """Return how good a number is from 0 to 1, for the colour of its cell; what a constant reaches too is 0."""
    if value is None:
        return None
    low, high = metric.display.axis
    if blind is not None:
        low, high = (blind, high) if metric.better == "higher" else (low, blind)
    if low == high:
        return None
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return share if metric.better == "higher" else 1 - share


def _thresholds(summary: Summary, model: str, category: str) -> tuple[str, str, str, list[tuple[int, str]]]:
    threshold = summary.threshold(model, category)
    certified, measured = threshold.certified, threshold.measured
    sure, seen = (-1 if last is None else last for last in (certified, measured))
    states = [(s, "certified" if s <= sure else "measured" if s <= seen else "open") for s in summary.severities]
    return category, certified_phrase(summary, model, category), format_threshold(measured), states


def _heat(summary: Summary, model: str, metric: Metric) -> list[tuple[str, list[NumberCell]]]:
    return [(category, _cells(summary, model, category, metric)) for category in summary.categories]


def _cells(summary: Summary, model: str, category: str, metric: Metric) -> list[NumberCell]:
    """Return one number per severity that was measured."""
    return [
        _number(
            summary.measurement(model, category, s, metric.name),
            metric,
            summary.paired_reference_of(model, category, s, metric.name),
        )
        for s in summary.severities
    ]


def _diagrams(summary: Summary, model: str) -> list[tuple[str, CalibrationErrors]]:
    mine = [errors for errors in summary.calibration if errors.model == model]
    return [(reliability_chart(errors.diagram, f"{model}, {errors.where} trials"), errors) for errors in mine]


def perturbation_views(
    summary: Summary, trials: list[TrialTable], summaries: Mapping[str, str]
) -> list[PerturbationView]:
    """Return one line per evaluated model and perturbation, at its highest severity; `summaries` explains each."""
    dropped, severity = _dropped(trials), _highest_severities(summary)
    categories = _categories(trials)
    return [
        PerturbationView(
            name=name,
            severity=severity[name],
            category=categories.get(name, ""),
            summary=summaries.get(name, ""),
            model=model,
            cells=[
                _number(
                    summary.measurement(model, name, severity[name], metric.name),
                    metric,
                    summary.paired_reference_of(model, name, severity[name], metric.name),
                )
                for metric in perturbation_metrics()
            ],
            dropped=dropped.get(name, 0),
        )
        for model in summary.evaluated
        for name in summary.perturbations
    ]


def _highest_severities(summary: Summary) -> dict[str, int]:
    """Return the highest severity of each perturbation with trials; some do not apply above it."""
    found: dict[str, int] = {}
    for row in (row for row in summary.measurements if row.asked):
        found[row.group] = max(found.get(row.group, 0), row.severity)
    return found


def perturbation_metrics() -> list[Metric]:
    """Return the columns of the table of perturbations; the expectations kept lead, for they need no base rate."""
    return sorted(metrics_shown(lambda display: display.perturbation_table), key=lambda metric: metric.name != KEPT)


def perturbation_summaries(names: Iterable[str], *, allow_code: bool) -> dict[str, str]:
    """Return what each perturbation of a plan does, by its name; one outside the package may no longer be there.

    Without `allow_code` no code outside the package is imported: such perturbations have no summary.
    """
    found: dict[str, str] = {}
    for name in (name for name in names if allow_code or is_in_catalogue(name)):
        with suppress(PlanError):
            found |= {perturbation.name: perturbation.summary for perturbation in choose_perturbations((name,))}
    return found


def _categories(tables: list[TrialTable]) -> dict[str, str]:
    return {
        name: group for trials in tables for name, group in zip(trials.text("perturbation"), trials.text("category"))
    }


def _dropped(tables: list[TrialTable]) -> dict[str, int]:
    """Return the number of episodes and severities to which each perturbation does not apply."""
    found: dict[str, int] = {}
    for trials in tables:
        cells = trials.where(trials.matches("status", "dropped"))
        for name, _, _ in set(zip(cells.text("perturbation"), cells.text("episode"), cells.number("severity"))):
            found[name] = found.get(name, 0) + 1
    return found


def unscored_trials(tables: list[TrialTable], judged: Collection[str]) -> list[UnscoredTrials]:
    """Return failed and dropped trials, grouped: failures first, evaluated models before controls, most frequent first.

    What is dropped for every model is one line; what is dropped for one control alone comes last.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for trials in tables:
        cells = trials.where(~trials.matches("status", "scored"))
        texts = (cells.text(column) for column in ("status", "model", "perturbation", "reason"))
        counts.update((status, model, name, reason or "") for status, model, name, reason in zip(*texts))

    def order(row: UnscoredTrials) -> tuple[object, ...]:
        control = row.model not in judged
        return row.status != "failed", control + (control and row.model != EVERY_MODEL), -row.trials, astuple(row)

    models = {model for trials in tables for model in trials.codes("model")[1]}
    rows = _folded([UnscoredTrials(*key, cells) for key, cells in counts.items()], models)
    return sorted(rows, key=order)[:MOST_REASONS]


def _folded(rows: Sequence[UnscoredTrials], models: Collection[str]) -> list[UnscoredTrials]:
    """Return the rows with one in place of those that are the same for every model."""
    alike = Counter((row.status, row.perturbation, row.reason, row.trials) for row in rows)
    found: dict[UnscoredTrials, None] = {}
    for row in rows:
        key = row.status, row.perturbation, row.reason, row.trials
        shared = row.status == "dropped" and len(models) > 1 and alike[key] == len(models)
        one = replace(row, model=EVERY_MODEL, trials=row.trials * len(models)) if shared else row
        found[one] = None
    return list(found)


# of the trials that the page needs
_COLUMNS = (*(field.name for field in fields(ShownTrial)), "status", "reason", "truth_success")


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], *, allow_code: bool = False) -> str:
    """Return the page of these runs, with their summaries, as text; every string from outside is escaped.

    Only with `allow_code`, for runs of your own, it opens the dataset and imports the code that a run names.
    """
    records = [run.record for run in runs]
    short = [names_of_run(record, own.models) for record, own in zip(records, summaries)]
    names = {model: name for own in short for model, name in own.items()}
    summary = join_summaries(list(zip(run_names(runs), map(rename_models, summaries, short))))
    tables = [run.trials(_COLUMNS) for run in runs]
    data = dict.fromkeys(record.settings.data for record in records)
    planned = dict.fromkeys(name for record in records for name in record.settings.perturbations)
    cards: list[ClipCard] = []
    missing: list[str] = []
    viewed: list[ViewedTrial] = []
    wrong: list[GalleryCard] = []
    for run, trials, own in zip(runs, tables, summaries):
        shown = _trials_to_show(run, missing, allow_code=allow_code)
        if shown is not None:
            found, reasons = clip_cards(shown, trials, own.worst)
            cards += found
            missing += reasons
        viewed += viewed_trials(run, trials, shown)
        wrong += gallery_cards(run, trials, shown)
    return (
        environment()
        .get_template("page.html")
        .render(
            title=f"{', '.join(summary.evaluated)} on {', '.join(data)}",
            records=records,
            names=names,
            summary=summary,
            benchmarks=[benchmark for run in runs if (benchmark := load_benchmark(run)) is not None],
            protocol=PROTOCOL,
            models=model_views(summary),
            data_sentences=data_sentences(summary),
            curves=curve_figures(summary),
            perturbation_metrics=perturbation_metrics(),
            perturbations=perturbation_views(summary, tables, perturbation_summaries(planned, allow_code=allow_code)),
            cards=cards,
            missing=missing,
            unfinished=sum(record.trials - len(table) for record, table in zip(records, tables)),
            unscored=unscored_trials(tables, {name for record in records for name in record.evaluated}),
            viewed=viewed,
            wrong=wrong,
            question=QUESTION,
            glossary={metric.heading: metric.summary for metric in METRICS.values()},
        )
    )


def _trials_to_show(run: Run, missing: list[str], *, allow_code: bool) -> TrialReplay | None:
    """Return what replays the trials of the run; None, with the reason added to `missing`, if that is not possible."""
    try:
        return replay(run, trust=allow_code)
    except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
        missing.append(cannot_show(error))
        return None


@cache
def environment() -> Environment:
    """Return the templates of this package, with escaping on."""
    made = templates().overlay()
    made.globals |= {"format_number": format_number, "format_p_value": format_p_value, "format_date": format_date}
    made.globals |= {"error_text": error_text, "short_name": short_name, "unread_text": unread_text}
    made.globals |= {"helm_mark": helm_mark, "format_interval": format_interval}
    return made
