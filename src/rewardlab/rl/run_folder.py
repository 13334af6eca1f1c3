"""The folder of a study: the base policies, the reward heads, and a folder per cell."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.analysis.rl_results import RESULT
from rewardlab.rl.plan import Cell


@dataclass(frozen=True)
class RunFolder:
    """Where everything of a study lies."""

    path: Path

    @property
    def plan(self) -> Path:
        """Return the file with the plan that the folder belongs to."""
        return self.path / "plan.json"

    @property
    def heads(self) -> Path:
        """Return the folder of the reward heads."""
        return self.path / "heads"

    @property
    def offline(self) -> Path:
        """Return the folder of what rewards say of held-out episodes, a file per task and world."""
        return self.path / "offline"

    def policy(self, task: str) -> Path:
        """Return the weights of the base policy of a task."""
        return self.path / "policies" / f"{task}.pt"

    def policy_facts(self, task: str) -> Path:
        """Return what was measured of the base policy of a task."""
        return self.path / "policies" / f"{task}.json"

    def cell(self, cell: Cell) -> Path:
        """Return the folder of a cell."""
        return self.path / "cells" / cell.id

    def result(self, cell: Cell) -> Path:
        """Return the record of a finished cell; it is there only once the cell is finished."""
        return self.cell(cell) / RESULT

    def failure(self, cell: Cell) -> Path:
        """Return the record of a cell that failed; the next start tries it again."""
        return self.cell(cell) / "failed.json"

    def checkpoint(self, cell: Cell) -> Path:
        """Return the file from which an unfinished cell goes on."""
        return self.cell(cell) / "checkpoint.pt"

    def starts(self, cell: Cell) -> Path:
        """Return the file that counts how often a cell was begun by this command."""
        return self.cell(cell) / "starts"
