"""The committed study says what its committed trials say: every table is written again from them and compared."""

import csv
import re
from pathlib import Path

import pytest

from rewardlab.core.run import Run
from rewardlab.studies.perturbation_paper.commands import write_tables
from rewardlab.studies.perturbation_paper.measured import open_study

pytestmark = pytest.mark.slow
COMMITTED = Path(__file__).parents[3] / "results" / "robustness"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
WHOLE = re.compile(r"-?\d+")
LAST_DIGITS = 5e-3  # by which processors may differ: a recall at a threshold moves in steps


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_tables(open_study(Run(COMMITTED / "run")), folder)
    return folder


def test_every_table_is_written_again_from_the_committed_trials(again: Path) -> None:
    tables = [path.name for path in COMMITTED.glob("*.csv")] + ["table1.md", "claims.md"]
    assert {"every.csv", "table1.csv", "seen_unseen.csv", "relabelled.csv", "reliability.csv"} <= set(tables)
    for name in tables:
        ours, theirs = ((folder / name).read_text() for folder in (COMMITTED, again))
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs), name
        for pair in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            one, other = map(float, pair)
            counted = all(WHOLE.fullmatch(text) for text in pair)  # a 0 beside 1e-17 is a measured number
            assert one == (other if counted else pytest.approx(other, abs=LAST_DIGITS, rel=LAST_DIGITS)), name


def test_the_errors_on_the_page_are_those_of_the_tables() -> None:
    with (COMMITTED / "every.csv").open() as handle:
        rows = [row for row in csv.DictReader(handle) if row["metric"] == "micro_mae"]
    page = (COMMITTED / "README.md").read_text()
    told = re.findall(r"^\| (\S+), (visual|semantic|temporal|domain) \|((?: \d\.\d\d \|){5})$", page, re.MULTILINE)
    assert len(told) == 16
    names = {"vote": "ensemble:pocket-plain,pocket"}
    for model, category, numbers in told:
        expected = {
            row["severity"]: f"{float(row['value']):.2f}"
            for row in rows
            if (row["model"], row["category"]) == (names.get(model, model), category)
        }
        assert re.findall(r"\d\.\d\d", numbers) == [expected[severity] for severity in "01234"]
