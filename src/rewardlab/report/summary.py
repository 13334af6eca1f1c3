"""The summary of a run as the page and the terminal need it: look-ups instead of rows."""

import json
import math
from dataclasses import dataclass
from typing import Any

from rewardlab.bench.summarise import Row, summarise
from rewardlab.core.run import Run
from rewardlab.perturb.contract import CATEGORIES


@dataclass(frozen=True)
class Summary:
    """Everything measured in a run, found by model, group, severity and metric."""

    rows: dict[tuple[str, str, int, str], Row]
    judged: tuple[str, ...]
    models: tuple[str, ...]
    categories: tuple[str, ...]
    reliability: dict[str, dict[str, float | None]]
    reliable_at: float
    counts: dict[str, dict[str, int]]

    def row(self, model: str, group: str, severity: int, metric: str) -> Row:
        """Return one number with its coverage; an empty one where nothing was asked."""
        empty = Row(model, group, severity, metric, None, 0, 0)
        return self.rows.get((model, group, severity, metric), empty)

    def value(self, model: str, group: str, severity: int, metric: str) -> float:
        """Return one number, nan where nothing was measured."""
        value = self.row(model, group, severity, metric).value
        return math.nan if value is None else value

    def clean(self, model: str, metric: str) -> Row:
        """Return a metric on the untouched episodes."""
        return self.row(model, self.categories[0] if self.categories else "", 0, metric)


def load_summary(run: Run) -> Summary:
    """Read the summary of a run, computing it where the run was stopped before it wrote one."""
    path = run.folder / "summary.json"
    content: Any = json.loads(path.read_text()) if path.exists() else summarise(run)
    rows = [Row(**row) for row in content["rows"]]
    judged: Any = run.record["judged"]
    models = dict.fromkeys([*judged, *(row.model for row in rows)])
    present = {row.group for row in rows}
    return Summary(
        rows={(row.model, row.group, row.severity, row.metric): row for row in rows},
        judged=tuple(judged),
        models=tuple(models),
        categories=tuple(name for name in CATEGORIES if name in present),
        reliability=content["reliability"],
        reliable_at=content["reliable_at"],
        counts=content["counts"],
    )
