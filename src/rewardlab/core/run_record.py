"""What run.json says of a run, checked once: what was planned, by which command, and what its trials may hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewardlab.core.dataclass_json import record_from_json
from rewardlab.core.sealed_json import json_digest
from rewardlab.core.trial import SEVERITIES

_MADE = ("command", "episodes", "cells", "skipped", "versions", "created")
_OF_MODELS = ("caveats", "trained_tasks", "names", "prompts")  # by the name of the model
_KEYS = frozenset(("kind", "plan", "settings", "judged", *_OF_MODELS, *_MADE))
INSTRUCTION = "{instruction}"  # stands in a prompt of the record for the instruction of each trial
_SETTINGS = ("data", "perturbations", "frames", "seed", "limit")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run that are shown or used again."""

    data: str
    perturbations: tuple[str, ...]
    frames: str
    seed: int
    limit: int | None


@dataclass(frozen=True)
class RunPlan:
    """What a run is about: which models, perturbations (by the names in its trials), severities and seed."""

    models: tuple[str, ...]
    perturbations: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int
    reliable_at: float
    data_digest: str
    graded: bool = False  # severities between the whole ones are in the names of perturbations


@dataclass(frozen=True)
class SkippedRow:
    """A row of the dataset that was left out, and why."""

    place: str
    what: str


@dataclass(frozen=True)
class RunRecord:
    """What run.json says; `plan_digest` identifies the whole plan, and `sealed` tells whether it had a checksum.

    `trained_tasks` are those of judged models, where known; `names` are the short names that the user chose for models,
    `prompts` what models are asked in words.
    """

    kind: str
    plan: RunPlan
    plan_digest: str
    settings: RunSettings
    judged: tuple[str, ...]
    caveats: dict[str, str]
    trained_tasks: dict[str, tuple[str, ...]]
    names: dict[str, str]
    prompts: dict[str, str]
    command: str
    episodes: int
    cells: int
    skipped: tuple[SkippedRow, ...]
    versions: dict[str, str]
    created: str
    sealed: bool

    @property
    def version(self) -> str:
        """Return the version of rewardlab that made the run."""
        return self.versions.get("rewardlab", "unknown")


def run_record(content: Mapping[str, Any], *, sealed: bool) -> RunRecord:
    """Return the record that the content of run.json holds; a ValueError names the first place that does not fit."""
    foreign = sorted(str(key) for key in content if key not in _KEYS)
    if foreign:
        raise ValueError(f"the whole has an unknown {', '.join(foreign)}"[:200])
    settings, plan = _object(content, "settings"), _object(content, "plan")
    known = {name: content[name] for name in _KEYS & content.keys()}
    made: dict[str, Any] = {"kind": "stress", "skipped": [], **{name: {} for name in _OF_MODELS}}
    made |= known | {"sealed": sealed}
    made |= {"settings": {name: settings.get(name) for name in _SETTINGS}, "plan_digest": json_digest(plan)}
    made["plan"] = _plan(plan, settings, content.get("judged"))
    made["skipped"] = _skipped(made["skipped"])
    record = record_from_json(RunRecord, made)
    _check(record)
    return record


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be an object, got {str(found)[:60]!r}")
    return found


def _plan(plan: Mapping[str, Any], settings: Mapping[str, Any], judged: object) -> dict[str, Any]:
    """Return the plan by the names that trials use; a simulated study states its models and changes elsewhere."""
    return {
        "models": list(_object(plan, "models")) if "models" in plan else judged,
        "perturbations": list(_object(plan, "definitions")) if "definitions" in plan else settings.get("perturbations"),
        "severities": plan.get("severities", list(SEVERITIES)),
        "seed": plan.get("seed"),
        "reliable_at": plan.get("reliable_at"),
        "data_digest": plan.get("data_digest", ""),
        "graded": plan.get("kind") == "attack",
    }


def _skipped(rows: object) -> object:
    """Return the rows left out as they are written today; earlier versions gave the number of a line."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return rows
    return [
        {"place": f"line {row['line']}", "what": row.get("what")} if row.keys() == {"line", "what"} else row
        for row in rows
    ]


def _check(record: RunRecord) -> None:
    plan = record.plan
    wrong = [severity for severity in plan.severities if severity not in SEVERITIES]
    if wrong:
        raise ValueError(f"plan.severities must be among 0, 1, 2, 3, 4, got {wrong[0]}")
    if not 0 <= plan.reliable_at <= 1:
        raise ValueError(f"plan.reliable_at must be from 0 to 1, got {plan.reliable_at}")
    if not record.judged or not set(record.judged) <= set(plan.models):
        raise ValueError("judged must name one or more of the models of the plan")
    taken = [name for model, name in record.names.items() if name != model and name in plan.models]
    if taken:
        raise ValueError(f"names must not call a model what another one is: {taken[0]!r}")
    if record.cells < 0 or record.episodes < 0:
        raise ValueError("episodes and cells must not be negative")
