"""The tables of the leaderboard: one per dataset and protocol, ranked only where enough was answered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rewardlab.analysis.benchmark_errors import ErrorEstimate
from rewardlab.analysis.display_names import names_of_run
from rewardlab.analysis.format import format_interval, format_number
from rewardlab.analysis.helm_answer_parsing import helm_readings
from rewardlab.analysis.published_roborewardbench import EPISODES, SUBSETS, PublishedRow, published_rows
from rewardlab.analysis.rank_intervals import RankInterval, rank_intervals
from rewardlab.analysis.run_summary import DRAWS
from rewardlab.core.run import Run
from rewardlab.core.summary import Summary
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.derived_columns import with_clusters
from rewardlab.metrics.eligibility import eligible
from rewardlab.metrics.metric_estimates import clusters_of
from rewardlab.reporting.benchmark_tables import helm_mark, load_benchmark, short_name
from rewardlab.reporting.findings_text import certified_text
from rewardlab.runner.roborewardbench_protocol import protocol_errors

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
    certified: dict[str, str] | None = None
    controls: str = ""
    link: str = ""

    @property
    def covered(self) -> bool:
        """Tell whether enough of what was asked was answered for a rank; a published row is ranked as printed."""
        return self.published or (self.mae.value is not None and self.mae.scored >= LEAST_COVERAGE * self.mae.asked)


@dataclass(frozen=True)
class LeaderboardTable:
    """The models that answered the same questions under the same protocol; `listed` are those without a rank."""

    data: str
    protocol: str
    subsets: tuple[str, ...]
    categories: tuple[str, ...]
    ranked: tuple[LeaderboardRow, ...]
    listed: tuple[LeaderboardRow, ...]
    published: bool


@dataclass(frozen=True, eq=False)
class Entry:
    """A judged model of a run under one protocol: its line, its trials, and which data they are of."""

    row: LeaderboardRow
    trials: TrialTable
    data: str
    data_digest: str
    protocol: str
    is_benchmark: bool
    categories: tuple[str, ...]


def entries_of(run: Run, summary: Summary, page: str) -> list[Entry]:
    """Return the judged models of a run; of a benchmark run as HELM scores them where it can, else strictly."""
    record, benchmark = run.record, load_benchmark(run)
    trials = with_clusters(run.trials())
    clean = trials.where(trials.matches("perturbation", CLEAN))
    names = names_of_run(record, summary.models)
    errors = {} if benchmark is None else benchmark.errors.models
    silent = [name for name, model in errors.items() if not model.counts.texts]
    helm = helm_readings(clean, silent).trials if errors else clean
    found = []
    for place, model in enumerate(summary.judged, 1):
        own = errors.get(model)
        as_helm = own is not None and own.helm is not None
        protocol = HELM if as_helm else STRICT if own is not None else STRESS
        mine = (helm if as_helm else clean).where(clean.matches("model", model) & eligible(clean, "level"))
        row = _row(summary, model, mine)
        row = replace(row, name=names[model], link=f"{page}#model-{place}", frames=record.settings.frames)
        row = replace(row, mark=helm_mark(own) if own is not None and as_helm else "")
        whole = own is not None and record.settings.limit is None and is_roborewardbench(mine)
        data = _data_name(record.settings.data)
        digest = record.plan.data_digest
        found.append(Entry(row, mine, data, digest, protocol, whole, summary.categories))
    return found


def is_roborewardbench(trials: TrialTable) -> bool:
    """Tell whether these are the questions of RoboRewardBench itself: its 23 subsets and all its episodes."""
    return set(trials.text("subset")) == set(SUBSETS) and len(trials) == EPISODES


def leaderboard_tables(entries: Sequence[Entry]) -> list[LeaderboardTable]:
    """Return one table per dataset and protocol, in the order of the runs."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.data_digest, entry.protocol), []).append(entry)
    return [_table(group) for group in groups.values()]


def _table(entries: Sequence[Entry]) -> LeaderboardTable:
    first = entries[0]
    published = first.protocol == HELM and all(entry.is_benchmark for entry in entries)
    enough = [entry for entry in entries if entry.row.covered]
    intervals = rank_intervals([entry.trials for entry in enough], DRAWS)
    measured = [replace(entry.row, rank_interval=interval) for entry, interval in zip(enough, intervals)]
    others = [_published(row) for row in published_rows()] if published else []
    ordered = sorted([*measured, *others], key=lambda row: row.mae.value or 0.0)
    return LeaderboardTable(
        data=", ".join(dict.fromkeys(entry.data for entry in entries)),
        protocol=first.protocol,
        subsets=tuple(sorted({name for entry in entries for name in entry.row.subsets})),
        categories=tuple(dict.fromkeys(name for entry in entries for name in entry.categories)),
        ranked=tuple(replace(row, rank=rank) for rank, row in enumerate(ordered, 1)),
        listed=tuple(entry.row for entry in entries if not entry.row.covered),
        published=published,
    )


def _row(summary: Summary, model: str, trials: TrialTable) -> LeaderboardRow:
    success, tau = summary.clean(model, "success_accuracy"), summary.clean(model, "kendall_tau_b")
    ceiling = summary.clean(model, "kendall_tau_b_ceiling").value
    checks = [c for c in summary.controls if c.model == model and c.where == "clean"]
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
        certified={category: certified_text(summary, model, category) for category in summary.categories},
        controls=f"beats {len(beaten)} of {len(checks)}" if checks else "",
    )


def _published(row: PublishedRow) -> LeaderboardRow:
    oxe = [value for name, value in row.subsets.items() if name != ROBO_ARENA]
    subsets = {name: _printed(value) for name, value in row.subsets.items()}
    overall, arena = _printed(row.overall), _printed(row.subsets[ROBO_ARENA])
    return LeaderboardRow(row.model, row.model, True, overall, arena, _printed(float(np.mean(oxe))), subsets)


def _printed(value: float) -> ErrorEstimate:
    """Return a number as the paper prints it: without interval or coverage."""
    return ErrorEstimate(value, None, None, 0, 0)


def _data_name(data: str) -> str:
    """Return the name of a dataset, with that of the whole where it is one split."""
    parts = [part for part in data.split("/") if part] or [data]
    return "/".join(parts[-2:] if parts[-1] in ("train", "val", "test") else parts[-1:])
