"""Records as JSON and back: what fits is read, what does not is named."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from rewardlab.core.records import meaning, record_from_json, record_to_json
from tests.test_docs import script


@dataclass(frozen=True)
class Joint:
    """A joint of the arm."""

    angle: float | None = meaning("in radians")


@dataclass(frozen=True)
class Arm:
    """An arm."""

    name: str = meaning("what it is called")
    side: Literal["left", "right"] = meaning("where it hangs")
    joints: tuple[Joint, ...] = meaning("from the base on")
    loads: dict[str, float] = meaning("by part")
    tool: Joint | None = meaning("the last joint")


ARM = Arm("a", "left", (Joint(0.5), Joint(None)), {"hand": 1.0}, None)


def test_a_record_comes_back_as_it_went() -> None:
    for arm in (ARM, Arm("b", "right", (), {}, Joint(1.0))):
        assert record_from_json(Arm, json.loads(json.dumps(record_to_json(arm)))) == arm


def test_a_whole_number_is_a_number_and_true_is_not() -> None:
    read = record_from_json(Joint, {"angle": 2})
    assert read == Joint(2.0) and type(read.angle) is float
    with pytest.raises(ValueError, match="angle must be number or null, got True"):
        record_from_json(Joint, {"angle": True})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"side": "top"}, "side must be `left`, `right`, got 'top'"),
        ({"joints": [{"angle": 1.0}, {"angle": "x"}]}, r"joints\[1\].angle must be number or null, got 'x'"),
        ({"joints": [{}]}, r"joints\[0\] has no angle"),
        ({"loads": {"hand": None}}, "loads.hand must be number, got None"),
        ({"tool": 3}, r"tool must be an object \(Joint\) or null, got 3"),
        ({"tool": {"angle": 1.0, "size": 2}}, "tool has an unknown size"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        record_from_json(Arm, record_to_json(ARM) | change)


def test_the_reference_names_every_field_with_its_type_and_meaning() -> None:
    text = script("make_reference").record_tables(Arm)
    for line in (
        "## Arm",
        "## Joint",
        "| `joints` | list of [Joint](#joint) | from the base on |",
        "| `angle` | number or null | in radians |",
        "| `loads` | object of number | by part |",
        "| `tool` | [Joint](#joint) or null | the last joint |",
    ):
        assert line in text.splitlines(), line
