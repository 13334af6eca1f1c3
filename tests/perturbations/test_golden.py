"""Behaviour versions: what a perturbation makes may change only together with its version."""

from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.errors import PlanError
from rewardlab.perturbations import PERTURBATIONS, choose_perturbations
from tests.perturbations.golden import differences, outputs, statistics, stored


def test_every_perturbation_has_an_entry_of_its_version() -> None:
    versions = {name: perturbation.version for name, perturbation in PERTURBATIONS.items()}
    assert {name: entry["version"] for name, entry in stored().items()} == versions


@pytest.mark.golden
@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_version_makes_what_it_made(name: str) -> None:
    changed = differences(name, stored()[name], outputs(PERTURBATIONS[name]))
    assert not changed, "raise version= in the decorator, then run `python -m tests.perturbations.golden`"


def test_a_slightly_stronger_change_is_noticed() -> None:
    noise = PERTURBATIONS["gaussian_noise"]
    stronger = replace(noise, table=tuple(1.15 * sigma for sigma in noise.table))
    assert differences("gaussian_noise", stored()["gaussian_noise"], outputs(stronger))


def test_statistics_have_the_mean_and_spread_of_blocks_and_the_colour_of_frames() -> None:
    frames = np.zeros((2, 16, 16, 3), np.uint8)
    frames[1, :2, :2] = 100
    found = statistics(frames)
    assert found[0] == 50 and found[64] == 50 and not found[1:64].any()
    assert found[128:].tolist() == [0, 0, 0, 2, 2, 2]


def test_identity_is_name_table_and_version() -> None:
    dim = PERTURBATIONS["low_light"]
    assert replace(dim, summary="other words").fingerprint == dim.fingerprint
    for changed in (replace(dim, version=2), replace(dim, name="dim"), replace(dim, table=(0.7, 0.5, 0.3, 0.1))):
        assert changed.fingerprint != dim.fingerprint
    with pytest.raises(PlanError, match="must hold finite numbers"):
        _ = replace(dim, table=(object(),) * 4).fingerprint


def test_the_version_of_a_part_is_in_the_identity_of_what_is_made_of_it() -> None:
    from rewardlab.perturbations.composition import compose, random_member

    first, second = choose_perturbations(("low_light", "jpeg"))
    newer = replace(second, version=2)
    assert compose(first, second).fingerprint != compose(first, newer).fingerprint
    members = [random_member("visual", (first, each)).fingerprint for each in (second, newer)]
    assert members[0] != members[1]
