"""The leaderboard: a static site with an index of all models and a page per run, published rows marked as such."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rewardlab.analysis.display_names import names_of_run
from rewardlab.analysis.format import format_coverage, format_interval, format_number
from rewardlab.analysis.published_roborewardbench import published_rows
from rewardlab.analysis.run_summary import load_summary
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, atomic_write, writable
from rewardlab.core.summary import Summary
from rewardlab.reporting.benchmark_tables import BenchmarkReport, load_benchmark
from rewardlab.reporting.findings_text import certified_text
from rewardlab.reporting.page import environment, write_page


@dataclass(frozen=True)
class LeaderboardPlan:
    """Write a static site that ranks the judged models of runs beside the published RoboRewardBench table."""

    runs: tuple[Path, ...] = setting("run folders", positional=True)
    out: Path = setting("folder of the site", Path("leaderboard"))
    trust: bool = setting("the runs are yours: open the datasets and import the code that they name", False)


@dataclass(frozen=True)
class LeaderboardRow:
    """One line of the leaderboard; what a published row does not state is empty."""

    model: str
    source: str
    published: bool
    mae: float | None
    mae_interval: str
    success: str
    tau: str
    certified: dict[str, str]  # by category
    coverage: str
    controls: str
    link: str
    name: str = ""  # the short one; the model's own where there is none


def write_leaderboard(runs: Sequence[Run], out: Path, *, trust: bool = False) -> Path:
    """Write the site and return the path of its index.

    Only with `trust`, for runs of one's own, is the dataset opened and the code imported that a run names.
    """
    if not runs:
        raise PlanError("name at least one run folder")
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    rows: list[LeaderboardRow] = []
    categories: dict[str, None] = {}
    for number_of_run, run in enumerate(runs, start=1):
        summary, page = load_summary(run), f"{_slug(run.folder.resolve().name)}-{number_of_run}.html"
        write_page([run], out / page, [summary], trust=trust)
        categories |= dict.fromkeys(summary.categories)
        rows += _measured(run, summary, page)
    rows += _published()
    ranked = sorted(rows, key=lambda entry: (entry.mae is None, entry.mae or 0.0))
    html = environment().get_template("leaderboard.html").render(rows=ranked, categories=list(categories))
    with atomic_write(out / "index.html") as partial:
        partial.write_text(html, encoding="utf-8")
    return out / "index.html"


def _measured(run: Run, summary: Summary, page: str) -> list[LeaderboardRow]:
    data, names = run.record.settings.data, names_of_run(run.record, summary.models)
    rows = [_row(summary, model, data, f"{page}#model-{place}") for place, model in enumerate(summary.judged, 1)]
    benchmark = load_benchmark(run)
    scored = rows if benchmark is None else [_as_published(entry, benchmark) for entry in rows]
    return [replace(entry, name=names[entry.model]) for entry in scored]


def _as_published(entry: LeaderboardRow, benchmark: BenchmarkReport) -> LeaderboardRow:
    """Return the entry with the error as HELM scores it, where there is one: so are the published rows."""
    found = benchmark.models.get(entry.model)
    helm = found.helm if found else None
    if helm is None:
        return entry
    error, source = helm.macro, f"{entry.source}, HELM scoring"
    return replace(
        entry, mae=error.value, mae_interval=format_interval(error), coverage=format_coverage(error), source=source
    )


def _row(summary: Summary, model: str, data: str, link: str) -> LeaderboardRow:
    error, success = summary.clean(model, "macro_mae"), summary.clean(model, "success_accuracy")
    tau = summary.clean(model, "kendall_tau_b")
    checks = [c for c in summary.controls if c.model == model and c.where == "clean"]
    beaten = [c.control for c in checks if c.conclusion == "beats"]
    return LeaderboardRow(
        model=model,
        source=f"{_data_name(data)}, measured",
        published=False,
        mae=error.value,
        mae_interval=format_interval(error),
        success=f"{format_number(success.value)} {format_interval(success)}",
        tau=f"{format_number(tau.value)} {format_interval(tau)}",
        certified={category: certified_text(summary, model, category) for category in summary.categories},
        coverage=format_coverage(error),
        controls=f"beats {len(beaten)} of {len(checks)}" if checks else "",
        link=link,
    )


def _data_name(data: str) -> str:
    """Return the name of a dataset, with that of the whole where it is one split."""
    parts = Path(data).parts or (data,)
    return "/".join(parts[-2:] if parts[-1] in ("train", "val", "test") else parts[-1:])


def _published() -> list[LeaderboardRow]:
    source = "RoboRewardBench, published"
    return [
        LeaderboardRow(row.model, source, True, row.overall, "", "", "", {}, "", "", "") for row in published_rows()
    ]


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)
