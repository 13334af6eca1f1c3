"""The report page: one self-contained HTML file about one run, or about several side by side."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader

from rewardlab.analysis.display_names import names_of_run
from rewardlab.analysis.format import format_date, format_interval, format_number, format_p_value
from rewardlab.analysis.run_labels import run_names
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run, atomic_write
from rewardlab.core.summary import Summary, join_summaries, rename_models
from rewardlab.metrics import METRICS
from rewardlab.models.protocols.description import QUESTION
from rewardlab.reporting.benchmark_tables import (
    PROTOCOL,
    error_text,
    helm_mark,
    load_benchmark,
    short_name,
    unread_text,
)
from rewardlab.reporting.failure_clips import ClipCard, ShownCell, cannot_show, clip_cards
from rewardlab.reporting.findings_text import data_sentences
from rewardlab.reporting.page_model import (
    model_views,
    perturbation_metrics,
    perturbation_summaries,
    perturbation_views,
    unscored_cells,
)
from rewardlab.reporting.severity_curves import curve_figures
from rewardlab.reporting.trial_viewer import ViewedTrial, viewed_trials
from rewardlab.reporting.wrong_reward_gallery import GalleryCard, gallery_cards
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, replay

# of the trials; the page says no more
_COLUMNS = (*(field.name for field in fields(ShownCell)), "status", "reason", "truth_success")


def write_page(runs: Sequence[Run], path: Path, summaries: Sequence[Summary], *, trust: bool = False) -> Path:
    """Write the page of these runs, of which the summaries are given, and return its path.

    Only with `trust`, for runs of one's own, is the dataset opened and the code imported that a run names.
    """
    html = render_page(runs, summaries, trust=trust)
    with atomic_write(path) as partial:
        partial.write_text(html, encoding="utf-8")
    return path


def render_page(runs: Sequence[Run], summaries: Sequence[Summary], *, trust: bool = False) -> str:
    """Return the page as text; every string from outside is escaped."""
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
        shown = _cells_to_show(run, missing, trust=trust)
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
            title=f"{', '.join(summary.judged)} on {', '.join(data)}",
            records=records,
            names=names,
            summary=summary,
            benchmarks=[benchmark for run in runs if (benchmark := load_benchmark(run)) is not None],
            protocol=PROTOCOL,
            models=model_views(summary),
            data_sentences=data_sentences(summary),
            curves=curve_figures(summary),
            perturbation_metrics=perturbation_metrics(),
            perturbations=perturbation_views(summary, tables, perturbation_summaries(planned, trust=trust)),
            cards=cards,
            missing=missing,
            unfinished=sum(record.cells - len(table) for record, table in zip(records, tables)),
            unscored=unscored_cells(tables, {name for record in records for name in record.judged}),
            viewed=viewed,
            wrong=wrong,
            question=QUESTION,
            glossary={metric.heading: metric.summary for metric in METRICS.values()},
        )
    )


def _cells_to_show(run: Run, missing: list[str], *, trust: bool) -> CellReplay | None:
    """Return what makes the run's cells anew; None, and the reason among what is missing, where that cannot be."""
    try:
        return replay(run, trust=trust)
    except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
        missing.append(cannot_show(error))
        return None


@cache
def environment() -> Environment:
    """Return the templates of this package, with escaping on."""
    made = Environment(loader=PackageLoader("rewardlab.reporting", "."), autoescape=True, trim_blocks=True)
    made.globals |= {"format_number": format_number, "format_p_value": format_p_value, "format_date": format_date}
    made.globals |= {"error_text": error_text, "short_name": short_name, "unread_text": unread_text}
    made.globals |= {"helm_mark": helm_mark, "format_interval": format_interval}
    return made
