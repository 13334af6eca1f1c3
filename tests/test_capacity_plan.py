"""The plan past one machine: the cost model agrees with the simulation, and names what gives way first."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def planner() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("capacity_plan", BENCHMARKS / "capacity_plan.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "capacity_plan", module)
        spec.loader.exec_module(module)
        return module


@pytest.mark.parametrize("workers", [1, 50, 2_000])
def test_the_cost_model_says_what_the_simulation_plays(planner: ModuleType, workers: int) -> None:
    cost = planner.Constants(**json.loads(planner.CONSTANTS.read_text()))
    plan = planner.Plan(1_000, models=100, seconds_per_cell=0.05, workers=workers)
    played = planner.simulate(plan, cost, episodes=max(1_000, 20 * workers))
    assert played == pytest.approx(planner.model_rate(plan, cost), rel=0.06)


def test_the_first_bottleneck_moves_with_the_size_and_splitting_ends_it(planner: ModuleType) -> None:
    cost = planner.Constants(0.002, 0.0003, 2_000, 0.1, 0.02, 1e-4, 25, 1_200, 800, 4_000)
    few = planner.Plan(10_000, models=100, seconds_per_cell=0.05, workers=100)
    assert planner.bottleneck(few, cost) == "scoring"
    assert planner.bottleneck(replace(few, seconds_per_cell=0, models=1), cost) == "perturbing"
    many = replace(few, workers=2_000)
    assert planner.bottleneck(many, cost) == "the command"
    large = replace(few, episodes=1_000_000)
    assert planner.bottleneck(large, cost) == "memory of the command"
    for plan in (many, large):
        split = replace(plan, commands=planner.commands_needed(plan, cost))
        assert planner.bottleneck(split, cost) == "scoring"
        assert planner.hours(split, cost) < planner.hours(plan, cost)
