"""The leaderboard: a static site with a table per dataset and protocol, and a page per run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.analysis.run_summary import load_summary
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, atomic_write, writable
from rewardlab.reporting.leaderboard_tables import LEAST_COVERAGE, Entry, entries_of, leaderboard_tables
from rewardlab.reporting.page import environment, write_page


@dataclass(frozen=True)
class LeaderboardPlan:
    """Write a static site that ranks the judged models of runs, one table per dataset and protocol."""

    runs: tuple[Path, ...] = setting("run folders", positional=True)
    out: Path = setting("folder of the site", Path("leaderboard"))
    trust: bool = setting("the runs are yours: open the datasets and import the code that they name", False)


def write_leaderboard(runs: Sequence[Run], out: Path, *, trust: bool = False) -> Path:
    """Write the site and return the path of its index.

    Only with `trust`, for runs of one's own, is the dataset opened and the code imported that a run names.
    """
    if not runs:
        raise PlanError("name at least one run folder")
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    entries: list[Entry] = []
    for number_of_run, run in enumerate(runs, start=1):
        summary, page = load_summary(run), f"{_slug(run.folder.resolve().name)}-{number_of_run}.html"
        write_page([run], out / page, [summary], trust=trust)
        entries += entries_of(run, summary, page)
    tables = leaderboard_tables(entries)
    html = environment().get_template("leaderboard.html").render(tables=tables, least_coverage=LEAST_COVERAGE)
    with atomic_write(out / "index.html") as partial:
        partial.write_text(html, encoding="utf-8")
    return out / "index.html"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)
