"""Command `leaderboard`: tables per dataset and protocol, rank intervals, the site."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.core.run_files import RunRecord
from rewardlab.core.settings import Help, several
from rewardlab.core.storage import write_file
from rewardlab.core.summary import Summary
from rewardlab.core.trial import CLEAN
from rewardlab.core.trial_table import TrialTable
from rewardlab.evaluation.bench import ErrorEstimate, protocol_errors
from rewardlab.evaluation.display import format_interval, format_number, listed, names_of_run
from rewardlab.evaluation.roborewardbench import (
    EPISODES,
    SUBSETS,
    PublishedRow,
    RankSwing,
    helm_readings,
    published_rows,
    rank_swings,
    subset_winners,
)
from rewardlab.evaluation.summary import DRAWS, load_summary
from rewardlab.metrics.accuracy import macro_mae, micro_mae, success_auc_within_subset
from rewardlab.metrics.clustered_bootstrap import condition_sums, draw_clusters
from rewardlab.metrics.contract import answered, eligible
from rewardlab.metrics.estimates import cluster_codes, clusters_of, with_clusters
from rewardlab.models import MODELS
from rewardlab.reporting.benchmark_tables import helm_mark, load_benchmark, short_name
from rewardlab.reporting.findings_text import best_control_text, certified_text
from rewardlab.reporting.report import AllowCode
from rewardlab.reporting.submissions import Submission, stated_training, training_sentences, valid_submitted

Numbers = NDArray[np.float64]
_FACTS = ("task", "video", "subset")  # of an episode, the same for every model


def leaderboard(
    runs: Annotated[
        Run | str | Path | Sequence[Run | str | Path],
        Help("run folders, or submissions as `runs publish` writes them", metavar="RUN"),
    ],
    *,
    out: Annotated[Path | str, Help("folder of the site")] = "leaderboard",
    allow_code: AllowCode = False,
) -> Path:
    """Rank the evaluated models of many runs on a static site with a page per model; return the path of its index.

    There is one table for each dataset and protocol; published results stand beside yours where they are comparable.

    Examples:
        rewardlab leaderboard runs/*
        rewardlab leaderboard runs/pocket runs/gpt --out site --allow-code
        rewardlab leaderboard submissions/* --check
    """
    from rewardlab.reporting.run_page import environment, render_page

    places, folder = several(runs), Path(out)
    if not places:
        raise PlanError("name at least one run folder")
    entries: list[Entry] = []
    for number_of_run, submitted in enumerate(map(valid_submitted, places), start=1):
        run = submitted.run
        summary, page = load_summary(run), f"{_slug(submitted.place.resolve().name)}-{number_of_run}.html"
        write_file(folder / page, render_page([run], [summary], allow_code=allow_code))
        entries += entries_of(run, summary, page, submitted.submission)
    entries = with_model_pages(entries)
    tables = leaderboard_tables(entries)
    template = environment().get_template("leaderboard_model.html")
    for own in model_pages(entries, tables):
        write_file(folder / own.page, template.render(own=own))
    html = environment().get_template("leaderboard.html").render(tables=tables, least_coverage=LEAST_COVERAGE)
    return write_file(folder / "index.html", html)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:80]


@dataclass(frozen=True)
class RankInterval:
    """Between which ranks a model lies in 95 % of draws, and on how many episodes it was compared."""

    low: int
    high: int
    episodes: int


def rank_intervals(tables: Sequence[TrialTable], draws: int) -> list[RankInterval | None]:
    """Return, per table of one model's trials, its rank by mean error over subsets, on the episodes that all answered.

    None where there is nothing to rank: fewer than two models, or no common episode.
    """
    errors: list[dict[str, float]] = []
    for table in tables:
        used = table.where(answered(table, "level"))
        error = np.abs(used.number("level") - used.number("truth_level"))
        errors.append(dict(zip(map(str, used.text("episode")), error.tolist(), strict=True)))
    common = sorted(set.intersection(*map(set, errors))) if len(errors) > 1 else []
    if not common:
        return [None] * len(tables)
    drawn = _drawn_errors(tables[0], common, np.array([[own[name] for name in common] for own in errors]), draws)
    ranks = 1 + (drawn[None, :, :] < drawn[:, None, :]).sum(axis=1)  # models with a lower error come before
    low, high = np.quantile(ranks, (0.025, 0.975), axis=1, method="nearest")
    return [RankInterval(int(a), int(b), len(common)) for a, b in zip(low, high, strict=True)]


def _drawn_errors(first: TrialTable, episodes: Sequence[str], errors: Numbers, draws: int) -> Numbers:
    """Return the mean over subsets of the mean error, by model and draw; in a draw, over the subsets that are in it."""
    place = {name: row for row, name in enumerate(first.text("episode"))}
    facts = first.take(np.array([place[name] for name in episodes], dtype=np.int64))
    task, video, subset = (np.unique(facts.text(c).astype(str), return_inverse=True)[1] for c in _FACTS)
    cluster, subsets = cluster_codes(task.astype(np.int64), video.astype(np.int64)), int(subset.max()) + 1
    drawn = draw_clusters(int(cluster.max()) + 1, draws, 0)
    found = []
    for own in errors:
        ratios = drawn.ratios(*condition_sums(own, cluster, subset.astype(np.int64), subsets, drawn.clusters))
        known = ~np.isnan(ratios)
        found.append(np.where(known, ratios, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return np.array(found)


# The tables of the leaderboard: one per dataset and protocol, ranked only where enough was answered.

LEAST_COVERAGE = 0.95  # of the asked episodes; a model that answers fewer chose its own questions, and is not ranked
ROBO_ARENA = "robo_arena"
HELM, STRICT, STRESS = (
    "RoboRewardBench, HELM scoring",
    "RoboRewardBench, strict scoring",
    "clean episodes of a stress test",
)


@dataclass(frozen=True)
class LeaderboardRow:
    """One line of a table; what a published row does not state is empty."""

    model: str
    name: str
    published: bool
    mae: ErrorEstimate
    robo_arena: ErrorEstimate | None
    oxe: ErrorEstimate | None
    subsets: dict[str, ErrorEstimate]
    mark: str = ""
    rank: int | None = None
    rank_interval: RankInterval | None = None
    frames: str = ""
    success: str = ""
    tau: str = ""
    certified: tuple[str, ...] = ()  # severities, each with its categories
    auc: str = ""
    controls: str = ""
    best_controls: dict[str, str] | None = None  # by heading, what the best of them reaches
    link: str = ""  # of the report
    page: str = ""  # of the model
    version: str = ""  # of rewardlab
    trained_on: str = ""  # in a few words, as stated
    training: tuple[str, ...] = ()  # sentences about training data
    about: str = ""  # address that the submission gives
    control: bool = False

    @property
    def covered(self) -> bool:
        """Tell whether enough of what was asked was answered for a rank; a published row is ranked as printed."""
        return self.published or (self.mae.value is not None and self.mae.scored >= LEAST_COVERAGE * self.mae.asked)


@dataclass(frozen=True)
class LeaderboardTable:
    """The models that answered the same questions under the same protocol; `listed` are those without a rank."""

    data: str
    protocol: str
    episodes: int
    subsets: tuple[str, ...]
    categories: tuple[str, ...]
    ranked: tuple[LeaderboardRow, ...]
    listed: tuple[LeaderboardRow, ...]
    controls: tuple[LeaderboardRow, ...]
    chart: tuple[LeaderboardRow, ...]  # those with an error, the lowest first
    chart_end: float  # of its axis, in levels
    published: bool
    winners: dict[str, tuple[str, ...]]  # by subset
    swings: tuple[RankSwing, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """A model of a run under one protocol: its line, its trials, and which data they are of."""

    row: LeaderboardRow
    trials: TrialTable
    data: str
    data_digest: str
    protocol: str
    is_benchmark: bool
    categories: tuple[str, ...]


def entries_of(run: Run, summary: Summary, page: str, submission: Submission | None = None) -> list[Entry]:
    """Return the evaluated models of a run, of a submission its model, and the controls that do not see the truth.

    Those of a benchmark run are scored as HELM does where it can, else strictly.
    """
    record, benchmark = run.record, load_benchmark(run)
    trials = with_clusters(run.trials())
    clean = trials.where(trials.matches("perturbation", CLEAN))
    names = names_of_run(record, summary.models)
    errors = {} if benchmark is None else benchmark.errors.models
    silent = [name for name, model in errors.items() if not model.counts.texts]
    helm = helm_readings(clean, silent).trials if errors else clean
    # The name of a dataset, with that of the whole where it is one split.
    parts = [part for part in record.settings.data.split("/") if part] or [record.settings.data]
    data = "/".join(parts[-2:] if parts[-1] in ("train", "val", "test") else parts[-1:])
    found = []
    for place, model in enumerate(filter(lambda name: not _sees_truth(name, summary), summary.models), 1):
        own, control = errors.get(model), model not in summary.evaluated
        if submission is not None and not control and model != submission.model:
            continue
        as_helm = own is not None and own.helm is not None
        protocol = HELM if as_helm else STRICT if benchmark is not None else STRESS
        mine = (helm if as_helm else clean).where(clean.matches("model", model) & eligible(clean, "level"))
        mark = helm_mark(own) if own is not None and as_helm else ""
        link, frames = "" if control else f"{page}#model-{place}", record.settings.frames
        row = replace(_row(summary, model, mine), name=names[model], link=link, frames=frames, mark=mark)
        row = replace(row, control=control, version=record.version)
        row = row if control else _with_training(row, trials, record, submission)
        complete = set(mine.text("subset")) == set(SUBSETS) and len(mine) == EPISODES
        whole = benchmark is not None and record.settings.limit is None and complete
        found.append(Entry(row, mine, data, record.plan.data_digest, protocol, whole, summary.categories))
    return found


def _with_training(
    row: LeaderboardRow, trials: TrialTable, record: RunRecord, submission: Submission | None
) -> LeaderboardRow:
    names, stated_by = stated_training(record, row.model, ())
    if submission is not None:
        names, stated_by = submission.trained_on, submission.stated_by
    short = "not stated" if stated_by == "nobody" else listed(names) if names else "no public dataset"
    said = training_sentences(trials, record, row.model, names, stated_by)
    about = submission.link if submission is not None else ""
    return replace(row, trained_on=short, training=tuple(said), about=about)


@dataclass(frozen=True)
class ModelPage:
    """Everything that the leaderboard has of one model: its line in each table."""

    page: str
    model: str
    name: str
    about: tuple[str, ...]
    places: tuple[tuple[LeaderboardTable, LeaderboardRow, int], ...]  # table, line, number of the table


def with_model_pages(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with the name of the page of each evaluated model."""
    models = dict.fromkeys(entry.row.model for entry in entries if not entry.row.control)
    pages = {model: f"model-{number}-{_slug(model)[:40]}.html" for number, model in enumerate(models, 1)}
    return [replace(each, row=replace(each.row, page=pages.get(each.row.model, ""))) for each in entries]


def model_pages(entries: Sequence[Entry], tables: Sequence[LeaderboardTable]) -> list[ModelPage]:
    """Return the page of each evaluated model."""
    found = []
    for page in dict.fromkeys(entry.row.page for entry in entries if not entry.row.control):
        rows = [entry.row for entry in entries if entry.row.page == page and not entry.row.control]
        places = [
            (table, row, number)
            for number, table in enumerate(tables, 1)
            for row in (*table.ranked, *table.listed)
            if row.page == page
        ]
        about = dict.fromkeys(row.about for row in rows if row.about)
        found.append(ModelPage(page, rows[0].model, rows[0].name, tuple(about), tuple(places)))
    return found


def leaderboard_tables(entries: Sequence[Entry]) -> list[LeaderboardTable]:
    """Return one table per dataset and protocol of an evaluated model, in the order of the runs.

    A control of several runs stands in a table once, as the first of them measured it.
    """
    groups: dict[tuple[str, str], list[Entry]] = {}
    controls: dict[tuple[str, str], dict[str, LeaderboardRow]] = {}
    for entry in entries:
        key = entry.data_digest, entry.protocol
        if entry.row.control:
            controls.setdefault(key, {}).setdefault(entry.row.model, entry.row)
        else:
            groups.setdefault(key, []).append(entry)
    return [_table(group, list(controls.get(key, {}).values())) for key, group in groups.items()]


def _table(entries: Sequence[Entry], controls: Sequence[LeaderboardRow]) -> LeaderboardTable:
    first = entries[0]
    published = first.protocol == HELM and all(entry.is_benchmark for entry in entries)
    enough = [entry for entry in entries if entry.row.covered]
    intervals = rank_intervals([entry.trials for entry in enough], DRAWS)
    measured = [replace(entry.row, rank_interval=found) for entry, found in zip(enough, intervals, strict=True)]
    others = [_published(row) for row in published_rows()] if published else []
    ordered = sorted([*measured, *others], key=lambda row: row.mae.value or 0.0)
    errors = {row.name: {name: x.value for name, x in row.subsets.items() if x.value is not None} for row in ordered}
    several = len(errors) > 1
    listed = [entry.row for entry in entries if not entry.row.covered]
    chart = [row for row in (*ordered, *listed, *controls) if row.mae.value is not None]
    highest = max((error or 0.0 for row in chart for error in (row.mae.value, row.mae.high)), default=0.0)
    return LeaderboardTable(
        data=", ".join(dict.fromkeys(entry.data for entry in entries)),
        protocol=first.protocol,
        episodes=len(first.trials),
        subsets=tuple(sorted({name for entry in entries for name in entry.row.subsets})),
        categories=tuple(dict.fromkeys(name for entry in entries for name in entry.categories)),
        ranked=tuple(replace(row, rank=rank) for rank, row in enumerate(ordered, 1)),
        listed=tuple(listed),
        controls=tuple(sorted(controls, key=lambda row: row.mae.value or 0.0)),
        chart=tuple(sorted(chart, key=lambda row: row.mae.value or 0.0)),
        chart_end=max(1.0, math.ceil(2 * highest) / 2),
        published=published,
        winners=subset_winners(errors) if several else {},
        swings=tuple(rank_swings(errors)) if several else (),
    )


def _certified(summary: Summary, model: str) -> tuple[str, ...]:
    found: dict[str, list[str]] = {}
    for category in summary.categories:
        found.setdefault(certified_text(summary, model, category), []).append(category)
    return tuple(f"{text}: {', '.join(categories)}" for text, categories in found.items())


def _sees_truth(model: str, summary: Summary) -> bool:
    kind = MODELS.get(model.partition(":")[0])
    return model not in summary.evaluated and kind is not None and kind.sees_truth


def _row(summary: Summary, model: str, trials: TrialTable) -> LeaderboardRow:
    success, tau = summary.clean(model, "success_accuracy"), summary.clean(model, "kendall_tau_b")
    ceiling = summary.clean(model, "kendall_tau_b_ceiling").value
    auc = summary.clean(model, success_auc_within_subset.name)
    checks = [c for c in summary.controls if (c.model, c.where, c.metric) == (model, "clean", micro_mae.name)]
    beaten = [c.control for c in checks if c.conclusion == "beats"]
    draws = draw_clusters(int(clusters_of(trials).max(initial=-1)) + 1, DRAWS, seed=0)
    errors = protocol_errors(trials, draws)
    others = trials.where(~trials.matches("subset", ROBO_ARENA))
    parts = ROBO_ARENA in errors.subsets
    return LeaderboardRow(
        model=model,
        name=model,
        published=False,
        mae=errors.macro,
        robo_arena=errors.subsets.get(ROBO_ARENA),
        oxe=protocol_errors(others, draws).macro if parts and len(others) else None,
        subsets={short_name(name): error for name, error in errors.subsets.items()},
        success=f"{format_number(success.value)} {format_interval(success)}",
        tau=f"{format_number(tau.value)} {format_interval(tau)} of {format_number(ceiling)}",
        certified=_certified(summary, model) if model in summary.evaluated else (),
        auc=f"{format_number(auc.value)} {format_interval(auc)}",
        controls=f"beats {len(beaten)} of {len(checks)}" if checks else "",
        best_controls={m.heading: best_control_text(summary, model, m) for m in (macro_mae, success_auc_within_subset)},
    )


def _published(row: PublishedRow) -> LeaderboardRow:
    oxe = [value for name, value in row.subsets.items() if name != ROBO_ARENA]
    subsets = {name: _printed(value) for name, value in row.subsets.items()}
    overall, arena = _printed(row.overall), _printed(row.subsets[ROBO_ARENA])
    return LeaderboardRow(row.model, row.model, True, overall, arena, _printed(float(np.mean(oxe))), subsets)


def _printed(value: float) -> ErrorEstimate:
    """Return a number as the paper prints it: without interval or coverage."""
    return ErrorEstimate(value, None, None, 0, 0)
