"""The page of one run or several: what it shows, ready for the template."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from functools import cache

from jinja2 import Environment

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.run import Run
from rewardlab.core.summary import CalibrationErrors, Measurement, Summary, join_summaries, rename_models
from rewardlab.core.trial import CLEAN, MIDWAY
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.display import (
    format_coverage,
    format_date,
    format_interval,
    format_number,
    format_p_value,
    format_threshold,
    names_of_run,
    reason_kind,
    run_names,
)
from rewardlab.evaluation.ensembles import EnsembleReport, NormaliserReport, report_ensembles, report_normalisers
from rewardlab.evaluation.findings import NAMED, contrast, expectations_kept, model_verdict, verdict
from rewardlab.evaluation.replay import TrialReplay, replay
from rewardlab.metrics import METRICS, metrics_shown
from rewardlab.metrics.contract import Display, Metric
from rewardlab.models.protocols import QUESTION
from rewardlab.perturbations import choose_perturbations, is_in_catalogue
from rewardlab.reporting.benchmark_tables import (
    PROTOCOL,
    error_text,
    helm_mark,
    load_benchmark,
    rank_text,
    short_name,
    unread_text,
)
from rewardlab.reporting.findings_text import (
    best_control_text,
    certified_phrase,
    data_sentences,
    findings,
    no_labels_sentence,
    stage_metrics,
)
from rewardlab.reporting.page import templates
from rewardlab.reporting.severity_curves import (
    KEPT,
    calibration_figures,
    calibration_sentence,
    curve_figures,
    metrics_with_values,
    why_empty,
)
from rewardlab.reporting.svg_charts import Axes, Point, legend_mark, point_chart, reliability_chart
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
_TABLE_ONLY = ("exact_accuracy", "within_one_accuracy")  # no tiles beside MAE where the worst category needs two


@dataclass(frozen=True)
class ShownNumber:
    """A number as the page shows it: text, interval, coverage, and how good it is from 0 to 1.

    `reference` is, on the same trials, the clean value and, where a change sets new labels, the best constant's.
    """

    text: str
    interval: str
    coverage: str
    value: float | None
    good: float | None
    reference: str = ""
    best_control: str = ""
    why: str = ""  # there is no number


@dataclass(frozen=True)
class ModelView:
    """Everything that the page shows of one model."""

    name: str
    evaluated: bool
    place: int  # among all models: the colour, dots and dashes of its lines
    verdict: str
    findings: list[str]
    tiles: list[tuple[str, ShownNumber]]
    clean: list[tuple[str, ShownNumber]]  # empty where no clean episode has a label
    stages: list[tuple[str, ShownNumber]]  # empty where the data has none
    wrong_rewards: list[tuple[str, ShownNumber]]
    thresholds: list[tuple[str, str, str, list[tuple[int, str]]]]  # category, certified, measured, state by severity
    heat: list[tuple[str, list[tuple[str, list[ShownNumber]]]]]  # metric, then category, then one number per severity
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
    numbers: list[ShownNumber]
    dropped: int


@dataclass(frozen=True)
class UnscoredTrials:
    """Trials without a score that share model, perturbation and reason."""

    status: str
    model: str
    perturbation: str
    reason: str
    trials: int
    remedy: str = ""  # what would make a perturbation apply


def model_views(summary: Summary) -> list[ModelView]:
    """Return the models in their order, evaluated ones first."""
    return [_model(summary, place, name) for place, name in enumerate(summary.models)]


def _model(summary: Summary, place: int, name: str) -> ModelView:
    heat = [
        (m.name, [(c, [_number_at(summary, name, c, s, m) for s in summary.severities]) for c in summary.categories])
        for m in metrics_shown(lambda d: d.heat_map)
    ]
    calibration = [errors for errors in summary.calibration if errors.model == name]
    return ModelView(
        name=name,
        evaluated=name in summary.evaluated,
        place=place,
        verdict=model_verdict(summary, name) if name in summary.evaluated else "",
        findings=findings(summary, name) if name in summary.evaluated else [],
        tiles=_tiles(summary, name),
        clean=[(m.heading, _clean_number(summary, name, m)) for m in _clean_metrics(summary, lambda d: d.headline)],
        stages=[(m.heading, _clean_number(summary, name, m)) for m in stage_metrics(summary)],
        wrong_rewards=[
            (m.heading, _clean_number(summary, name, m)) for m in _clean_metrics(summary, lambda d: d.wrong_reward)
        ],
        thresholds=[_thresholds(summary, name, c) for c in summary.categories if c not in summary.unlabelled],
        heat=heat,
        diagrams=[(reliability_chart(e.diagram, f"{name}, {e.where} trials"), e) for e in calibration],
        calibration=calibration_figures(summary, name),
        calibration_finding=calibration_sentence(summary, name),
    )


def _clean_metrics(summary: Summary, where: Callable[[Display], bool]) -> list[Metric]:
    return metrics_with_values(summary, metrics_shown(where), {CLEAN})


def _tiles(summary: Summary, model: str) -> list[tuple[str, ShownNumber]]:
    """Return the headline on clean episodes and in the worst category; without labels, the expectations kept."""
    top, kept, success = summary.highest_severity, METRICS[KEPT], METRICS["success_accuracy"]
    if not summary.labelled:
        count, asked = expectations_kept(summary, model)
        share = count / asked if asked else None
        every = ShownNumber(format_number(share), "", f"{count}/{asked} kept", share, None)
        categories = [(f"{c}, severity {top}", _number_at(summary, model, c, top, kept)) for c in summary.categories]
        return [("expectations kept", every), *categories]
    in_table = _TABLE_ONLY if summary.categories else ()
    metrics = [m for m in _clean_metrics(summary, lambda d: d.headline) if m.name not in in_table]
    found = [(f"{m.heading}, clean", _clean_number(summary, model, m)) for m in metrics]
    for metric in (success, kept):
        rows = [summary.measurement(model, category, top, metric.name) for category in summary.categories]
        known = [(row.value, row) for row in rows if row.value is not None]
        if known:
            worst = min(known, key=lambda pair: pair[0])[1]
            shown = replace(_number(worst, metric), reference=f"{worst.group}, severity {worst.severity}")
            found.append((f"{metric.heading}, worst category", shown))
    return found


def _clean_number(summary: Summary, model: str, metric: Metric) -> ShownNumber:
    """Return a metric of the clean episodes, beside the best control and how far it can reach where that is known."""
    number = _number(summary.clean(model, metric.name), metric)
    ceiling = summary.clean(model, metric.display.ceiling).value
    reach = "" if ceiling is None else f"ceiling {format_number(ceiling)}"
    return replace(number, reference=reach, best_control=best_control_text(summary, model, metric))


def _number_at(summary: Summary, model: str, group: str, severity: int, metric: Metric) -> ShownNumber:
    """Return a metric under change, beside its references."""
    row = summary.measurement(model, group, severity, metric.name)
    held = summary.paired_reference_of(model, group, severity, metric.name)
    references = [f"clean {format_number(held.clean)}"] if held.severity and held.clean is not None else []
    if references and held.paired < held.trials:
        references = [f"clean {format_number(held.clean)} to {format_number(held.changed)} on {held.paired} pairs"]
    references += [f"constant {format_number(held.blind)}"] if held.relabelled else []
    references += [f"noise {format_number(held.noise_floor)}"] if held.noise_floor is not None else []
    shown = ", ".join(references) if row.value is not None else ""
    return replace(_number(row, metric, held.blind if held.relabelled else None), reference=shown)


def _number(row: Measurement, metric: Metric, blind: float | None = None) -> ShownNumber:
    good, why = _goodness(row.value, metric, blind), why_empty([row], metric)
    return ShownNumber(format_number(row.value), format_interval(row), format_coverage(row), row.value, good, why=why)


def _goodness(value: float | None, metric: Metric, blind: float | None) -> float | None:
    """Return how good a number is from 0 to 1, for its colour; what a constant reaches too is 0."""
    if value is None:
        return None
    low, high = metric.display.axis
    if blind is not None:
        low, high = (blind, high) if metric.better == "higher" else (low, blind)
    if low == high:
        return None
    place = min(max((value - low) / (high - low), 0.0), 1.0)
    return place if metric.better == "higher" else 1 - place


def _thresholds(summary: Summary, model: str, category: str) -> tuple[str, str, str, list[tuple[int, str]]]:
    threshold = summary.threshold(model, category)
    certified, measured = threshold.certified, threshold.measured
    sure, seen = (-1 if last is None else last for last in (certified, measured))
    states = [(s, "certified" if s <= sure else "measured" if s <= seen else "open") for s in summary.severities]
    return category, certified_phrase(summary, model, category), format_threshold(measured), states


def perturbation_views(
    summary: Summary, trials: list[TrialTable], summaries: Mapping[str, str]
) -> list[PerturbationView]:
    """Return one line per evaluated model and perturbation, at its highest severity; `summaries` explains each.

    A perturbation of which no severity has anything to measure has no line.
    """
    highest: dict[str, int] = {}  # severity with trials; some perturbations do not apply above it
    for row in (row for row in summary.measurements if row.asked and row.severity):
        highest[row.group] = max(highest.get(row.group, 0), row.severity)
    categories: dict[str, str] = {}
    dropped: Counter[tuple[str, str, float]] = Counter()  # trials by model, perturbation and severity
    for table in trials:
        categories |= zip(table.text("perturbation"), table.text("category"), strict=True)
        without = table.where(table.matches("status", "dropped"))
        dropped.update(
            zip(without.text("model"), without.text("perturbation"), without.number("severity"), strict=True)
        )
    return [
        PerturbationView(
            name=name,
            severity=highest[name],
            category=categories.get(name, ""),
            summary=summaries.get(name, ""),
            model=model,
            numbers=[_number_at(summary, model, name, highest[name], m) for m in perturbation_metrics(summary)],
            dropped=dropped[model, name, highest[name]],
        )
        for model in summary.evaluated
        for name in summary.perturbations
        if name in highest
    ]


def midway_rows(summary: Summary) -> list[tuple[str, str, int, list[ShownNumber]]]:
    """Return model, perturbation, severity and numbers of what changes in the middle of clips, other words among it.

    A run that changes no pixels there has none.
    """
    if not any(name.startswith(MIDWAY) for name in summary.perturbations):
        return []
    metrics = metrics_shown(lambda display: display.midway)
    found: dict[tuple[str, str, int], None] = dict.fromkeys(
        (row.group, row.model, row.severity) for row in summary.measurements if row.metric == metrics[0].name
    )
    singles = [each for each in found if each[0] in summary.perturbations]
    return [(m, group, s, [_number_at(summary, m, group, s, each) for each in metrics]) for group, m, s in singles]


def perturbation_metrics(summary: Summary) -> list[Metric]:
    """Return the columns of the table of perturbations; the expectations kept lead, for they need no base rate."""
    shown = metrics_shown(lambda display: display.perturbation_table)
    found = metrics_with_values(summary, shown, summary.perturbations)
    return sorted(found, key=lambda metric: metric.name != KEPT)


def perturbation_summaries(names: Iterable[str], *, allow_code: bool) -> dict[str, str]:
    """Return what each perturbation of a plan does, by its name; one outside the package may no longer be there.

    Without `allow_code` no code outside the package is imported: such perturbations have no summary.
    """
    found: dict[str, str] = {}
    for name in (name for name in names if allow_code or is_in_catalogue(name)):
        with suppress(PlanError):
            found |= {perturbation.name: perturbation.summary for perturbation in choose_perturbations((name,))}
    return found


def unscored_trials(tables: list[TrialTable], evaluated: Collection[str]) -> list[UnscoredTrials]:
    """Return failed and dropped trials, grouped: failures first, evaluated models before controls, most frequent first.

    What is dropped for every model is one line; what is dropped for one control alone comes last. Reasons that differ
    only in numbers and quoted words are one, shown by an example.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    examples: dict[str, str] = {}
    for trials in tables:
        unscored = trials.where(~trials.matches("status", "scored"))
        texts = (unscored.text(column) for column in ("status", "model", "perturbation", "reason"))
        for status, model, name, reason in zip(*texts, strict=True):
            example = examples.setdefault(reason_kind(reason or ""), reason or "")
            counts[status, model, name, example] += 1
    models = {model for trials in tables for model in trials.codes("model")[1]}
    alike = Counter((status, name, reason, count) for (status, _, name, reason), count in counts.items())
    rows: dict[UnscoredTrials, None] = {}
    for (status, model, name, reason), count in counts.items():
        row = UnscoredTrials(status, model, name, reason, count, _remedy(reason) if status == "dropped" else "")
        if status == "dropped" and len(models) > 1 and alike[status, name, reason, count] == len(models):
            row = replace(row, model=EVERY_MODEL, trials=count * len(models))
        rows[row] = None

    def order(row: UnscoredTrials) -> tuple[object, ...]:
        control = row.model not in evaluated
        return row.status != "failed", control + (control and row.model != EVERY_MODEL), -row.trials, astuple(row)

    return sorted(rows, key=order)[:MOST_REASONS]


