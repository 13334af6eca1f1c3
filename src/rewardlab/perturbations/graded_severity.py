"""Severities between the whole ones: the parameter is interpolated between the rows of the severity table.

The random draws of a perturbation do not depend on the severity, so that between two severities nothing else changes.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rewardlab.core.errors import PlanError
from rewardlab.core.graded_name import graded_parts
from rewardlab.perturbations.composition import compose
from rewardlab.perturbations.contract import Perturbation

STEP = 1 / 16  # between two severities that are told apart
_STEPS = round(1 / STEP)
_WHOLE = (1.0, 2.0, 3.0, 4.0)

# The parameter that changes nothing, at severity 0, where there is one; the others begin at severity 1.
CLEAN_PARAMETERS: Mapping[str, Any] = {
    **dict.fromkeys(("gaussian_noise", "impulse_noise", "speckle_noise", "fixed_pattern_noise"), 0.0),
    **dict.fromkeys(("gaussian_blur", "brightness_up", "exposure_flicker", "elastic", "occlusion_patch"), 0.0),
    **dict.fromkeys(("low_light", "contrast_down", "desaturate", "pixelate", "resample"), 1.0),
    "oversaturate": (1.0, 0.0),
    "jpeg": 100,
    "tilt": 0,
    "frost": (1.0, 0.0),
    "fog": (0.0, 2.0),
    **dict.fromkeys(("typo_keyboard", "char_edit", "ocr_confusion"), (0, 0.0)),
    **dict.fromkeys(("drop_uniform", "speed_up", "slow_down", "time_warp", "truncate_end"), 1.0),
    **dict.fromkeys(("drop_random", "freeze_middle", "stutter", "hold_last", "global_shuffle", "reverse"), 0.0),
    **dict.fromkeys(("loop_twice", "crop_start", "latency", "black_frames", "splice_foreign", "packet_loss"), 0.0),
    "jitter_index": 0,
    "local_shuffle": 1,
    "camera_move": (0, 1.0),
    **dict.fromkeys(("lens_crop", "aspect_squeeze"), 1.0),
    **dict.fromkeys(("lens_barrel", "background_replace", "table_texture", "light_gradient", "hard_shadow"), 0.0),
    **dict.fromkeys(("light_temperature", "light_cool"), 6500),
    "robot_recolour": (0, 0.0),
    "world_camera": (0, 0, 1.0),
    **dict.fromkeys(("world_fov", "world_light_intensity", "world_goal_hidden"), 1.0),
    "world_light_position": (0, 0.0),
    **dict.fromkeys(("world_light_colour", "world_table_texture", "world_floor_texture"), 0.0),
    **dict.fromkeys(("world_robot_colour", "world_object_colour"), 0.0),
}


def severity_ladder(perturbation: Perturbation) -> tuple[float, ...]:
    """Return the severities that can be asked for, rising: the whole ones only where parameters are no numbers."""
    if not _is_continuous(perturbation):
        return _WHOLE
    first = 1 if perturbation.name in CLEAN_PARAMETERS else _STEPS
    return tuple(place * STEP for place in range(first, 4 * _STEPS + 1))


def at_severity(perturbation: Perturbation, severity: float) -> Perturbation:
    """Return the perturbation with the parameter of this severity in every row of its table; its draws stay."""
    if severity not in severity_ladder(perturbation):
        raise PlanError(f"{perturbation.name} has no severity {severity:g}; look at its severity table")
    if severity in _WHOLE and perturbation.members:
        return perturbation
    parameter = _parameter(perturbation, severity)
    return replace(perturbation, table=(parameter,) * 4)


def graded_perturbation(name: str, known: Mapping[str, Perturbation]) -> Perturbation:
    """Return what a graded name stands for: one change at its severity, or two, each at its own."""
    parts = graded_parts(name)
    if not parts or any(base not in known for base, _ in parts):
        raise PlanError(f"{name!r} names no perturbation of this run at a severity, such as low_light@2.5")
    graded = [at_severity(known[base], severity) for base, severity in parts]
    return graded[0] if len(graded) == 1 else compose(*graded)


def _is_continuous(perturbation: Perturbation) -> bool:
    """Tell whether every number of the table goes one way over the severities; others are codes of a kind of change."""
    rows = [numbers for row in perturbation.table if (numbers := _numbers(row))]
    if len(rows) < 4 or len({len(row) for row in rows}) > 1:
        return False
    return rows[0] != rows[-1] and all(list(column) in (sorted(column), sorted(column)[::-1]) for column in zip(*rows))


def _numbers(parameter: Any) -> list[float]:
    """Return a parameter as a flat list of numbers, empty where something in it is none."""
    if isinstance(parameter, tuple):
        parts = [_numbers(part) for part in parameter]
        return [number for part in parts for number in part] if all(parts) else []
    return [parameter] if isinstance(parameter, int | float) and not isinstance(parameter, bool) else []


def _parameter(perturbation: Perturbation, severity: float) -> Any:
    if severity in _WHOLE:
        return perturbation.table[int(severity) - 1]
    rows = (CLEAN_PARAMETERS.get(perturbation.name), *perturbation.table)
    below = math.floor(severity)
    return _between(rows[below], rows[below + 1], severity - below)


def _between(low: Any, high: Any, share: float) -> Any:
    """Return the parameter between two rows; whole numbers stay whole."""
    if isinstance(low, tuple):
        return tuple(_between(a, b, share) for a, b in zip(low, high))
    value = low + (high - low) * share
    return round(value) if isinstance(low, int) and isinstance(high, int) else value
