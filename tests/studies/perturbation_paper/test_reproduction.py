import pytest

from rewardlab.studies.perturbation_paper.equation import StudyConfig
from rewardlab.studies.perturbation_paper.reproduction import claim_checks, reproductions, stated_numbers
from rewardlab.studies.perturbation_paper.simulation_results import SimulationResults, reliable_range, run_study


@pytest.fixture(scope="module")
def results() -> SimulationResults:
    return run_study(StudyConfig(), seed=0)


def test_fourteen_of_the_sixteen_stated_numbers_are_met_and_two_are_marked(results: SimulationResults) -> None:
    found = reproductions(results)
    assert len(found) == len(stated_numbers()) == 16
    missed = [c for c in found if not c.met]
    assert [(c.stated.model, c.stated.categories) for c in missed] == [
        ("tuned", ("semantic",)),
        ("ensemble", ("domain",)),
    ]
    assert all(c.stated.reason for c in missed)
    assert [round(abs(c.distance)) for c in missed] == [6, 4]
    assert max(abs(c.distance) for c in found if c.met) < 1


@pytest.mark.parametrize("seed", range(5))
def test_any_sampled_study_of_that_size_lies_as_near(seed: int) -> None:
    for c in reproductions(run_study(StudyConfig(tasks={}), seed)):
        if not c.stated.reason:
            assert abs(c.sampled.value - c.stated.value) < 4 * c.error  # two studies, each with its own error


def test_the_error_of_a_stated_number_does_not_shrink_with_our_sample() -> None:
    small, large = (reproductions(run_study(StudyConfig(episodes=n, tasks={}), 1)) for n in (500, 20_000))
    for a, b in zip(small, large, strict=True):
        assert b.error == pytest.approx(a.error, rel=0.15)


@pytest.mark.parametrize(
    ("model", "last", "failing"),
    [
        ("general", [0, 0, 0, 0], [1, 1, 1, 1]),
        ("tuned", [3, 2, 4, 2], [4, 3, None, 3]),
        ("ensemble", [4, 4, 4, 3], [None, None, None, 4]),
    ],
)
def test_reliability_is_given_both_ways(model: str, last: list[int], failing: list[int | None]) -> None:
    study = StudyConfig()
    found = [reliable_range(study, [study.models[model].at(c, s) for s in study.severities]) for c in study.categories]
    assert [r.last_reliable for r in found] == last
    assert [r.first_failing for r in found] == failing


def test_a_curve_that_starts_below_the_level_is_never_reliable() -> None:
    found = reliable_range(StudyConfig(severities=(2, 5)), [0.6, 0.9])
    assert (found.last_reliable, found.first_failing) == (None, 2)


def test_a_real_vote_is_better_than_the_row_that_bears_its_name(results: SimulationResults) -> None:
    votes = {vote.condition.category: vote.expected for vote in results.votes if vote.condition.severity == 4}
    assert [round(v, 3) for v in votes.values()] == [0.971, 0.970, 0.975, 0.956]


def test_a_vote_of_equal_members_is_the_row_itself() -> None:
    same = run_study(StudyConfig(correlation=1.0, tasks={}), seed=0)
    for vote in same.votes:
        row = same.find("ensemble", vote.condition.category, vote.condition.severity)
        assert vote.given == pytest.approx(row.given["accuracy"])


def test_the_sentences_that_cannot_hold_are_said(results: SimulationResults) -> None:
    verdicts = {claim.sentence: claim.holds for claim in claim_checks(results)}
    assert not verdicts["the ensemble has the best worst case in every category"]
    assert not verdicts["the ensemble is a majority vote of three models"]
    assert verdicts["the ensemble keeps tau above 0.93"]
    assert claim_checks(run_study(StudyConfig(severities=(0, 1), episodes=20), 0)) == []