# The command or setting that provides what a perturbation needs, by words of the reason why it does not apply.
_REMEDIES = {
    "known to be a success": "Labels: rewardlab data verify; or --demonstrations if all episodes are successes.",
    "true level is unknown": "Labels: rewardlab data verify.",
    "the label says": "Labels: rewardlab data verify.",
    "simulator": "Episodes recorded in a simulator: rewardlab collect.",
    "in memory at once": "Shorter or smaller clips, or a higher REWARDLAB_MAX_CLIP_MB.",
}


def _remedy(reason: str) -> str:
    return next((remedy for words, remedy in _REMEDIES.items() if words in reason), "")


def application_sentences(tables: Sequence[TrialTable]) -> list[str]:
    """Return, for each perturbation that does not apply everywhere, in how many episodes and severities it does."""
    asked: dict[str, set[str]] = {}
    applied: dict[str, set[str]] = {}
    for number, trials in enumerate(tables):
        columns = (*(trials.text(name) for name in ("status", "perturbation", "episode")), trials.number("severity"))
        for status, name, episode, severity in zip(*columns, strict=True):
            case = f"{number} {episode} {severity}"
            asked.setdefault(name, set()).add(case)
            if status != "dropped":
                applied.setdefault(name, set()).add(case)
    found = {name: (len(applied.get(name, ())), len(episodes)) for name, episodes in asked.items()}
    some = sorted((pair[0] / pair[1], name, pair) for name, pair in found.items() if pair[0] < pair[1])
    return [f"{name} applies to {pair[0]:,} of {pair[1]:,} cases (episode and severity)" for _, name, pair in some]


