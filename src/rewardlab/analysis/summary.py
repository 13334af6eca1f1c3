"""The summary of one run, or of several side by side, as look-ups for the page and the terminal."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewardlab.analysis.measurements import Row
from rewardlab.analysis.summarise import summarise
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.perturb.contract import CATEGORIES

Plain = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """Everything measured, found by model, group, severity and metric; verdicts are plain data of `summarise`."""

    rows: dict[tuple[str, str, int, str], Row]
    judged: tuple[str, ...]
    caveats: dict[str, str]  # what a reader of a model's numbers must know first
    models: tuple[str, ...]
    categories: tuple[str, ...]
    perturbations: tuple[str, ...]
    top: int  # the highest severity that was measured
    reliable_at: float
    reliability: dict[str, Plain]
    certified: dict[str, Plain]
    worst: dict[str, list[Plain]]
    calibration: dict[str, Plain]
    controls: list[Plain]
    drops: list[Plain]
    counts: dict[str, dict[str, int]]
    bootstrap: Plain

    def row(self, model: str, group: str, severity: int, metric: str) -> Row:
        """Return one number with its interval and coverage; an empty one where nothing was asked."""
        empty = Row(model, group, severity, metric, None, 0, 0)
        return self.rows.get((model, group, severity, metric), empty)

    def value(self, model: str, group: str, severity: int, metric: str) -> float:
        """Return one number, nan where nothing was measured."""
        value = self.row(model, group, severity, metric).value
        return math.nan if value is None else value

    def clean(self, model: str, metric: str) -> Row:
        """Return a metric on the untouched episodes."""
        return self.row(model, "clean", 0, metric)


def load_summary(run: Run) -> Summary:
    """Read the summary of a run, computing it where the run was stopped or is of an older version."""
    path = run.folder / "summary.json"
    content: Any = json.loads(path.read_text()) if path.exists() else {}
    if "bootstrap" not in content:
        content = summarise(run)
    rows = [Row(**row) for row in content["rows"]]
    record: Any = run.record
    judged = record["judged"]
    groups = dict.fromkeys(row.group for row in rows)
    return Summary(
        rows={(row.model, row.group, row.severity, row.metric): row for row in rows},
        judged=tuple(judged),
        caveats=dict(record.get("caveats", {})),
        models=tuple(dict.fromkeys([*judged, *(row.model for row in rows)])),
        categories=tuple(name for name in CATEGORIES if name in groups),
        perturbations=tuple(name for name in groups if name not in CATEGORIES and name != "clean"),
        top=max((row.severity for row in rows), default=0),
        **{name: content[name] for name in ("reliable_at", "reliability", "certified", "worst", "calibration")},
        **{name: content[name] for name in ("controls", "drops", "counts", "bootstrap")},
    )


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: its folder's, with a number where two are alike. The same run twice is refused."""
    folders = [run.folder.resolve() for run in runs]
    if len(set(folders)) < len(folders):
        raise PlanError("the same run folder is named twice")
    names = [folder.name for folder in folders]
    return [f"{name} {place}" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]


def run_and_model(text: str) -> tuple[Run, str]:
    """Read `FOLDER` or `FOLDER::MODEL`; a run that judged one model needs no name."""
    folder, _, model = text.partition("::")
    run = Run(Path(folder))
    judged: Any = run.record["judged"]
    if not model and len(judged) != 1:
        raise PlanError(f"{folder} judged {len(judged)} models; say which one: {folder}::{judged[0]}")
    return run, model or str(judged[0])


def join_summaries(named: Sequence[tuple[str, Summary]]) -> Summary:
    """Put summaries side by side; a model that is in several runs carries the name of its run."""
    if len(named) == 1:
        return named[0][1]
    seen = [model for _, summary in named for model in summary.models]
    parts = [
        _renamed(summary, {m: f"{m} ({name})" for m in summary.models if seen.count(m) > 1}) for name, summary in named
    ]
    return Summary(
        rows={key: row for part in parts for key, row in part.rows.items()},
        judged=tuple(model for part in parts for model in part.judged),
        caveats={m: v for part in parts for m, v in part.caveats.items()},
        models=tuple(
            [model for part in parts for model in part.judged]
            + [model for part in parts for model in part.models if model not in part.judged]
        ),
        categories=tuple(name for name in CATEGORIES if any(name in part.categories for part in parts)),
        perturbations=tuple(dict.fromkeys(name for part in parts for name in part.perturbations)),
        top=max(part.top for part in parts),
        reliable_at=parts[0].reliable_at,
        reliability={m: v for part in parts for m, v in part.reliability.items()},
        certified={m: v for part in parts for m, v in part.certified.items()},
        worst={m: v for part in parts for m, v in part.worst.items()},
        calibration={m: v for part in parts for m, v in part.calibration.items()},
        counts={m: v for part in parts for m, v in part.counts.items()},
        controls=[check for part in parts for check in part.controls],
        drops=[drop for part in parts for drop in part.drops],
        bootstrap=parts[0].bootstrap,
    )


def _renamed(summary: Summary, names: dict[str, str]) -> Summary:
    def new(model: str) -> str:
        return names.get(model, model)

    rows = [replace(row, model=new(row.model)) for row in summary.rows.values()]
    return replace(
        summary,
        rows={(row.model, row.group, row.severity, row.metric): row for row in rows},
        judged=tuple(map(new, summary.judged)),
        caveats={new(m): v for m, v in summary.caveats.items()},
        models=tuple(map(new, summary.models)),
        reliability={new(m): v for m, v in summary.reliability.items()},
        certified={new(m): v for m, v in summary.certified.items()},
        worst={new(m): v for m, v in summary.worst.items()},
        calibration={new(m): v for m, v in summary.calibration.items()},
        counts={new(m): v for m, v in summary.counts.items()},
        controls=[c | {"model": new(c["model"]), "control": new(c["control"])} for c in summary.controls],
        drops=[d | {"model": new(d["model"])} for d in summary.drops],
    )
