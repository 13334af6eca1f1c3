"""Damage to a run is seen: flipped bits, parts of other runs, missing columns, edited numbers, left-over files."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rewardlab.api import bench_plan, stress_plan
from rewardlab.cli import main
from rewardlab.core.errors import RunError
from rewardlab.core.records import checksummed
from rewardlab.core.run import Run
from rewardlab.core.run_files import encode_part, part_name
from rewardlab.core.storage import locked
from rewardlab.core.summary import Summary
from rewardlab.evaluation.bench import BenchmarkErrors, run_benchmark
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.summary import load_summary
from tests.attack.bit_flips import flip_bits, shown_by_report
from tests.narrowing import known


def stressed(data: Path, out: Path) -> Run:
    settings = {"models": ("constant",), "data": str(data), "out": out, "engine": "local"}
    changes = {"perturbations": ("resolution", "polite_filler"), "severities": (2, 4)}
    return evaluate(stress_plan(settings | changes))


@pytest.fixture(scope="module")
def original(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stressed(tiny_data, tmp_path_factory.mktemp("sound") / "run").folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Run:
    """A copy that may be damaged."""
    return Run(Path(shutil.copytree(original, tmp_path / "run")))


@pytest.fixture(scope="module")
def benchmark(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"models": ("constant",), "data": str(tiny_data), "out": tmp_path_factory.mktemp("bench") / "run"}
    return run_benchmark(bench_plan(settings | {"engine": "local"}), duplicates=True, against=None).folder


@pytest.mark.slow
def test_no_flipped_bit_of_a_stress_test_changes_what_is_shown(run: Run) -> None:
    found = flip_bits(run.folder, count=60, seed=1)
    assert (found.changed, found.raised) == (0, 0), found
    assert found.refused > 50


@pytest.mark.slow
def test_no_flipped_bit_of_a_benchmark_changes_what_is_shown(benchmark: Path) -> None:
    found = flip_bits(benchmark, count=20, seed=2)
    assert (found.changed, found.raised) == (0, 0), found


def test_a_damaged_part_is_named_with_what_to_do_and_is_scored_anew(run: Run, tiny_data: Path) -> None:
    before = run.trials().arrow.drop_columns(["seconds"])
    (part,) = run.parts()
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(RunError, match=rf"{part.name}: its content does not have the checksum.*remove that part and"):
        run.trials()
    part.unlink()
    again = stressed(tiny_data, run.folder)
    assert again.trials().arrow.drop_columns(["seconds"]).equals(before)


def test_a_part_of_another_run_is_refused_by_name(run: Run, benchmark: Path) -> None:
    (foreign,) = Run(benchmark).parts()
    shutil.copy(foreign, run.folder / "trials" / foreign.name)
    with pytest.raises(RunError, match=f"{foreign.name}: it belongs to a run with another plan"):
        run.trials()


def rewritten(run: Run, change: Callable[[pa.Table], pa.Table]) -> None:
    """Edit the trials of a run as somebody who makes every checksum fit."""
    (part,) = run.parts()
    data = encode_part(change(pq.read_table(part)), run.record.plan_digest)
    part.unlink()
    (run.folder / "trials" / part_name("all", data)).write_bytes(data)


def with_value(column: str, value: object, row: int = 3) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        field = table.schema.field(column)
        return table.set_column(table.column_names.index(column), field, pa.array(values, field.type))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_value("model", "best"), "row 3: model must be a model of the plan, got 'best'"),
        (with_value("perturbation", "fog"), "perturbation must be a perturbation of the plan, got 'fog'"),
        (with_value("category", "luck"), "category must be a category, got 'luck'"),
        (with_value("severity", 3), "severity must be a severity of the plan, got '3'"),
        (with_value("seed", 7), "seed must be 0, as in the plan, got '7'"),
        (with_value("status", "won"), "status must be scored, failed or dropped, got 'won'"),
        (with_value("expectation", "joy"), "expectation must be a known expectation, got 'joy'"),
        (with_value("level", None), "level must be present if and only if the trial is scored"),
        (with_value("level", 5.5), "level must be from 1 to 5, got '5.5'"),
        (with_value("level", float("nan")), "level must be from 1 to 5, got 'nan'"),
        (with_value("truth_level", 9), "truth_level must be from 1 to 5, got '9'"),
        (with_value("probabilities", [0.5, 0.5]), "probabilities must be five numbers"),
        (with_value("probabilities", [0.5, 0.5, 0, 0, -1.0]), "probabilities must be numbers from 0 to 1"),
        (with_value("progress", [0.1, float("inf")]), "progress must be finite numbers"),
        (with_value("shown", [-1]), "shown must be indices of frames"),
        (with_value("seconds", -1.0), "seconds must be 0 or more"),
        (with_value("id", None), "id must be present"),
        (lambda table: pa.concat_tables([table, table]), "trials, but the plan has 210"),
        (lambda table: table.drop_columns(["truth_level"]), "'truth_level' is missing, not int8"),
        (lambda table: table.append_column("luck", table["level"]), "'luck' is double, not a column"),
        (
            lambda table: table.set_column(
                table.column_names.index("level"), "level", table["level"].cast(pa.float32())
            ),
            "'level' is float, not double",
        ),
    ],
)
def test_trials_that_the_plan_cannot_have_made_are_refused_by_row(
    run: Run, change: Callable[[pa.Table], pa.Table], words: str
) -> None:
    rewritten(run, change)
    with pytest.raises(RunError) as caught:
        run.trials()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_clean_trial_is_of_severity_0_and_of_no_category(run: Run) -> None:
    clean = pc.index(run.trials().arrow["perturbation"], "clean").as_py()
    rewritten(run, with_value("severity", 2, clean))
    with pytest.raises(RunError, match="severity must be 0 if and only if the episode is clean, got '2'"):
        run.trials()


def test_numbers_of_edited_trials_are_refused_though_every_checksum_fits(run: Run) -> None:
    """The stored summary was made of other trials, and what is shown is what the trials now say."""
    assert load_summary(run).clean("constant", "micro_mae").value == run.summary.clean("constant", "micro_mae").value
    rewritten(run, with_value("level", 1.0, row=0))
    with pytest.raises(RunError, match=r"summary\.json was made of other trials"):
        _ = run.summary


@pytest.mark.parametrize("name", ["bench.json", "duplicates.json", "summary.json"])
def test_a_forged_result_is_refused_though_its_checksum_fits(benchmark: Path, tmp_path: Path, name: str) -> None:
    run = Run(Path(shutil.copytree(benchmark, tmp_path / "run")))
    content = known(run.stored(name))
    numbers = {
        "bench.json": lambda: content["models"]["constant"]["strict"]["macro"],
        "duplicates.json": lambda: content["mae"]["constant"]["strict"],
        "summary.json": lambda: content["measurements"][0],
    }[name]()
    numbers["with" if "with" in numbers else "value"] = 0.001
    run.save(name, content)
    with pytest.raises(RunError, match=rf"{name} does not match the trials"):
        shown_by_report(run.folder)


def test_a_script_that_reads_the_files_by_itself_finds_checksums_no_obstacle(benchmark: Path) -> None:
    assert Summary.from_json(json.loads((benchmark / "summary.json").read_text())) == Run(benchmark).summary
    assert BenchmarkErrors.from_json(json.loads((benchmark / "bench.json").read_text())).models["constant"].strict


def test_an_edited_record_is_refused_and_a_checksum_that_fits_does_not_adopt_the_trials(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((run.folder / "run.json").read_text())
    content["plan"]["accuracy_threshold"] = 0.1
    (run.folder / "run.json").write_text(json.dumps(content))
    assert main(["report", str(run.folder)]) == 2
    assert "run.json is no record of a run: its content does not have the checksum" in capsys.readouterr().err
    del content["sha256"]
    (run.folder / "run.json").write_text(json.dumps(checksummed(content)))
    assert main(["report", str(run.folder)]) == 2
    assert "it belongs to a run with another plan" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "summary.json", "trials"])
def test_files_without_a_checksum_are_refused(run: Run, name: str) -> None:
    if name == "trials":
        (part,) = run.parts()
        part.rename(part.with_name("all.parquet"))
    else:
        content = json.loads((run.folder / name).read_text())
        content.pop("sha256")
        (run.folder / name).write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"has no checksum, so this (version|run) did not write it"):
        load_summary(run)


def test_a_part_that_would_fill_the_memory_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 1_000_000  # once in the file, a hundred times in memory
    fill = lambda table: table.set_column(
        table.column_names.index("raw"), "raw", pa.array([long] * table.num_rows, pa.string())
    )
    rewritten(run, fill)
    assert run.parts()[0].stat().st_size < 100_000
    monkeypatch.setenv("REWARDLAB_MAX_TRIALS_MB", "20")
    with pytest.raises(RunError, match="MB of trials in memory, at most 20 are taken in; set REWARDLAB_MAX_TRIALS_MB"):
        run.trials()


def test_files_that_dead_processes_left_half_written_are_swept_and_no_others(run: Run) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    swept = [run.folder / f".summary.json.{dead.pid}.tmp", run.folder / "trials" / f".part-0.parquet.{dead.pid}.tmp"]
    kept = [run.folder / f".summary.json.{os.getpid()}.tmp", run.folder / ".mine.tmp", run.folder / "notes.1.tmp"]
    for path in (*swept, *kept):
        path.write_text("half")
    with locked(run.folder):
        assert [path.exists() for path in swept] == [False, False]
    assert all(path.exists() for path in kept)
