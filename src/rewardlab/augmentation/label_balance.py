"""The balance of a made dataset: rows by level, source and stage, and what was refused and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rewardlab.augmentation.provenance import DatasetRow, Row
from rewardlab.augmentation.task_split import source_group
from rewardlab.core.episode import LEVELS


@dataclass(frozen=True)
class Balance:
    """How many rows there are of each kind; `level_ratio` is that of the most frequent level to the rarest."""

    rows: int
    levels: dict[str, int]
    sources: dict[str, int]
    stages: dict[str, int]
    tasks: int
    level_ratio: float | None

    def as_json(self) -> Row:
        """Return the counts as JSON holds them."""
        return asdict(self)


def balance_of(rows: Sequence[DatasetRow]) -> Balance:
    """Count the rows."""
    levels = Counter(row.row["reward"] for row in rows if "reward" in row.row)
    counts = [levels[level] for level in LEVELS]
    return Balance(
        rows=len(rows),
        levels={str(level): levels[level] for level in LEVELS},
        sources=dict(sorted(Counter(source_group(row) for row in rows).items())),
        stages=dict(sorted(Counter(str(row.provenance["stage"]) for row in rows).items())),
        tasks=len({row.original_task for row in rows}),
        level_ratio=round(max(counts) / min(counts), 2) if min(counts) else None,
    )
