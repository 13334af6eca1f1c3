"""JUnit XML of a run, as continuous integration reads it: a test case per judged model, and per gate and model."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rewardlab.analysis.gates import GateResult
from rewardlab.core.run import atomic_write
from rewardlab.core.summary import Summary

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, summary: Summary, gates: Sequence[GateResult], reasons: Sequence[str]) -> None:
    """Write the test cases of a finished run; a model that answered nothing is an error, with the reasons."""
    suite = ElementTree.Element("testsuite", name="rewardlab")
    for model in summary.judged:
        counts = summary.outcomes(model)
        case = _case(suite, "rewardlab.models", model)
        if counts.scored == 0 and counts.failed > 0:
            _fault(case, "error", f"{model} gave no answer at all", "\n".join(reasons))
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
    return ElementTree.SubElement(suite, "testcase", classname=_xml_text(group), name=_xml_text(name), time="0")


def _fault(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, kind, message=_xml_text(message), type=kind).text = _xml_text(text)


def _xml_text(text: str) -> str:
    """Return text with what no XML document may hold replaced."""
    return _NOT_XML.sub("\ufffd", text)


def _write(path: Path, suite: ElementTree.Element) -> None:
    cases = list(suite)
    for kind, count in (("failures", "failure"), ("errors", "error")):
        suite.set(kind, str(sum(case.find(count) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    suite.set("skipped", "0")
    suite.set("time", "0")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        ElementTree.ElementTree(root).write(partial, encoding="utf-8", xml_declaration=True)