@dataclass(frozen=True)
class EnsembleView:
    """What the page shows of the ensembles of one run: the correlations, the costs, and the curve."""

    report: EnsembleReport
    unit: str  # of the cost: price where every model has one, else seconds
    drawing: str  # empty where no cost is known


def ensemble_view(run: Run) -> EnsembleView | None:
    """Return the cost and the correlated errors of the ensembles of a run; None where it has none."""
    if run.record.kind not in ("stress", "bench") or not any("ensemble:" in name for name in run.record.evaluated):
        return None
    report = report_ensembles(run)
    if report is None:
        return None
    priced = all(point.price is not None for point in report.points)
    unit = "price of a verdict" if priced else "seconds a verdict"
    names = names_of_run(run.record, run.record.evaluated)
    points = [
        Point(names[point.model], cost, point.accuracy, place % 8)
        for place, point in enumerate(report.points)
        if (cost := point.price if priced else point.seconds) is not None
    ]
    if not points:
        return EnsembleView(report, unit, "")
    low, high = min(point.y for point in points) - 0.02, max(point.y for point in points) + 0.02
    axes = Axes(unit, "success accuracy", right=1.05 * max(point.x for point in points), bottom=low, top=high)
    return EnsembleView(report, unit, point_chart(points, axes, f"success accuracy against {unit}"))


