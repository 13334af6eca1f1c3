"""Trials as columns: texts that repeat are held once and come out as they were; views share what they do not change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardlab.core.errors import RunError
from rewardlab.core.run import Run, start_run
from rewardlab.core.run_files import check_trials, part_name, run_record
from rewardlab.core.trial_table import (
    INFO_COLUMNS,
    METRIC_COLUMNS,
    TRIAL_COLUMNS,
    TrialTable,
    join_parts,
    to_arrow,
    trial_schema,
    trials_digest,
)
from rewardlab.metrics.progress import order_correlations
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import ONE

TRIALS = [
    replace(
        ONE,
        id=f"{place:03}",
        model="ab"[place % 2],
        episode=f"episode {place % 7}",
        status="scored" if place % 5 else "failed",
        level=3.0 if place % 5 else None,
        reason=None if place % 5 else "no answer",
        raw=f"answer {place}",
        progress=(0.1, 0.2, place / 50),
        shown=(0, 4, 8),
    )
    for place in range(50)
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run in three parts, in which neither trials nor names are in order."""
    run = start_run(tmp_path / "run", record_of(TRIALS))
    for start in (2, 0, 1):
        run.append(TRIALS[start::3][::-1])
    return run


def test_every_column_comes_out_as_plain_text_and_numbers(run: Run) -> None:
    assert run.trials().arrow.schema.equals(trial_schema())
    assert run.trials().arrow.equals(to_arrow(TRIALS))
    assert pa.table(run.trials()).equals(to_arrow(TRIALS))  # as other libraries of Arrow read it
    assert run.trials().rows() == TRIALS
    assert run.trials().text("reason").tolist() == [trial.reason for trial in TRIALS]


def test_codes_follow_the_order_of_the_trials_not_of_the_parts(run: Run) -> None:
    codes, names = run.trials().codes("episode")
    assert names == [f"episode {place}" for place in range(7)]
    assert codes.tolist() == [place % 7 for place in range(50)]
    reasons, texts = run.trials().codes("reason")
    assert texts == ["no answer"]
    assert reasons.tolist() == [-1 if place % 5 else 0 for place in range(50)]


def test_only_the_columns_asked_for_are_kept(run: Run) -> None:
    assert run.trials(("id", "status")).source.column_names == ["id", "status"]
    with pytest.raises(KeyError, match="raw"):
        run.trials(METRIC_COLUMNS).rows()
    assert set(TRIAL_COLUMNS) - set(METRIC_COLUMNS) == {"raw", "traceback", *INFO_COLUMNS} - {"abstained"}


def test_a_cell_asked_again_is_there_once_whichever_part_comes_first() -> None:
    failed = to_arrow([replace(TRIALS[1], status="failed", level=None), TRIALS[2]])
    scored = to_arrow([TRIALS[0], TRIALS[1]])
    for parts in ([failed, scored], [scored, failed]):
        assert TrialTable(join_parts(parts)).rows() == TRIALS[:3]


def test_a_column_can_be_added_to_a_view(run: Run) -> None:
    view = run.trials().take(np.array([7, 3]))
    more = view.with_column("cluster", np.array([5, 6]))
    assert more.number("cluster").tolist() == [5, 6]
    assert more.text("id").tolist() == ["007", "003"]
    twice = view.take(np.array([0, 0, 1])).with_column("cluster", np.array([1, 2, 3]))
    assert twice.number("cluster").tolist() == [1, 2, 3]
    assert twice.text("id").tolist() == ["007", "007", "003"]


def test_numbers_per_frame_do_not_depend_on_the_blocks_they_are_computed_in() -> None:
    progress = np.random.Generator(np.random.SFC64(0)).random((70_000, 16))
    lists = pa.ListArray.from_arrays(np.arange(0, 70_001 * 16, 16, dtype=np.int32), progress.ravel())
    whole = order_correlations(TrialTable(pa.table({"progress": lists})))
    parts = [order_correlations(TrialTable(pa.table({"progress": lists[a:b]}))) for a, b in ((0, 1), (1, 70_000))]
    assert np.array_equal(whole, np.concatenate(parts))


def test_a_bad_number_in_a_list_is_named_by_its_row_however_far_down() -> None:
    many = pa.concat_tables([to_arrow(TRIALS)] * 1000)
    bad = to_arrow([replace(TRIALS[1], shown=(0, -4, 8))])
    plan = run_record(record_of(TRIALS)).plan
    check_trials(many, plan)
    with pytest.raises(ValueError, match="row 50000: shown must be indices of frames"):
        check_trials(pa.concat_tables([many, bad, many]).combine_chunks(), plan)


def test_a_table_of_trials_is_one_of_pandas_and_of_polars(run: Run) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame, other = run.trials().to_pandas(), polars.DataFrame(run.trials())
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == list(TRIAL_COLUMNS) == other.columns
    assert frame["id"].tolist() == other["id"].to_list() == [trial.id for trial in TRIALS]


def test_a_traceback_is_kept_but_is_no_result() -> None:
    traced = [replace(trial, traceback=f"line {place}") for place, trial in enumerate(TRIALS)]
    assert TrialTable(to_arrow(traced)).rows() == traced
    assert trials_digest(TrialTable(to_arrow(traced))) == trials_digest(TrialTable(to_arrow(TRIALS)))


def test_trials_of_another_schema_are_refused_and_files_without_one_are_of_the_first(run: Run) -> None:
    (part, *others) = run.parts()
    for other in others:
        other.unlink()
    table = pq.read_table(part)
    plan = table.schema.metadata[b"rewardlab.plan"]
    assert table.schema.metadata[b"rewardlab.trial_schema"] == b"1"
    part.unlink()
    for version, refused in ((None, False), (b"2", True)):
        metadata = {b"rewardlab.plan": plan} | ({} if version is None else {b"rewardlab.trial_schema": version})
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(metadata), sink, write_page_checksum=True)
        data = bytes(sink.getvalue())
        path = run.folder / "trials" / part_name("part", data)
        path.write_bytes(data)
        if refused:
            with pytest.raises(RunError, match="schema 2, and this version reads 1; upgrade rewardlab"):
                run.trials()
        else:
            assert len(run.trials()) == table.num_rows
        path.unlink()


def test_a_run_says_in_one_line_what_it_is(run: Run, tmp_path: Path) -> None:
    assert repr(run) == f"Run({str(run.folder)!r}: stress of {', '.join(run.record.evaluated)}, 50 of 50 trials)"
    assert "is not a run folder" in repr(Run(tmp_path / "none")) and "\n" not in repr(run.trials())
