"""SQL over trials reads trials and nothing else: no file, no address, no setting, no Python."""

import json
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.core.run import start_run
from rewardlab.core.trial import Trial
from tests.handmade_runs import record_of

duckdb = pytest.importorskip("duckdb")

SECRET = "what only its owner may read"
HOSTILE_TEXT = "'; COPY (SELECT 1) TO '{}'; --\x1b]0;title\x07[red]"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run whose every text means harm, beside a file that must not be read."""
    (tmp_path / "secret.csv").write_text(f"a\n{SECRET}\n")
    text = HOSTILE_TEXT.format(tmp_path / "stolen.csv")
    names: dict[str, Any] = {"id": "c1", "model": text, "episode": text, "video": "v", "subset": text, "task": text}
    changed: dict[str, Any] = {
        "perturbation": "clean",
        "category": "clean",
        "severity": 0,
        "seed": 0,
        "expectation": "same",
    }
    truth: dict[str, Any] = {"truth_level": 5, "truth_success": True, "truth_progress": None, "instruction": text}
    trial = Trial(**names, **changed, **truth, shown=(0,), frames_hash="h", status="scored", level=5.0, raw=text)
    run = start_run(tmp_path / "runs" / "one", record_of([trial], evaluated=[text]))
    run.append([trial])
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_blob('{secret}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
        "SELECT * FROM parquet_scan('{folder}/runs/one/trials/*.parquet')",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
        "SELECT getenv('HOME')",
        "SELECT * FROM entries",  # a local variable of ours
        "SELECT * FROM duckdb_secrets()",
        "COPY trials TO '{folder}/stolen.csv'",
        "EXPORT DATABASE '{folder}/stolen'",
        "ATTACH '{folder}/stolen.db'",
        "INSTALL httpfs",
        "LOAD '{secret}'",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CREATE TABLE t AS SELECT 1",
        "DELETE FROM trials",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY trials TO '{folder}/stolen.csv'",
        "EXPLAIN ANALYZE SELECT * FROM read_text('{secret}')",
        "",
        "SELEC",
    ],
)
def test_a_query_reaches_nothing_but_the_tables(sql: str, runs: Path) -> None:
    folder = runs.parent
    before = sorted(folder.rglob("*"))
    with pytest.raises(PlanError, match=r"the query cannot be answered|expected one SELECT") as told:
        rewardlab.runs_sql(sql.format(secret=folder / "secret.csv", folder=folder), runs)
    assert SECRET not in str(told.value) and sorted(folder.rglob("*")) == before


def test_texts_of_strangers_are_values_and_nothing_more(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rewardlab.cli import main

    (row,) = rewardlab.runs_sql("SELECT model, raw, instruction FROM trials", runs).to_pylist()
    assert set(row.values()) == {HOSTILE_TEXT.format(runs.parent / "stolen.csv")}
    assert not (runs.parent / "stolen.csv").exists()
    assert main(["runs", "sql", "SELECT model FROM trials", str(runs)]) == 0
    assert main(["runs", "list", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b]0" not in shown and "\x07" not in shown
    assert main(["runs", "list", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "open"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_date_that_python_lacks_is_one_sentence(
    more: tuple[str, ...], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "sql", "SELECT DATE '290000-01-01' AS day", str(runs), *more]) == 2
    assert "the result cannot be shown" in capsys.readouterr().err