def normaliser_reports(run: Run) -> list[NormaliserReport]:
    """Return what the normalisers of a run change; none in a run of another kind."""
    return report_normalisers(run) if run.record.kind in ("stress", "bench") else []


# of the trials that the page needs
_COLUMNS = (*(field.name for field in fields(ShownTrial)), "status", "reason", "truth_success")


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], *, allow_code: bool = False) -> str:
    """Return the page of these runs, with their summaries, as text; every string from outside is escaped.

    Only with `allow_code`, for runs of your own, it opens the dataset and imports the code that a run names.
    """
    records = [run.record for run in runs]
    short = [names_of_run(record, own.models) for record, own in zip(records, summaries, strict=True)]
    names = {model: name for own in short for model, name in own.items()}
    summary = join_summaries(list(zip(run_names(runs), map(rename_models, summaries, short), strict=True)))
    parted = contrast(summary)
    tables = [run.trials(_COLUMNS) for run in runs]
    data = dict.fromkeys(record.settings.data for record in records)
    planned = dict.fromkeys(name for record in records for name in record.settings.perturbations)
    cards: list[ClipCard] = []
    missing: list[str] = []
    viewed: list[ViewedTrial] = []
    wrong: list[GalleryCard] = []
    for run, trials, own in zip(runs, tables, summaries, strict=True):
        shown: TrialReplay | None = None
        try:
            shown = replay(run, allow_code=allow_code)
        except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
            missing.append(cannot_show(error))
        if shown is not None:
            found, reasons = clip_cards(shown, trials, own.worst, contrast(own))
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
            verdict=(*([parted.sentence] if parted is not None else []), *verdict(summary)),
            named=NAMED,
            no_labels=no_labels_sentence(list(data)).split("`") if not summary.labelled else [],
            data_sentences=data_sentences(summary),
            curves=curve_figures(summary),
            perturbation_metrics=perturbation_metrics(summary),
            perturbations=perturbation_views(summary, tables, perturbation_summaries(planned, allow_code=allow_code)),
            cards=cards,
            missing=missing,
            unfinished=sum(record.trials for record in records) - sum(map(_kept_trials, runs, tables)),
            controls=[check for check in summary.controls if check.trials],
            applies=application_sentences(tables),
            unscored=unscored_trials(tables, {name for record in records for name in record.evaluated}),
            viewed=viewed,
            wrong=wrong,
            question=QUESTION,
            ensembles=[(run, view) for run in runs if (view := ensemble_view(run)) is not None],
            normalisers=[report for run in runs for report in normaliser_reports(run)],
            midway=midway_rows(summary),
            metric_headings={metric.name: metric.heading for metric in METRICS.values()},
            glossary={metric.heading: metric.summary for metric in METRICS.values()},
        )
    )


def _kept_trials(run: Run, trials: TrialTable) -> int:
    """Return how many trials a run holds, repeats among them."""
    return len(trials) if run.record.plan.repeats == 1 else len(run.trials(("id", "status"), repeats=True))


@cache
def environment() -> Environment:
    """Return the templates of this package, with escaping on."""
    made = templates().overlay()
    made.globals |= {"format_number": format_number, "format_p_value": format_p_value, "format_date": format_date}
    made.globals |= {"error_text": error_text, "short_name": short_name, "unread_text": unread_text}
    made.globals |= {"helm_mark": helm_mark, "format_interval": format_interval, "rank_text": rank_text}
    made.globals |= {"legend_mark": legend_mark}
    return made
