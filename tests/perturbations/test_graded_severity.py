"""Severities between the whole ones."""

import numpy as np
import pytest

from rewardlab.core.episode import Label, episode_from_frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.trial import graded_name, graded_parts
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.composition import (
    CLEAN_PARAMETERS,
    STEP,
    at_severity,
    graded_perturbation,
    severity_ladder,
)
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from tests.conftest import moving_square

PROGRESS = tuple(i / 19 for i in range(20))
EPISODE = episode_from_frames(
    moving_square("graded", size=96), "put the red cup on the plate", label=Label(5, True, PROGRESS)
)
WITHOUT_SIMULATOR = [name for name, p in PERTURBATIONS.items() if p not in WORLD_PERTURBATIONS]


def seen(name: str, severity: float) -> np.ndarray:
    return at_severity(PERTURBATIONS[name], severity)(EPISODE, 1, 0, (EPISODE,)).episode.frames


@pytest.mark.parametrize("name", WITHOUT_SIMULATOR)
def test_every_perturbation_can_be_applied_along_its_ladder(name: str) -> None:
    """The first, two in the middle, and the last, which is severity 4 itself, with the very same draws."""
    perturbation = PERTURBATIONS[name]
    ladder = severity_ladder(perturbation)
    assert ladder[-1] == 4
    for severity in (ladder[0], ladder[len(ladder) // 3], ladder[len(ladder) // 2 + 1]):
        try:
            changed = at_severity(perturbation, severity)(EPISODE, 2, 0, (EPISODE,)).episode
        except NotApplicable:
            continue
        assert changed.frames.dtype == np.uint8
        assert changed.instruction
    try:
        whole = perturbation(EPISODE, 4, 0, (EPISODE,)).episode
    except NotApplicable:
        return
    graded = at_severity(perturbation, 4.0)(EPISODE, 1, 0, (EPISODE,)).episode
    assert np.array_equal(whole.frames, graded.frames)
    assert whole.instruction == graded.instruction


def test_what_changes_nothing_is_said_of_perturbations_that_are_there() -> None:
    assert CLEAN_PARAMETERS.keys() <= PERTURBATIONS.keys()
    for name in CLEAN_PARAMETERS:
        assert severity_ladder(PERTURBATIONS[name])[0] == STEP, f"{name} has no numbers between its severities"


@pytest.mark.parametrize("name", ["low_light", "gaussian_noise", "contrast_down", "gaussian_blur", "fog"])
def test_a_stronger_change_departs_further_from_the_clean_frames(name: str) -> None:
    clean = EPISODE.frames.astype(float)
    departures = [np.abs(seen(name, severity) - clean).mean() for severity in (0.25, 0.75, 1.5, 2.5, 3.5)]
    assert departures == sorted(departures)
    assert departures[0] < departures[-1] / 2


def test_the_parameter_is_interpolated_and_whole_numbers_stay_whole() -> None:
    assert at_severity(PERTURBATIONS["low_light"], 2.5).table[0] == pytest.approx(0.4)
    assert at_severity(PERTURBATIONS["low_light"], 0.5).table[0] == pytest.approx(0.85)
    assert at_severity(PERTURBATIONS["jpeg"], 1.5).table[0] == 22
    assert severity_ladder(PERTURBATIONS["paraphrase"]) == (1, 2, 3, 4)
    assert severity_ladder(PERTURBATIONS["added_requirement"]) == (1, 2, 3, 4)  # numbers, but codes of kinds
    assert severity_ladder(PERTURBATIONS["codec"])[0] == 1  # nothing is known below severity 1
    with pytest.raises(PlanError, match="paraphrase has no severity"):
        at_severity(PERTURBATIONS["paraphrase"], 2.5)


def test_a_name_states_its_severities() -> None:
    pair = (("low_light", 1.5), ("tilt", 2.0))
    assert graded_parts(graded_name(pair)) == pair
    assert graded_name((("tilt", 2.0),)) == "tilt"
    assert graded_parts("low_light+tilt@2.5") == (("low_light+tilt", 2.5),)
    assert graded_parts("tilt") == ()
    assert graded_perturbation("low_light@1.5+tilt@2", PERTURBATIONS).category == "pair"
    with pytest.raises(PlanError, match="fogg@2"):
        graded_perturbation("fogg@2", PERTURBATIONS)
