"""Perturbations made of others: two in order, one drawn at random, one from the middle on, one between severities."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, with_frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import MIDWAY, Expectation, graded_parts
from rewardlab.perturbations.contract import Episodes, LabelEffect, Perturbation, PerturbedEpisode


def compose(first: Perturbation, second: Perturbation) -> Perturbation:
    """Return the perturbation that applies both, in order, at the same severity."""

    def apply(episode: Episode, parameters: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
        first_rng, second_rng = rng.spawn(2)
        between = first.apply(episode, parameters[0], first_rng, dataset)
        after = second.apply(between.episode, parameters[1], second_rng, dataset)
        return PerturbedEpisode(after.episode, _joint_expectation(episode, between, after))

    declared: set[Expectation] = {first.expect, second.expect} - {"same"}
    one, two, three, four = zip(first.table, second.table, strict=True)
    return Perturbation(
        name=f"{first.name}+{second.name}",
        summary=f"{first.summary} Then: {second.summary}",
        category="pair",
        channel="+".join(dict.fromkeys((first.channel, second.channel))),
        stage="stream" if "stream" in (first.stage, second.stage) else "sampled",
        expect=declared.pop() if len(declared) == 1 else "undefined" if declared else "same",
        label=_strongest_effect(first, second),
        randomness=first.randomness if first.randomness == second.randomness else "none",
        parameter=f"{first.parameter}; {second.parameter}",
        table=(one, two, three, four),
        uses_dataset=first.uses_dataset or second.uses_dataset,
        uses_world=first.uses_world or second.uses_world,
        apply=apply,
        content=digest(first.fingerprint, second.fingerprint),
    )


def random_member(category: str, members: tuple[Perturbation, ...]) -> Perturbation:
    """Return the perturbation that applies a member of its category, drawn for each episode, not for each severity."""

    def apply(_episode: Episode, _parameter: Any, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
        raise NotImplementedError("the member is drawn before anything is applied")

    return Perturbation(
        name=f"random:{category}",
        summary=f"One of {len(members)} {category} perturbations, drawn for each episode, the same at every severity.",
        category=members[0].category,
        channel="+".join(dict.fromkeys(part for member in members for part in member.channel.split("+"))),
        stage="stream",
        expect="same",
        label=_strongest_effect(*members),
        randomness="per_clip",
        parameter="parameter of the member",
        table=("drawn",) * 4,  # the parameter is that of the member
        uses_dataset=any(member.uses_dataset for member in members),
        apply=apply,
        members=members,
    )


def from_middle(member: Perturbation) -> Perturbation:
    """Return the perturbation that changes the pixels of the second half of the shown frames, as the member does."""
    if member.channel != "frames" or member.stage != "sampled" or member.members:
        raise PlanError(
            f"{MIDWAY}{member.name}: only a change of the pixels of single frames can begin in the middle, such as "
            f"{MIDWAY}low_light; an episode has one instruction, and midway_shift compares its halves as it is"
        )

    def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
        middle = len(episode.clip) // 2
        if not middle:
            raise NotApplicable("a clip of one frame has no middle")
        changed = member.apply(episode, parameter, rng, dataset)
        frames = np.concatenate([episode.frames[:middle], changed.episode.frames[middle:]])
        return replace(changed, episode=with_frames(changed.episode, frames))

    summary = f"From the middle of the clip on: {member.summary}"
    name, content = f"{MIDWAY}{member.name}", digest("from the middle", member.fingerprint)
    return replace(member, name=name, summary=summary, category="temporal", apply=apply, content=content)


def _joint_expectation(clean: Episode, between: PerturbedEpisode, after: PerturbedEpisode) -> Expectation:
    """Return what is expected of both changes together, `undefined` where their directions do not compose."""
    expectations = {between.expect, after.expect} - {"same"}
    reordered = not np.array_equal(after.episode.clip.order, between.episode.clip.order)
    if not expectations:
        return "same"
    if "reversed" in expectations:
        only_order = between.expect == "reversed" and after.expect == "same" and not reordered
        return "reversed" if only_order or between.episode.clip is clean.clip else "undefined"
    directed = expectations <= {"lower", "relabel"}
    if expectations == {"relabel"} or (directed and after.episode.label.level is not None):
        return "relabel"
    raised = (between.episode.label.level or 0) > (clean.label.level or 5)
    return "lower" if directed and not raised else "undefined"


def _strongest_effect(*members: Perturbation) -> LabelEffect:
    """Return the effect on the label that leaves least of it certain."""
    return max((member.label for member in members), key=get_args(LabelEffect).index)


# Severities between the whole ones: the parameter is interpolated between the rows of the severity table. The random
# draws of a perturbation do not depend on the severity, so nothing else changes between two severities.

STEP = 1 / 16  # between neighbouring severities
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
    rows = [numbers for row in perturbation.table if (numbers := _numbers(row))]
    if len(rows) < 4 or len({len(row) for row in rows}) > 1 or rows[0] == rows[-1]:
        return _WHOLE
    # Numbers that do not go one way over the severities are codes of a kind of change.
    if not all(list(column) in (sorted(column), sorted(column)[::-1]) for column in zip(*rows, strict=True)):
        return _WHOLE
    first = 1 if perturbation.name in CLEAN_PARAMETERS else _STEPS
    return tuple(place * STEP for place in range(first, 4 * _STEPS + 1))


def at_severity(perturbation: Perturbation, severity: float) -> Perturbation:
    """Return the perturbation with the parameter of this severity in every row of its table; its draws stay."""
    if severity not in severity_ladder(perturbation):
        raise PlanError(f"{perturbation.name} has no severity {severity:g}; look at its severity table")
    if severity in _WHOLE:
        parameter = perturbation.table[int(severity) - 1]
        return perturbation if perturbation.members else replace(perturbation, table=(parameter,) * 4)
    rows, below = (CLEAN_PARAMETERS.get(perturbation.name), *perturbation.table), math.floor(severity)
    parameter = _between(rows[below], rows[below + 1], severity - below)
    return replace(perturbation, table=(parameter,) * 4)


def graded_perturbation(name: str, known: Mapping[str, Perturbation]) -> Perturbation:
    """Return what a graded name stands for: one change at its severity, or two, each at its own."""
    parts = graded_parts(name)
    if not parts or any(base not in known for base, _ in parts):
        raise PlanError(f"{name!r} names no perturbation of this run at a severity, such as low_light@2.5")
    graded = [at_severity(known[base], severity) for base, severity in parts]
    return graded[0] if len(graded) == 1 else compose(*graded)


def _numbers(parameter: Any) -> list[float]:
    """Return a parameter as a flat list of numbers, empty where something in it is none."""
    if isinstance(parameter, tuple):
        parts = [_numbers(part) for part in parameter]
        return [number for part in parts for number in part] if all(parts) else []
    return [parameter] if isinstance(parameter, int | float) and not isinstance(parameter, bool) else []


def _between(low: Any, high: Any, fraction: float) -> Any:
    """Return the parameter between two rows; whole numbers stay whole."""
    if isinstance(low, tuple):
        return tuple(_between(a, b, fraction) for a, b in zip(low, high, strict=True))
    value = low + (high - low) * fraction
    return round(value) if isinstance(low, int) and isinstance(high, int) else value
