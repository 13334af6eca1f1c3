import math
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.errors import DataError
from rewardlab.core.seeding import rng_for
from rewardlab.models.simulated import Competence
from rewardlab.studies.perturbation_paper.equation import StudyConfig, accuracy
from rewardlab.studies.perturbation_paper.fit_and_power import (
    POWER,
    MeasuredAccuracy,
    certified_share,
    correct_step_shares,
    fit_models,
    read_table,
    required_sample_sizes,
    smallest_sample_size,
)
from rewardlab.studies.perturbation_paper.paper import STATED_ACCURACY

STUDY = StudyConfig()
MINE = Competence(0.78, {"visual": 0.07, "temporal": 0.02})


def lines_of(model: Competence, severities: range, noise: float = 0.0) -> list[MeasuredAccuracy]:
    rng = rng_for(0, "measured")
    cells = [(c, s) for c in model.sigma for s in severities]
    exact = [float(accuracy(STUDY.scale(model.at(c, s)), STUDY.truth)) for c, s in cells]
    return [
        MeasuredAccuracy("mine", c, s, a + noise * rng.standard_normal())
        for (c, s), a in zip(cells, exact, strict=True)
    ]


@pytest.mark.parametrize("severities", [range(5), range(1, 3)])
def test_a_fit_finds_the_numbers_that_made_the_table(severities: range) -> None:
    fitted = fit_models(lines_of(MINE, severities), STUDY)["mine"]
    assert fitted.competence.alpha == pytest.approx(0.78, abs=1e-4)
    assert fitted.competence.sigma == pytest.approx(MINE.sigma, abs=1e-4)
    assert fitted.largest_misfit < 1e-5


def test_the_errors_of_a_fit_cover_the_truth() -> None:
    fitted = fit_models(lines_of(MINE, range(5), noise=0.005), STUDY)["mine"]
    numbers = {"alpha": fitted.competence.alpha, **fitted.competence.sigma}
    truth = {"alpha": 0.78, **MINE.sigma}
    assert all(abs(numbers[n] - truth[n]) < 4 * fitted.errors[n] for n in truth)
    assert all(0 < fitted.errors[n] < 0.02 for n in truth)


def test_the_papers_table_gives_back_its_fitted_numbers_and_not_its_stated_ones() -> None:
    lines = [MeasuredAccuracy(m, c, 4, value) for m, row in STATED_ACCURACY.items() for c, value in row.items()]
    fitted = fit_models(lines, STUDY)
    assert fitted["general"].competence.sigma["temporal"] == pytest.approx(0.062, abs=0.003)
    assert fitted["tuned"].competence.sigma["semantic"] > 0.08  # stated: 0.06
    assert fitted["ensemble"].competence.sigma["domain"] > 0.0433  # the most that stays reliable to severity 3
    assert math.isnan(fitted["tuned"].errors["visual"]) and "alpha" not in fitted["tuned"].errors


def test_accuracies_that_the_equation_cannot_give_are_seen_in_the_misfit() -> None:
    lines = [MeasuredAccuracy("m", "clean", 0, 0.95), MeasuredAccuracy("m", "visual", 1, 0.30)]
    assert fit_models(lines, STUDY)["m"].largest_misfit > 0.1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([MeasuredAccuracy("m", "visual", 4, 0.9)], "1 lines for 2 unknowns"),
        ([MeasuredAccuracy("m", "clean", 0, 0.9)], "only severity 0"),
        (
            [MeasuredAccuracy("m", "visual", s, 0.9) for s in (0, 1)]
            + [MeasuredAccuracy("n", "domain", s, 0.9) for s in (0, 1)],
            "'m' has no accuracy above severity 0 in domain",
        ),
    ],
)
def test_a_table_with_too_little_in_it_is_refused(lines: list[MeasuredAccuracy], says: str) -> None:
    with pytest.raises(DataError, match=says):
        fit_models(lines, STUDY)


def test_a_table_written_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes("﻿model,category,severity,accuracy\r\nm, clean ,0,0.95\r\nm,visual,3,0.80\r\n".encode())
    assert read_table(path) == [MeasuredAccuracy("m", "clean", 0, 0.95), MeasuredAccuracy("m", "visual", 3, 0.80)]


def test_the_found_size_certifies_as_often_as_it_says() -> None:
    rng = rng_for(0, "sizes")
    shares = correct_step_shares(StudyConfig(episodes=5000), 0.65, rng)
    size = smallest_sample_size(shares, 0.88, rng, reliable=True)
    assert size is not None
    assert certified_share(shares, size, 0.88, rng, reliable=True) == pytest.approx(POWER, abs=0.03)
    assert certified_share(shares, size // 2, 0.88, rng, reliable=True) < POWER - 0.1


def test_nothing_certifies_a_model_that_is_exactly_at_the_level() -> None:
    shares = np.array([0.0, 0.0, 0.5, 0.0, 0.5])
    assert smallest_sample_size(shares, 0.75, rng_for(0, "level"), reliable=True) is None


def test_every_condition_gets_a_size_near_the_formula() -> None:
    found = required_sample_sizes(
        StudyConfig(reliable_at=0.9, categories=("visual", "domain"), episodes=20_000), seed=0
    )
    assert len(found) == 6
    for need in found:
        assert need.reliable == (need.accuracy >= 0.9)
        assert need.episodes is not None
        assert need.episodes == pytest.approx(max(need.by_formula, 30), rel=0.15)
        assert 0.02 < need.false_rate < 0.09
