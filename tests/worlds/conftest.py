"""Rollouts made once for all tests of the worlds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import Episode
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.worlds.metaworld.physics import Trajectory, simulate
from rewardlab.worlds.metaworld.policies import make_policy


@pytest.fixture(scope="session")
def drawer() -> Trajectory:
    return simulate("drawer-open", 3, 160, make_policy("expert", "drawer-open", 3))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
