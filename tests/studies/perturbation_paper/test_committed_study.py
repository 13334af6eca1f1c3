"""The committed study says what its committed trials say: every table is written again from them and compared."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rewardlab.core.run import Run
from rewardlab.studies.perturbation_paper.claims import paper_claims
from rewardlab.studies.perturbation_paper.commands import write_tables
from rewardlab.studies.perturbation_paper.measured import MeasuredStudy, open_study
from rewardlab.studies.perturbation_paper.paper import CATEGORIES

pytestmark = pytest.mark.slow
COMMITTED = Path(__file__).parents[3] / "results" / "robustness"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
WHOLE = re.compile(r"-?\d+")
ARMS = ("general", "tuned", "ensemble", "pair", "trained-plain", "trained-perturbed")
LAST_DIGITS = 5e-3  # by which processors may differ: a recall at a threshold moves in steps


@pytest.fixture(scope="module")
def study() -> MeasuredStudy:
    return open_study(Run(COMMITTED / "run"), {arm: [f"{arm}-{seed}" for seed in range(3)] for arm in ARMS}, fold=0)


@pytest.fixture(scope="module")
def again(study: MeasuredStudy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_tables(study, folder)
    return folder


def same_numbers(committed: Path, again: Path) -> None:
    """Assert that two files say the same, with numbers that differ by the last digits at most."""
    ours, theirs = (path.read_text() for path in (committed, again))
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs), committed.name
    for pair in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
        one, other = map(float, pair)
        counted = all(WHOLE.fullmatch(text) for text in pair)  # a 0 beside 1e-17 is a measured number
        expected = other if counted else pytest.approx(other, abs=LAST_DIGITS, rel=LAST_DIGITS)
        assert one == expected, committed.name


def test_every_table_is_written_again_from_the_committed_trials(again: Path) -> None:
    tables = [path.name for path in COMMITTED.glob("*.csv")] + ["table1.md", "claims.md"]
    assert {"strata.csv", "contrasts.csv", "perturbations.csv", "reliability.csv"} <= set(tables)
    for name in tables:
        same_numbers(COMMITTED / name, again / name)


def test_claims_on_reliability_are_decided_by_the_bounds_of_the_reliability_table(
    study: MeasuredStudy, again: Path
) -> None:
    rows = csv.DictReader((again / "reliability.csv").read_text(encoding="utf-8").splitlines())
    certified = {(r["plays"], r["category"]): r["certified"] for r in rows if r["level"] == "0.7"}
    questions = {claim.sentence: claim.questions for claim in paper_claims(study)}
    sure = questions["the ensemble is reliable up to severity 4-5"]
    assert {certified["ensemble", category] for category in CATEGORIES} == {"4"}
    assert {question.answer() for question in sure} == {"yes"}
    tuned = questions["the tuned model is reliable up to severity 3-5"]
    assert certified["tuned", "semantic"] == "0" and {question.answer() for question in tuned} == {"yes", "open"}


def test_what_a_general_model_loses_that_is_no_better_than_a_constant_cannot_be_said(study: MeasuredStudy) -> None:
    claims = {claim.sentence: claim for claim in paper_claims(study)}
    lost = claims["under visual change the general model loses 11.8 points (12.7 %)"]
    assert lost.verdict == "inconclusive" and "balanced accuracy between 0.50 and 0.50" in lost.undecidable
    assert replace(lost, undecidable="").verdict == "contradicted"
    assert not claims["the ensemble's worst case is above 83 %"].undecidable
