from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from rewardlab.core.seeding import rng_for
from rewardlab.models.simulated import Competence, correlated
from rewardlab.studies.perturbation_paper import sampler as kernels
from rewardlab.studies.perturbation_paper.equation import Condition, StudyConfig
from rewardlab.studies.perturbation_paper.sampler import draw_competence, measure, predictions, sample
from rewardlab.studies.perturbation_paper.simulation_results import run_study, z_scores

CELL = Condition("general", "visual", 4)


@pytest.mark.parametrize("grid", [0, 2, 5, 20])
@pytest.mark.parametrize("steps", [2, 4, 9, 60])
def test_tau_b_is_scipys_with_and_without_ties(steps: int, grid: int) -> None:
    rng = rng_for(0, "ties", steps, grid)
    truth = (np.arange(steps) + 0.5) / steps
    for _ in range(40):
        values = truth + 0.3 * rng.standard_normal(steps)
        values = np.round(values * grid) / grid if grid else values
        expected = np.nan if len(np.unique(values)) == 1 else kendalltau(values, truth).statistic
        assert kernels.tau_b(values) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_measures_are_those_of_a_plain_loop_over_episodes() -> None:
    study = StudyConfig(episodes=300, steps=5)
    values = np.round(predictions(study, CELL, 0.4, 7) * 6) / 6  # coarse answers have ties
    truth, bins = study.truth, [0.0] * 10
    accuracies, taus, errors = [], [], []
    for row in values:
        accuracies.append(np.mean((row > 0.5) == (truth > 0.5)))
        errors.append(np.mean(np.abs(row - truth)))
        if len(set(row)) > 1:
            taus.append(kendalltau(row, truth).statistic)
        for said, true in zip(np.clip(row, 0, 1), truth, strict=True):
            bins[min(int(said * 10), 9)] += (true - said) / values.size
    found = measure(iter([values[:123], values[123:]]), study)
    assert found["accuracy"].value == pytest.approx(np.mean(accuracies))
    assert found["accuracy"].error == pytest.approx(np.std(accuracies, ddof=1) / np.sqrt(300))
    assert found["tau"].value == pytest.approx(np.mean(taus))
    assert found["mae"].value == pytest.approx(np.mean(errors))
    assert found["ece"].value == pytest.approx(np.abs(bins).sum())


STUDIES = {
    "the paper's": StudyConfig(),
    "two steps": StudyConfig(steps=2, rho=0.0),
    "a step at one half": StudyConfig(steps=5, rho=0.9, correlation=0.6),
    "a hundred steps": StudyConfig(steps=100, rho=0.7, noise=1.5, correlation=0.3, tasks={}),
    "two models, other severities": StudyConfig(
        models={"a": Competence(0.6, {"visual": 0.05}), "b": Competence(0.99, {"visual": 0.2})},
        categories=("visual",),
        severities=(0, 3, 10, 40),
        voters="a",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_sampling_agrees_with_the_closed_form(name: str, seed: int) -> None:
    results = run_study(replace(STUDIES[name], episodes=80_000 // STUDIES[name].steps), seed)
    distances = np.array(z_scores(results))
    assert np.abs(distances).max() < 4
    assert 0.8 < distances.std() < 1.2  # errors are neither under- nor overstated


def test_noise_has_unit_variance_and_the_stated_correlation() -> None:
    study = StudyConfig(episodes=200_000, rho=0.6, steps=6, noise=1.0)
    noise = predictions(study, CELL, 0.0, 3) - study.truth
    found = np.corrcoef(noise.T)
    lags = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    np.testing.assert_allclose(found, 0.6**lags, atol=0.012)
    np.testing.assert_allclose(noise.std(axis=0), 1, atol=0.01)


def test_the_fast_and_the_plain_noise_are_the_same() -> None:
    study = StudyConfig(episodes=50, steps=7, rho=0.3)
    normals = rng_for(3, "episodes", "general", "visual", "", 4).standard_normal((50, 7))
    plain = study.truth + study.scale(0.4) * correlated(normals, 0.3)
    np.testing.assert_allclose(predictions(study, CELL, 0.4, 3), plain)


def test_a_condition_depends_on_its_name_and_seed_only() -> None:
    small, large = (
        StudyConfig(episodes=100),
        StudyConfig(episodes=100, severities=(4,), categories=("visual",), tasks={}),
    )
    assert sample(small, CELL, 0.4, 5) == sample(large, CELL, 0.4, 5)
    assert sample(small, CELL, 0.4, 5) != sample(small, CELL, 0.4, 6)
    assert draw_competence(small, CELL, 5) == draw_competence(large, CELL, 5)


def test_no_mistake_in_few_episodes_is_not_called_certain() -> None:
    flawless = sample(StudyConfig(episodes=20, noise=0.01), CELL, 0.9, 0)
    assert flawless["accuracy"].value == flawless["tau"].value == 1
    assert flawless["accuracy"].interval[0] < 1 and flawless["tau"].interval[0] < 1
