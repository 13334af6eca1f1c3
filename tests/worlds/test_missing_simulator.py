"""Where the simulator is not installed, whoever asks for it is told what to install."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import rewardlab
from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.physics import simulator_versions


def test_versions_of_a_simulator_that_is_not_there_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(rewardlab.__file__).parents[1])])
    for name in ("metaworld", "mujoco"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PlanError, match=r"Meta-World is not installed here .*install rewardlab\[sim\]"):
        simulator_versions()


def test_versions_of_one_that_is_there_are_its_own() -> None:
    pytest.importorskip("metaworld")
    assert simulator_versions() == {name: version(name) for name in ("metaworld", "mujoco")}
