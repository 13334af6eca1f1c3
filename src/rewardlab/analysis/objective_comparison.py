"""A finished comparison of objectives as one record: what was compared, the table, curves and traces, and how long."""

import json
from dataclasses import dataclass
from pathlib import Path

from rewardlab.analysis.objective_table import ObjectiveCell, ObjectiveContrast
from rewardlab.core.bounded_json import read_json
from rewardlab.core.dataclass_json import record_from_json, record_to_json
from rewardlab.core.errors import RunError
from rewardlab.core.run import atomic_write

FILE = "comparison.json"


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective of the comparison: what its loss is, what it needs to know, and what was chosen on each backbone."""

    name: str
    summary: str
    needs: str
    chosen: dict[str, str]  # by backbone: rate and option


@dataclass(frozen=True)
class LearningCurve:
    """The validation agreement of one training over its steps."""

    backbone: str
    objective: str
    seed: int
    steps: tuple[int, ...]
    agreement: tuple[float, ...]


@dataclass(frozen=True)
class RewardTrace:
    """The reward that each objective gives to the frames of one clip, on one backbone, beside the true progress."""

    backbone: str
    clip: str
    instruction: str
    group: str
    success: bool
    progress: tuple[float | None, ...]
    rewards: dict[str, tuple[float, ...]]  # by objective, of the first seed
    stills: str  # a data address of some frames side by side


@dataclass(frozen=True)
class Comparison:
    """Everything that the page of a comparison shows."""

    command: str
    facts: tuple[str, ...]  # of data, budget and evaluation, in sentences
    against: str
    objectives: tuple[ObjectiveEntry, ...]
    controls: tuple[str, ...]
    groups: dict[str, int]  # tasks in each
    cells: tuple[ObjectiveCell, ...]
    contrasts: tuple[ObjectiveContrast, ...]
    curves: tuple[LearningCurve, ...]
    traces: tuple[RewardTrace, ...]
    seconds: dict[str, float]  # of each step, where it was measured


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write the record of a comparison."""
    with atomic_write(folder / FILE) as partial:
        partial.write_text(json.dumps(record_to_json(comparison), indent=1) + "\n", encoding="utf-8")


def read_comparison(folder: Path) -> Comparison:
    """Read the record of a comparison; RunError where there is none."""
    try:
        return record_from_json(Comparison, read_json(folder / FILE))
    except FileNotFoundError:
        raise RunError(f"{folder} holds no comparison; run `rewardlab train objective --all PLAN` first") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / FILE} is no comparison of objectives: {error}") from error
