import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from rewardlab.core.errors import RunError
from rewardlab.core.run import Run, start_run
from rewardlab.core.storage import append_to_journal, is_locked, locked, read_journal
from rewardlab.core.trial import ScoreInfo, Trial
from rewardlab.core.trial_table import to_arrow
from tests.handmade_runs import record_of


def trial(name: str, level: float | None = 3.0, status: Literal["scored", "failed", "dropped"] = "scored") -> Trial:
    return Trial(
        id=name, model="m", episode="e", video="v", subset="s", task="t", perturbation="clean", category="clean",
        severity=0, seed=0, expectation="same", truth_level=4, truth_success=False, truth_progress=None,
        instruction="do it", shown=(0, 5), frames_hash="f", status=status, level=level,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start_run(tmp_path / "run", record_of([trial("a"), trial("b")]))


def test_what_is_appended_can_be_read_back(run: Run) -> None:
    run.append([trial("b"), trial("a", None, "failed")])
    rows = run.trials().rows()
    assert [row.id for row in rows] == ["a", "b"]
    assert rows[1] == trial("b")


def test_a_retried_cell_counts_once_and_its_score_wins(run: Run) -> None:
    run.append([trial("a", None, "failed")])
    run.append([trial("a"), trial("b")])
    assert [(row.id, row.status) for row in run.trials().rows()] == [("a", "scored"), ("b", "scored")]


def test_of_a_cell_that_failed_again_the_newest_reason_is_kept_when_parts_are_joined(tmp_path: Path) -> None:
    cells = [trial(f"{number:03}", None, "failed") for number in range(20)]
    run = start_run(tmp_path / "run", record_of(cells))
    run.append([replace(each, reason="old") for each in cells])
    run.compact()
    for each in cells:
        run.append([replace(each, reason="new")])
        run.join_small_parts()
    assert {row.reason for row in run.trials().rows()} == {"new"}
    run.compact()
    assert {row.reason for row in run.trials().rows()} == {"new"}


def test_compacting_changes_the_files_and_not_the_trials(run: Run) -> None:
    run.append([trial("b")])
    run.append([trial("a")])
    before = run.trials().rows()
    run.compact()
    assert len(run.parts()) == 1
    assert run.trials().rows() == before


def test_a_run_of_many_parts_has_few_files_and_every_trial(tmp_path: Path) -> None:
    trials = [trial(f"{number:03}") for number in range(60)]
    run = start_run(tmp_path / "many", record_of(trials))
    for each in trials:
        run.append([each])
        run.join_small_parts()
    assert len(run.parts()) <= 9
    assert run.trials().rows() == trials


def test_a_part_of_more_trials_than_a_row_group_can_be_read_back(tmp_path: Path) -> None:
    count = 100_001
    few = [replace(trial("a"), info=ScoreInfo(member_levels={name: 3.0})) for name in ("one", "two")]
    drawn = np.arange(count) * 2 // count  # each row group meets another name first
    table = to_arrow(few).take(drawn)
    table = table.set_column(0, "id", pa.array([f"{number:06}" for number in range(count)]))
    run = start_run(tmp_path / "run", record_of(few, trials=count))
    run.append_table(table)
    trials = run.trials()
    assert len(trials) == count
    assert [row.info.member_levels for row in trials.where(np.isin(np.arange(count), [0, count - 1])).rows()] == [
        {"one": 3.0},
        {"two": 3.0},
    ]


def test_a_folder_with_another_plan_is_refused(run: Run) -> None:
    planned = record_of([trial("a"), trial("b")])
    assert start_run(run.folder, planned) == run
    with pytest.raises(RunError, match="other settings"):
        start_run(run.folder, planned | {"plan": planned["plan"] | {"seed": 1}})


def test_a_folder_without_a_record_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no run\.json"):
        _ = Run(tmp_path).record


def test_a_damaged_part_is_named(run: Run) -> None:
    run.append([trial("a")])
    run.parts()[0].write_bytes(b"PAR1 not really")
    with pytest.raises(RunError, match="remove that part and run the same command again"):
        run.trials()


def test_a_full_disk_is_one_sentence() -> None:
    full = Run(Path("/dev/full/run"))
    with pytest.raises(RunError, match="cannot write /dev/full"):
        full.save("x.json", {})


def test_a_torn_line_of_a_journal_is_passed_over_and_what_follows_it_is_not(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    assert list(read_journal(journal, ("name",))) == []
    entries: list[dict[str, Any]] = [{"name": "a\u2028b"}, {"name": "é", "rows": [1, {}]}]
    append_to_journal(journal, entries[0])
    journal.write_bytes(journal.read_bytes() + '{"name": "é'.encode()[:-1])
    append_to_journal(journal, entries[1], durable=False)
    append_to_journal(journal, {"other": 1})
    assert list(read_journal(journal, ("name",))) == entries


LOCK = (
    "import sys; from pathlib import Path; from rewardlab.core.storage import locked\n"
    "with locked(Path(sys.argv[1])): print('held', flush=True), sys.stdin.read()"
)


def test_who_asks_whether_a_folder_is_held_takes_and_breaks_no_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path) and list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        assert is_locked(tmp_path)
        other = subprocess.run([sys.executable, "-c", LOCK, str(tmp_path)], capture_output=True, text=True, input="")
        assert "is being written by another process" in other.stderr
    assert not is_locked(tmp_path)
    with subprocess.Popen([sys.executable, "-c", LOCK, str(tmp_path)], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert is_locked(tmp_path)
        process.kill()
    assert not is_locked(tmp_path)
