"""The base policy: it clones what it is shown, and its noise decides what it does."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from rewardlab.core.errors import PlanError, RunError
from rewardlab.rl.diffusion_policy import (
    DemonstrationMix,
    Demonstrations,
    DiffusionPolicy,
    DiffusionSettings,
    clone_policy,
    collect_demonstrations,
)
from rewardlab.rl.rollouts import Control

SMALL = DiffusionSettings(hidden=32, layers=2, steps=300, batch=64, train_denoising=20, denoising=5)


@pytest.fixture(scope="module")
def two_modes() -> Demonstrations:
    """Half of the demonstrations go left and half go right from the same observations."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(400, 3)).astype(np.float32)
    side = np.where(np.arange(400) % 2, 0.7, -0.7)
    return Demonstrations(observations, np.repeat(side[:, None], 4, axis=1).astype(np.float32), 200, 400)


@pytest.fixture(scope="module")
def policy(two_modes: Demonstrations) -> DiffusionPolicy:
    return clone_policy(two_modes, SMALL, seed=0)


def test_it_keeps_both_ways_of_doing_it_and_the_noise_chooses(policy: DiffusionPolicy) -> None:
    noise = np.random.default_rng(1).standard_normal((200, 4)).astype(np.float32)
    chunks = policy.act(np.zeros((200, 3), np.float32), noise)
    left = (chunks.mean(axis=1) < 0).mean()
    assert 0.3 < left < 0.7
    assert np.abs(np.abs(chunks).mean() - 0.7) < 0.15
    steered = policy.act(np.zeros((8, 3), np.float32), np.full((8, 4), 1.5, np.float32))
    assert (steered.mean(axis=1) > 0.4).all()


def test_the_same_noise_gives_the_same_actions_and_so_does_a_saved_copy(
    policy: DiffusionPolicy, tmp_path: Path
) -> None:
    seen, noise = np.ones((2, 3), np.float32), np.full((2, 4), 0.3, np.float32)
    policy.save(tmp_path / "policy.pt")
    copy = DiffusionPolicy(3, 4, SMALL)
    copy.load(tmp_path / "policy.pt")
    np.testing.assert_array_equal(policy.act(seen, noise), policy.act(seen, noise))
    np.testing.assert_array_equal(policy.act(seen, noise), copy.act(seen, noise))


def test_a_file_that_is_no_policy_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "policy.pt").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"policy\.pt holds no policy of this shape"):
        DiffusionPolicy(3, 4, SMALL).load(tmp_path / "policy.pt")


def test_demonstrations_are_cut_into_chunks_that_begin_where_they_were_seen() -> None:
    control = Control(hold=2, chunk=3, decisions=2)
    found = collect_demonstrations("reach", DemonstrationMix(2, ("expert", "random=1")), control, seed=3)
    assert found.observations.shape == (2 * 6, 39) and found.chunks.shape == (2 * 6, 12)
    # The second chunk of the first demonstration begins with the second action of its first chunk.
    np.testing.assert_array_equal(found.chunks[1][:4], found.chunks[0][4:8])
    again = collect_demonstrations("reach", DemonstrationMix(2, ("expert", "random=1")), control, seed=3)
    np.testing.assert_array_equal(found.chunks, again.chunks)


@pytest.mark.parametrize("qualities", [("nobody=1",), ("expert=half",), ()])
def test_a_mix_that_means_nothing_is_refused(qualities: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match=r"1 quality or more|a quality is name=share"):
        DemonstrationMix(3, qualities)
