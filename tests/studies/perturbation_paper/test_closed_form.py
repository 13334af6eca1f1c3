import numpy as np
import pytest
from scipy.stats import norm

from rewardlab.studies.perturbation_paper import equation as theory
from rewardlab.studies.perturbation_paper.equation import StudyConfig

PAPER = StudyConfig()


@pytest.mark.parametrize("competence", [0.4, 0.6, 0.72, 0.85])
def test_the_formulas_of_the_paper_are_those_written_out_by_hand(competence: float) -> None:
    s, rho, miss = 0.42 * (1 - competence), 0.40, norm.sf
    accuracy = 1 - (miss(1 / (8 * s)) + miss(3 / (8 * s))) / 2
    pairs = (
        3 * miss(0.25 / (s * np.sqrt(2 * (1 - rho)))),
        2 * miss(0.50 / (s * np.sqrt(2 * (1 - rho**2)))),
        1 * miss(0.75 / (s * np.sqrt(2 * (1 - rho**3)))),
    )
    found = theory.closed_form(PAPER, np.array(competence))
    assert found["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert found["tau"] == pytest.approx(1 - sum(pairs) / 3, abs=1e-12)
    assert found["mae"] == pytest.approx(s * np.sqrt(2 / np.pi))


def test_long_episodes_approach_their_limits() -> None:
    scale, long = np.array([0.02, 0.05]), StudyConfig(steps=4000, rho=0.0)
    np.testing.assert_allclose(theory.accuracy(scale, long.truth), 1 - 0.79788 * scale, atol=1e-4)
    np.testing.assert_allclose(theory.tau(scale, 4000, 0.0), 1 - 4 * scale / np.sqrt(np.pi) + 2 * scale**2, atol=1e-3)


@pytest.mark.parametrize("steps", [2, 3, 4, 7])
def test_a_model_without_noise_is_right_about_everything(steps: int) -> None:
    found = theory.closed_form(StudyConfig(noise=0.0, steps=steps), np.array(0.5))
    assert found["accuracy"] == pytest.approx(1) and found["tau"] == pytest.approx(1)
    assert found["ece"] == pytest.approx(0, abs=1e-9) and found["mae"] == 0


def test_a_vote_of_independent_members_is_the_binomial_one_and_of_equal_members_none() -> None:
    scale = np.array([0.05, 0.118, 0.2])
    wrong = theory.step_error_rates(scale, PAPER.truth)
    alone = 1 - (3 * wrong**2 - 2 * wrong**3).mean(axis=-1)
    np.testing.assert_allclose(theory.vote_accuracy(scale, PAPER.truth, 0.0), alone, atol=1e-9)
    row = theory.accuracy(scale, PAPER.truth)
    np.testing.assert_allclose(theory.vote_accuracy(scale, PAPER.truth, 1.0), row)
    np.testing.assert_allclose(theory.vote_accuracy(scale, PAPER.truth, 0.999), row, atol=5e-3)


def test_everything_worsens_with_noise() -> None:
    found = theory.closed_form(PAPER, np.linspace(0.99, 0.1, 60))
    assert np.all(np.diff(found["accuracy"]) <= 0) and np.all(np.diff(found["tau"]) <= 0)
    assert np.all(np.diff(found["mae"]) > 0)


def test_the_noise_of_eq_1_is_averaged_over_and_its_spread_given() -> None:
    centre = np.array([0.72])
    draws = 0.72 + 0.005 * np.random.default_rng(0).standard_normal(20_000)
    sampled = theory.closed_form(PAPER, draws)
    for name, (mean, spread) in theory.mean_over_drift(PAPER, centre).items():
        assert mean[0] == pytest.approx(sampled[name].mean(), abs=1e-4)
        assert spread[0] == pytest.approx(sampled[name].std(), rel=0.04)
