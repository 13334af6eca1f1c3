"""`run_rl`: its settings, and the table shown meanwhile; imports nothing heavy."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.live import Live
from rich.table import Table

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import EngineSettings, setting
from rewardlab.core.terminal import terminal_console
from rewardlab.rl.results import TrainingRunResult


@dataclass(frozen=True)
class RlRunPlan:
    """Train policies against rewards: every cell of a plan, in processes; what is finished is not done again."""

    plan: Path = setting("TOML file of the plan", positional=True)
    out: Path = setting("folder of the study", Path("rl"))
    workers: int = setting("processes; 0 is one per core", 0)
    engine_settings: EngineSettings = EngineSettings()

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise PlanError(f"workers must be 0 or more, got {self.workers}")


# What a person sees of a study while it runs: a table of its series on a terminal, a line per cell elsewhere.


@dataclass
class LiveTable:
    """The cells that are done, by series."""

    total: int = 0
    cells: list[TrainingRunResult] = field(default_factory=list)

    def add(self, cell: TrainingRunResult, number: int, total: int) -> None:
        """Take in a cell that is done."""
        self.total = total
        self.cells.append(cell)
        if not sys.stderr.isatty():
            print(f"{number} of {total}: {training_run_line(cell)}", file=sys.stderr, flush=True)

    def __rich__(self) -> Table:
        table = Table(title=f"{len(self.cells)} of {self.total or '?'} trainings", title_justify="left")
        for heading in ("task", "reward", "watches", "by", "base", "success", "seeds"):
            table.add_column(heading, overflow="fold")
        for key in dict.fromkeys((c.task, c.reward, c.condition, c.algorithm) for c in self.cells):
            own = [c for c in self.cells if (c.task, c.reward, c.condition, c.algorithm) == key]
            table.add_row(
                *key, _percent([c.base_success for c in own]), _percent([c.success for c in own]), _seeds(own)
            )
        return table


@contextmanager
def live_table() -> Iterator[LiveTable]:
    """Give a table that renews itself on a terminal."""
    table = LiveTable()
    if not sys.stderr.isatty():
        yield table
        return
    with Live(table, console=terminal_console(stderr=True), refresh_per_second=1):
        yield table


def training_run_line(cell: TrainingRunResult) -> str:
    """Return one training in one line."""
    world = "" if cell.condition == "clean" else f" watching {cell.condition}"
    head = f"{cell.task}, {cell.algorithm} on {cell.reward}{world}, seed {cell.seed}"
    if cell.status == "failed":
        return f"{head}: failed, {cell.reason}"
    return f"{head}: {_percent([cell.base_success])} to {_percent([cell.success])} in {cell.seconds:.0f} s"


def _seeds(cells: list[TrainingRunResult]) -> str:
    failed = sum(cell.status == "failed" for cell in cells)
    return f"{len(cells) - failed}" + (f", {failed} failed" if failed else "")


def _percent(values: "list[float | None]") -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.0%}" if known else "-"
