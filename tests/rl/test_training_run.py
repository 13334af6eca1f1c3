"""One training run: it resumes to the very same policy, learns what pays, and ends with a reason."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("metaworld")

import torch

from rewardlab.core.errors import SimulatorError
from rewardlab.core.seeding import rng_for
from rewardlab.rl.diffusion_policy import DiffusionPolicy, DiffusionSettings
from rewardlab.rl.dsrl import Algorithm, SacSettings, SteeredPolicy
from rewardlab.rl.experiment import train_or_fail
from rewardlab.rl.plan import StudyFolder, TrainingRun
from rewardlab.rl.results import read_training_run
from rewardlab.rl.rollouts import Control, PolicyEpisode, roll_out
from rewardlab.rl.training_run import make_base_policy, open_training_run
from rewardlab.worlds.metaworld.physics import SteppedRollout, simulate
from tests.rl.tiny_study import tiny_plan

PLAN = tiny_plan()
RUN = TrainingRun("button-press", "true", "clean", "dsrl", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study whose base policy is cloned."""
    folder = StudyFolder(tmp_path_factory.mktemp("study"))
    make_base_policy(PLAN, folder, "button-press")
    return folder


def test_a_stepped_rollout_is_the_simulated_one() -> None:
    stepped = SteppedRollout("reach")
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 4))
    stepped.reset(5)
    for action in actions:
        stepped.step(action)
    expected = simulate("reach", 5, 6, lambda state: actions[state.step])
    np.testing.assert_array_equal(stepped.trajectory().qpos, expected.qpos)
    assert stepped.trajectory().readings == expected.readings


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dsrl", "dsrl-na"])
def test_a_stopped_training_run_resumes_to_the_very_same_policy(folder: StudyFolder, algorithm: Algorithm) -> None:
    run = replace(RUN, algorithm=algorithm)
    straight = open_training_run(PLAN, folder, run)
    folder.training_run(run).mkdir(parents=True)
    for _ in range(4):
        straight._learn_round()
    stopped = open_training_run(PLAN, folder, run)
    stopped._learn_round()
    stopped._learn_round()
    stopped.save()
    resumed = open_training_run(PLAN, folder, run)
    assert resumed.progress.episodes == 4
    resumed._learn_round()
    resumed._learn_round()
    for name, wanted in straight.policy.state()["sac"]["policy"].items():
        assert torch.equal(wanted, resumed.policy.state()["sac"]["policy"][name]), name
    assert torch.equal(straight.policy.state()["buffer"]["actions"], resumed.policy.state()["buffer"]["actions"])
    for name, wanted in straight.policy.noise_critic.state_dict().items():
        assert algorithm == "dsrl" or torch.equal(wanted, resumed.policy.noise_critic.state_dict()[name]), name
    folder.checkpoint(run).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dsrl", "dsrl-na"])
def test_steering_finds_the_noise_whose_action_pays(algorithm: Algorithm) -> None:
    policy, rng = _toy_policy(algorithm), np.random.default_rng(0)
    nothing = simulate("reach", 0, 1, lambda _state: np.zeros(4))
    scenes = rng.normal(size=(100, 2)).astype(np.float32)
    base = policy.base_decisions(0)(scenes, 0).chunks
    assert 0.3 < (base[:, 0] > 0).mean() < 0.7
    for number in range(60):
        seen = rng.normal(size=(1, 2)).astype(np.float32)
        decision = policy.explore(0, number)(seen, 0)
        episode = PolicyEpisode(np.stack([seen[0], seen[0]]), decision.choices, nothing)
        policy.learn([episode], [float(decision.chunks[0, 0] > 0)], 0, number)
    chosen = policy.exploit()(scenes, 0)
    assert (chosen.chunks[:, 0] > 0).mean() >= 0.9
    assert np.abs(chosen.choices).max() <= policy.settings.magnitude


