"""What `stress` and `bench` print and check once a run is done: settings of the commands, no part of the run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rewardlab.analysis.display_names import display_names, model_meant, names_of_run
from rewardlab.analysis.gates import Gate, GateResult, parse_gate
from rewardlab.core.command_settings import setting
from rewardlab.core.errors import GATE_FAILED, MODEL_FAILED, PlanError
from rewardlab.core.run import Run
from rewardlab.core.summary import Summary
from rewardlab.metrics import metrics_shown
from rewardlab.models import name_model
from rewardlab.models.backends.ledger import spent_by_model
from rewardlab.runner.roborewardbench_protocol import BenchPlan
from rewardlab.runner.stress import StressPlan


@dataclass(frozen=True)
class OutputSettings:
    """What is printed, and what the run must have shown."""

    require: tuple[str, ...] = setting(
        "a gate such as macro_mae<=0.8 or certified:visual>=2, else exit code 1; may be given again", (), commas=False
    )
    junit: Path | None = setting("write the models and gates as JUnit XML to this file", None)
    dry_run: bool = setting("say what would be asked, and score nothing", False)
    json: bool = setting("print the headline as JSON instead of tables", False)
    verbose: bool = setting("print every reason of failure and every category's drop too", False, short="-v")

    def gates(self, models: Sequence[str], chosen: Sequence[str] = ()) -> list[Gate]:
        """Return what is required of models with these chosen names; a gate for one that is not judged is refused."""
        gates = [parse_gate(text) for text in self.require]
        if not any(gate.model for gate in gates):
            return gates
        judged = [name_model(model).name for model in models]
        names = display_names(judged, dict(zip(judged, chosen)))
        return [replace(gate, model=_judged(gate, names)) if gate.model else gate for gate in gates]


def _judged(gate: Gate, names: Mapping[str, str]) -> str:
    found = model_meant(gate.model, names)
    if found is None:
        raise PlanError(f"gate {gate.text!r}: the run judges {', '.join(names.values())}, not {gate.model!r}")
    return found


@dataclass(frozen=True)
class StressCommand:
    """Perturb a dataset, score it with models, measure what breaks, and write a report."""

    plan: StressPlan
    output: OutputSettings = field(default=OutputSettings())


@dataclass(frozen=True)
class BenchCommand:
    """Score clean episodes by the RoboRewardBench protocol and tell the error per subset and over all."""

    plan: BenchPlan
    output: OutputSettings = field(default=OutputSettings())


def exit_code(summary: Summary, gates: Sequence[GateResult]) -> int:
    """Return 3 where a judged model gave no answer at all, 1 where a gate failed, 0 where all is fine."""
    if silent_models(summary):
        return MODEL_FAILED
    return 0 if all(result.passed for result in gates) else GATE_FAILED


def silent_models(summary: Summary) -> list[str]:
    """Return the judged models that were asked and gave no answer at all."""
    counts = [summary.outcomes(model) for model in summary.judged]
    return [each.model for each in counts if each.scored == 0 and each.failed > 0]


def headline_json(run: Run, summary: Summary, gates: Sequence[GateResult], code: int) -> str:
    """Return the headline of a run as JSON: clean metrics, certified severities, counts, gates and what was spent.

    Models go by their whole strings, each with its short name.
    """
    names = names_of_run(run.record, summary.models)
    content = {
        "run": run.place,
        "report": str(run.page),
        "exit_code": code,
        "models": {model: {"name": names[model], **_model(summary, model)} for model in summary.models},
        "gates": [{**asdict(result), "name": names.get(result.model, result.model)} for result in gates],
        "spent": {model: asdict(spent) for model, spent in spent_by_model(run.folder).items()},
    }
    return json.dumps(content, indent=2, allow_nan=False)


def drop_lines(summary: Summary) -> list[str]:
    """Return what each category costs each judged model, one line each."""
    return [
        f"{drop.model}: {drop.category} changes at severity {drop.severity} cost {drop.drop:.2f} of {drop.metric}; "
        f"{drop.note}"
        for drop in summary.drops
    ]


def _model(summary: Summary, model: str) -> dict[str, Any]:
    metrics = metrics_shown(lambda display: display.terminal)
    clean = {metric.name: asdict(summary.clean(model, metric.name)) for metric in metrics}
    counts = asdict(summary.outcomes(model))
    certified = {name: summary.threshold(model, name).certified for name in summary.categories}
    return {"judged": model in summary.judged, "clean": clean, "certified": certified, "counts": counts}
