"""What a file of demonstrations says of its environment: the task in words, the rate, and how it was rewarded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardlab.core.bounded_json import parse_json
from rewardlab.data.hdf5.hdf5_file import text_attribute
from rewardlab.data.presentation_times import DEFAULT_FPS

if TYPE_CHECKING:
    import h5py

_LANGUAGE = ("language_instruction", "language", "lang", "task_description", "instruction")
_TASKS = {  # robosuite environments, by the name of the class
    "Lift": "lift the cube",
    "PickPlaceCan": "pick up the can and place it in the bin",
    "NutAssemblySquare": "place the square nut on the square peg",
    "TwoArmTransport": "move the hammer from one table to the bin on the other",
    "ToolHang": "hang the tool on the frame",
    "Stack": "stack the red cube on the green cube",
    "Door": "open the door",
    "Wipe": "wipe the table clean",
}
_FILES = {  # robomimic files begin with the name of their task
    "lift": "Lift",
    "can": "PickPlaceCan",
    "square": "NutAssemblySquare",
    "transport": "TwoArmTransport",
    "tool_hang": "ToolHang",
}


@dataclass(frozen=True)
class Environment:
    """What is known of all demonstrations of a file; empty or None where it is not said."""

    name: str
    robot: str
    fps: float
    language: str
    is_sparse: bool | None  # whether the reward is 1 for success and 0 before


def read_environment(data: "h5py.Group") -> Environment:
    """Return what the attributes of the group `data` say."""
    stated = [_object(text_attribute(data, name)) for name in ("env_args", "env_info", "problem_info")]
    arguments, info, problem = stated
    inner = arguments.get("env_kwargs")
    settings = inner if isinstance(inner, dict) else info
    rate, shaped = settings.get("control_freq"), settings.get("reward_shaping")
    return Environment(
        str(arguments.get("env_name") or info.get("env_name") or text_attribute(data, "env"))[:100],
        _robot(settings.get("robots")),
        float(rate) if isinstance(rate, int | float) and 0 < rate < 1000 else DEFAULT_FPS,
        language_of(problem) or language_of({name: text_attribute(data, name) for name in _LANGUAGE}),
        None if not isinstance(shaped, bool) else not shaped,
    )


def language_of_demo(demo: "h5py.Group") -> str:
    """Return the instruction that a demonstration carries itself; empty where it has none."""
    own = language_of({name: text_attribute(demo, name) for name in _LANGUAGE})
    return own or language_of(_object(text_attribute(demo, "ep_meta")))


def language_of(stated: Mapping[str, Any]) -> str:
    """Return the instruction under one of its usual names; LIBERO writes it as a list of words too."""
    for name in _LANGUAGE:
        value = stated.get(name)
        text = " ".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(text, str) and text.strip():
            return text.strip().strip('"')
    return ""


def task_of_environment(name: str, path: Path) -> str:
    """Return the task of a known environment, else the words of its name; by the file's name where it has none."""
    begins = next((kind for start, kind in _FILES.items() if re.match(rf"{start}(_|\b)", path.stem.lower())), "")
    kind = name or begins
    return _TASKS.get(kind) or " ".join(word.lower() for word in re.findall(r"[A-Z]?[a-z]+", kind))


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = parse_json(text, allow_nonfinite=True) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _robot(robots: object) -> str:
    return " ".join(map(str, robots))[:100] if isinstance(robots, list) else str(robots or "")[:100]