@pytest.mark.slow
def test_the_noise_critic_agrees_with_the_action_critic_through_the_policy() -> None:
    policy, rng = _toy_policy("dsrl-na"), np.random.default_rng(1)
    nothing = simulate("reach", 0, 1, lambda _state: np.zeros(4))
    for number in range(12):
        seen = rng.normal(size=(1, 2)).astype(np.float32)
        chunk = policy.explore(0, number)(seen, 0).chunks
        policy.learn([PolicyEpisode(np.stack([seen[0], seen[0]]), chunk, nothing)], [chunk[0, 1]], 0, number)
    for _ in range(300):
        policy._learn_actions()
    states = policy.sac.replay_buffer.sample(200).observations
    noise = torch.randn(200, 4)

    def agreement() -> float:
        with torch.no_grad():
            by_noise = policy.noise_critic(states, noise / policy.settings.magnitude)[0]
            by_action = policy.sac.critic(states, policy.base.denoise(states[:, :-1], noise))[0]
        return float(np.corrcoef(by_noise.squeeze(1), by_action.squeeze(1))[0, 1])

    before = agreement()
    for _ in range(40):
        policy._distil()
    assert before < 0.7 and agreement() > 0.9


def test_noise_aliased_steering_learns_from_the_executed_actions(folder: StudyFolder) -> None:
    training = open_training_run(PLAN, folder, replace(RUN, algorithm="dsrl-na"))
    training._learn_round()
    kept = training.policy.state()["buffer"]["actions"].numpy().reshape(2, 3, -1)
    scenes = [int(rng_for(0, "training", "button-press", index).integers(2**30)) + 2**30 for index in range(2)]
    again = open_training_run(PLAN, folder, RUN)
    episodes = roll_out(again.simulators, scenes, again.policy.explore(0, 0), PLAN.control)
    for actions, episode in zip(kept, episodes, strict=True):
        executed = episode.trajectory.actions[:: PLAN.control.hold].reshape(3, -1)
        np.testing.assert_allclose(actions, executed, atol=1e-5)


def _toy_policy(algorithm: Algorithm) -> SteeredPolicy:
    """Return a policy of one decision, whose base policy maps noise to actions by chance."""
    torch.manual_seed(0)
    base = DiffusionPolicy(2, 4, DiffusionSettings(hidden=8, layers=1, train_denoising=4, denoising=2))
    settings = SacSettings(hidden=16, batch=32, gradient_steps=8, initial_episodes=12, rate=5e-3)
    return SteeredPolicy(base, algorithm, settings, Control(hold=1, chunk=1, decisions=1), 60)


def test_plain_sac_chooses_the_actions_themselves(folder: StudyFolder) -> None:
    training = open_training_run(PLAN, folder, TrainingRun("button-press", "true", "clean", "sac", 0))
    decision = training.policy.explore(0, 0)(np.zeros((2, 39), np.float32), 0)
    np.testing.assert_array_equal(decision.choices, decision.chunks)
    assert np.abs(decision.chunks).max() <= 1


def test_actions_that_are_no_numbers_end_the_training_run_with_the_reason(folder: StudyFolder, tmp_path: Path) -> None:
    broken = StudyFolder(tmp_path)
    broken.policy("button-press").parent.mkdir(parents=True)
    broken.policy_facts("button-press").write_bytes(folder.policy_facts("button-press").read_bytes())
    state = torch.load(folder.policy("button-press"), weights_only=True)
    state["network"]["net.0.weight"].fill_(float("nan"))
    torch.save(state, broken.policy("button-press"))
    result = train_or_fail(PLAN, broken, RUN)
    assert result.status == "failed" and "action that is not finite" in result.reason
    assert read_training_run(broken.failure(RUN)) == result and not broken.result(RUN).exists()


def test_a_simulator_that_does_not_reset_is_opened_anew(folder: StudyFolder) -> None:
    training = open_training_run(PLAN, folder, RUN)
    _break(training.simulators[0])
    training._learn_round()
    assert training.progress.episodes == 2


def test_a_simulator_that_never_resets_says_which_scene() -> None:
    simulator = SteppedRollout("reach")
    _break(simulator)
    with pytest.raises(SimulatorError, match="reach does not reset to the scene of seed 7: no such scene"):
        roll_out([simulator], [7], lambda _seen, _number: pytest.fail("nothing to decide"), Control())


def _break(simulator: SteppedRollout) -> None:
    """Let Meta-World's own reset fail, as a broken installation does."""

    def reset() -> None:
        raise RuntimeError("no such scene")

    simulator._env.reset = reset
