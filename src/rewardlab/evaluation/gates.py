"""What a run must have shown: parse gates, check them, write JUnit XML.

A gate is `[MODEL/]METRIC[:GROUP[@SEVERITY]] OP NUMBER`, with OP one of <=, >=, <, >. It passes where it holds at the
end of the 95 % interval that speaks against it: a small sample does not pass by chance. What was not measured fails.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import ge, gt, le, lt
from pathlib import Path
from xml.etree import ElementTree

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.core.storage import write_file
from rewardlab.core.summary import Summary
from rewardlab.core.trial import CATEGORIES, CLEAN
from rewardlab.evaluation.display import format_interval, format_number, format_threshold
from rewardlab.metrics import METRICS
from rewardlab.perturbations import PERTURBATIONS

_FORM = re.compile(r"(?:(?P<model>\S.*)/)?(?P<metric>\w+)(?::(?P<group>[^\s@<>=]+))?(?:@(?P<severity>[0-4]))?")
_COMPARED = re.compile(r"(?P<what>.+?)\s*(?P<op><=|>=|<|>)\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {"<=": le, ">=": ge, "<": lt, ">": gt}
_NO_INTERVAL = "without an interval, which takes 2 clusters (tasks or videos), or 6 where all have the same value"
_EXAMPLE = "write macro_mae<=0.8, success_accuracy:visual@3>=0.7, certified:visual>=2 or coverage>=0.99"


@dataclass(frozen=True)
class Gate:
    """What a model must have shown; without a `model`, every evaluated one must."""

    text: str
    model: str
    metric: str  # of the catalog, `certified` or `coverage`
    group: str
    severity: int | None  # the highest of the run where it is None
    op: str
    number: float


@dataclass(frozen=True)
class GateResult:
    """Whether a model passed a gate, and what was measured."""

    gate: str
    model: str
    passed: bool
    measured: str
    value: float | None
    compared: float | None  # the number that was held against the gate: an end of the interval where there is one

    @property
    def sentence(self) -> str:
        """Return it in one line."""
        return f"gate {'passed' if self.passed else 'FAILED'}: {self.gate}: {self.model} has {self.measured}"

    def called(self, names: Mapping[str, str]) -> "GateResult":
        """Return it with the model's short name."""
        return replace(self, model=names.get(self.model, self.model))


def parse_gate(text: str) -> Gate:
    """Return the gate that a text means; a PlanError says what is wrong with it."""
    compared = _COMPARED.fullmatch(text.strip())
    form = _FORM.fullmatch(compared["what"]) if compared else None
    if compared is None or form is None:
        raise PlanError(f"{text!r} is no gate; {_EXAMPLE}")
    metric, group, severity = form["metric"], form["group"] or CLEAN, form["severity"]
    find({**METRICS, "certified": None, "coverage": None}, metric, "metric")
    if severity is not None and (group == CLEAN or metric in ("certified", "coverage")):
        raise PlanError(f"{text!r}: only a metric under changes has a severity; {_EXAMPLE}")
    if metric == "coverage" and form["group"] is not None:
        raise PlanError(f"{text!r}: coverage is that of all trials and takes no group; {_EXAMPLE}")
    if metric == "certified":
        find(dict.fromkeys(CATEGORIES), group, "category")
    elif ":" not in group and "+" not in group:
        find({CLEAN: None, **dict.fromkeys(CATEGORIES), **PERTURBATIONS}, group, "group of trials")
    chosen = None if severity is None else int(severity)
    return Gate(text.strip(), form["model"] or "", metric, group, chosen, compared["op"], float(compared["number"]))


def check_gates(gates: Sequence[Gate], summary: Summary) -> list[GateResult]:
    """Return one result per gate and model that it is for."""
    wanted = ((gate, (gate.model,) if gate.model else summary.evaluated) for gate in gates)
    return [_check(gate, model, summary) for gate, models in wanted for model in models]


def _check(gate: Gate, model: str, summary: Summary) -> GateResult:
    if model not in summary.models:
        return GateResult(gate.text, model, False, "no answer: no model of this run is called so", None, None)
    value: float | None
    compared: float | None
    if gate.metric == "certified":
        value = compared = summary.threshold(model, gate.group).certified
        reached = format_threshold(summary.threshold(model, gate.group).certified)
        up_to = "no severity" if reached == "none" else f"severity {reached}"
        measured = f"been certified up to {up_to} under {gate.group} changes"
    elif gate.metric == "coverage":
        counts = summary.outcomes(model)
        asked = counts.scored + counts.failed
        value = compared = counts.scored / asked if asked else None
        measured = f"{counts.scored:,} answers to {asked:,} trials"
    else:
        chosen = summary.highest_severity if gate.severity is None else gate.severity
        severity = 0 if gate.group == CLEAN else chosen
        found = summary.measurement(model, gate.group, severity, gate.metric)
        where = "on clean episodes" if gate.group == CLEAN else f"under {gate.group} at severity {severity}"
        value, ends = found.value, format_interval(found, 3) or _NO_INTERVAL
        number = "no value" if value is None else f"{format_number(value, 3)} {ends}"
        measured = f"{number} ({found.scored}/{found.asked} scored) {where}"
        compared = found.high if gate.op.startswith("<") else found.low  # the end that speaks against the gate
    passed = compared is not None and _OPERATORS[gate.op](compared, gate.number)
    return GateResult(gate.text, model, passed, measured, value, compared)


def silent_models(summary: Summary) -> list[str]:
    """Return the evaluated models that returned no score at all; to abstain is an answer."""
    counts = [summary.outcomes(model) for model in summary.evaluated]
    return [each.model for each in counts if each.scored == 0 and each.failed > each.abstained]


# JUnit XML of a run, as continuous integration reads it: a test case per evaluated model, and per gate and model.

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(
    path: Path, summary: Summary, gates: Sequence[GateResult], reasons: Sequence[str], seconds: Mapping[str, float]
) -> None:
    """Write the test cases of a finished run; a model that answered nothing is an error, with the reasons.

    `seconds` says how long each model took to score.
    """
    suite, silent = ElementTree.Element("testsuite", name="rewardlab"), silent_models(summary)
    for model in summary.evaluated:
        case = _case(suite, "rewardlab.models", model)
        case.set("time", f"{seconds[model]:.3f}")
        if model in silent:
            _fault(case, "error", f"{model} returned no score at all", "\n".join(reasons))
    for result in gates:
        case = _case(suite, f"rewardlab.gates.{result.model}", result.gate)
        if not result.passed:
            _fault(case, "failure", result.sentence, result.sentence)
    _write(path, suite)


def write_junit_error(path: Path, models: Sequence[str], message: str) -> None:
    """Write that a run did not come to its end, and why."""
    suite = ElementTree.Element("testsuite", name="rewardlab")
    for model in models:
        _fault(_case(suite, "rewardlab.models", model), "error", message.partition("\n")[0], message)
    _write(path, suite)


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_xml_text(group), name=_xml_text(name))


def _fault(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, kind, message=_xml_text(message), type=kind).text = _xml_text(text)


def _xml_text(text: str) -> str:
    """Return text with what no XML document may hold replaced."""
    return _NOT_XML.sub("\ufffd", text)


def _write(path: Path, suite: ElementTree.Element) -> None:
    cases = list(suite)
    counts = {f"{kind}s": sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error")}
    for name, count in {**counts, "tests": len(cases), "skipped": 0}.items():
        suite.set(name, str(count))
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    write_file(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
