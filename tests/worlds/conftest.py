"""Rollouts made once for all tests of the worlds; what cannot run here is skipped with the reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, simulate
from rewardlab.worlds.metaworld.policies import make_policy


@pytest.fixture(scope="session")
def physics() -> None:
    try:
        load_module("metaworld")
    except PlanError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def renderer(physics: None) -> None:  # noqa: ARG001
    """Skip where nothing can be rendered, after really trying."""
    from rewardlab.worlds.metaworld.render import CameraView
    from rewardlab.worlds.metaworld.scene_edits import render_rollout

    try:
        render_rollout(simulate("reach", 0, 1, make_policy("random", "reach", 0)), [0], CameraView(size=16))
    except PlanError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def drawer(physics: None) -> Trajectory:  # noqa: ARG001
    return simulate("drawer-open", 3, 160, make_policy("expert", "drawer-open", 3))


@pytest.fixture(scope="session")
def dataset(renderer: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """Four short episodes of two tasks, as `rewardlab collect` writes them."""
    folder = tmp_path_factory.mktemp("sim")
    rewardlab.collect(
        "metaworld",
        tasks=("button-press", "drawer-open"),
        episodes=2,
        quality=("expert", "random"),
        frames=(14, 20),
        size=64,
        counterfactuals=2,
        execution=Execution(workers=1),
        out=folder,
    )
    return folder


@pytest.fixture(scope="session")
def episodes(dataset: Path) -> tuple[Episode, ...]:
    contents = open_dataset(str(dataset))
    assert not contents.problems
    return contents.episodes


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool((one == other).all())
