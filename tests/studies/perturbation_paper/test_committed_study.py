"""The committed study says what its committed trials say: every table is written again from them and compared."""

import csv
import re
from pathlib import Path
from runpy import run_path

import pytest

from rewardlab.core.run import Run
from rewardlab.studies.perturbation_paper.claims import paper_claims
from rewardlab.studies.perturbation_paper.commands import write_tables
from rewardlab.studies.perturbation_paper.measured import open_study

pytestmark = pytest.mark.slow
COMMITTED = Path(__file__).parents[3] / "results" / "robustness"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
WHOLE = re.compile(r"-?\d+")
PAIRED = "paired_losses.csv"  # which a script beside it writes
LAST_DIGITS = 5e-3  # by which processors may differ: a recall at a threshold moves in steps


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_tables(open_study(Run(COMMITTED / "run")), folder)
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
    tables = [path.name for path in COMMITTED.glob("*.csv") if path.name != PAIRED] + ["table1.md", "claims.md"]
    assert {"every.csv", "table1.csv", "seen_unseen.csv", "relabelled.csv", "reliability.csv"} <= set(tables)
    for name in tables:
        same_numbers(COMMITTED / name, again / name)


def test_claims_on_reliability_are_decided_by_the_bounds_of_the_reliability_table(again: Path) -> None:
    rows = csv.DictReader((again / "reliability.csv").read_text(encoding="utf-8").splitlines())
    certified = {(r["plays"], r["category"]): r["certified"] for r in rows if r["level"] == "0.7"}
    questions = {claim.sentence: claim.questions for claim in paper_claims(open_study(Run(COMMITTED / "run")))}
    tuned = questions["the tuned model is reliable up to severity 3-5"]
    assert {certified["tuned", category] for category in ("visual", "semantic", "temporal", "domain")} == {"4"}
    assert {question.answer() for question in tuned} == {"yes"}
    general = questions["the general model is unreliable from severity 1 on in every category"]
    assert "no" not in {question.answer() for question in general}  # it is certified nowhere


def test_paired_losses_are_computed_again_from_the_committed_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = run_path(str(COMMITTED / "paired_losses.py"))
    monkeypatch.setitem(script["main"].__globals__, "OUT", tmp_path / PAIRED)
    script["main"]()
    same_numbers(COMMITTED / PAIRED, tmp_path / PAIRED)
