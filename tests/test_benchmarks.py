"""Benchmarks reach into the runner, so that a changed name breaks them: the smallest run of each that does."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rewardlab.data import open_dataset
from rewardlab.models import name_model
from tests.plans import stress_plan

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    spec = spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stages_of_the_runner_are_timed_and_add_up(tiny_data: Path) -> None:
    overhead = benchmark("overhead")
    few = {"perturbations": ("brightness_up", "polite_filler"), "severities": (1,), "controls": False}
    plan = stress_plan(("constant",), str(tiny_data), limit=2, **few)
    cells, total, shares = overhead.profile(plan)
    assert cells == 2 * 3 and 0 < sum(shares.values()) < total
    assert min(shares.values()) > 0, shares
    assert overhead.naive(plan) > 0


def test_a_release_is_compared_with_the_one_before_it_on_such_a_machine(tmp_path: Path) -> None:
    release = benchmark("release")
    for name in ("0.9.0-x86_64", "0.10.0-x86_64", "0.10.1-aarch64", "0.11.0-x86_64"):
        (tmp_path / f"{name}.json").touch()
    assert release.release_before("0.11.0", "x86_64", tmp_path) == tmp_path / "0.10.0-x86_64.json"
    assert release.release_before("0.9.0", "x86_64", tmp_path) is None
    assert release.regressions({"same": 9.0, "slower": 6.0, "new": 1.0}, {"same": 10.0, "slower": 10.0}) == ["slower"]


@pytest.mark.slow
def test_a_made_up_run_is_read_as_one_that_goes_on(tmp_path: Path) -> None:
    for words in (["make", "300", "temporal"], ["resume"]):
        command = [sys.executable, str(BENCHMARKS / "made_up_run.py"), words[0], str(tmp_path / "run"), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300"]


@pytest.mark.slow
def test_nonsense_is_counted_by_level_flag_and_refusal() -> None:
    nonsense = benchmark("nonsense")
    real = list(open_dataset("sample-sim").episodes[:2])
    counts = {
        kind: nonsense.count_answers(name_model("pocket").build(), nonsense.nonsense_episodes(kind, 3, real))
        for kind in ("noise", "letters")
    }
    assert all(found == (3, 1.0, 3, 0) for found in counts.values())  # clips, mean level, flagged, refused
    refusing = nonsense.count_answers(name_model("pocket").build(), [replace(real[0], instruction="?")])
    assert refusing[0] == refusing[3] == 1
    whole = nonsense.total([*counts.values(), refusing])
    assert whole == (7, 1.0, 6, 1)


def test_a_session_and_whole_clips_are_asked_for_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from tests.serving.loopback_server import reward_server

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    streaming = benchmark("serve_streaming")
    frames = streaming.clip(side=32, count=30)
    with reward_server("pocket", name_model("pocket").build()) as client:
        answers = streaming.with_session(client, frames)
        assert len(answers) == 3
        assert answers == streaming.with_whole_clips(client, frames)


@pytest.mark.slow
def test_policies_leave_rollouts_that_teach_and_test_a_reward_model(tmp_path: Path) -> None:
    for package in ("stable_baselines3", "metaworld"):
        pytest.importorskip(package)
    from rewardlab.rl.plan import StudyFolder
    from rewardlab.training.pocket.rollouts import load_rollouts
    from tests.rl.tiny_study import tiny_plan

    near_misses = benchmark("near_misses")
    plan = tiny_plan(schedule={"evaluations": 0})
    results = near_misses.train(plan, "constant:5", StudyFolder(tmp_path / "policies"), tmp_path / "shards", workers=1)
    assert [result.reward for result in results] == ["constant:5", "true"]
    (path,) = (tmp_path / "shards").iterdir()
    assert path.name == "policy-button-press-000.npz"
    rollouts = load_rollouts(path)
    assert len(rollouts) == 2 * (plan.schedule.episodes + near_misses.EXPLOITING)
    failed = [rollout for rollout in rollouts if not rollout.trajectory.readings[-1].success]
    assert sum(rollout.quality == "fooled" for rollout in failed) == len(failed) // 2  # constant:5 calls all a success
    assert all(rollout.texts and len(rollout.trajectory.qpos) == 24 for rollout in rollouts)


@pytest.mark.slow
def test_near_misses_are_successes_against_failures_that_fool_a_model() -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("metaworld")
    from rewardlab.worlds.metaworld.physics import simulate
    from rewardlab.worlds.metaworld.policies import make_policy

    near_misses = benchmark("near_misses")
    done = [simulate("drawer-close", seed, 120, make_policy("expert", "drawer-close", seed)) for seed in (1, 2)]
    left = [simulate("drawer-close", seed, 120, lambda _state: np.zeros(4)) for seed in (3, 4)]
    assert [trajectory.readings[-1].level for trajectory in (*done, *left)] == [5, 5, 1, 1]
    successes = [near_misses.as_rollout(trajectory, "policy") for trajectory in done]
    fooling = [near_misses.as_rollout(trajectory, "fooled") for trajectory in left]
    plain = [near_misses.as_rollout(trajectory, "policy") for trajectory in left]
    assert near_misses.near_miss_auc("pocket", successes + fooling)[0].value == 1
    every, at_level_4 = near_misses.near_miss_auc("constant:3", successes + fooling)
    assert every.value == 0.5 and np.isnan(at_level_4.value)
    assert np.isnan(near_misses.near_miss_auc("constant:3", successes + plain)[0].value)  # no failure is a hard one
    drawn = near_misses.choose_rollouts(plain * 20 + fooling * 20, 40, 0)
    assert sum(rollout.quality == "fooled" for rollout in drawn) > 25  # 20 if all were drawn as often
