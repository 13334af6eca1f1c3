"""The leaderboard: no ranking across data or protocols, nor of models that answered little; ranks with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rewardlab.core.records import TRIALS_DIGEST
from rewardlab.core.run import Run, start_run
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import trials_digest
from rewardlab.evaluation.bench import BENCH, benchmark_errors
from rewardlab.evaluation.roborewardbench import EPISODES, SUBSETS
from rewardlab.evaluation.summary import load_summary
from rewardlab.reporting.leaderboard import (
    HELM,
    LeaderboardTable,
    entries_of,
    leaderboard,
    leaderboard_tables,
    rank_intervals,
)
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import table, trial

Judge = Callable[[int, int], float | None]  # from the number and the true level of an episode to the level it says


def run_of(folder: Path, judges: dict[str, Judge], episodes: int, data: str, subsets: Sequence[str] = ("a",)) -> Run:
    """Return a benchmark run of these judges on made-up episodes; None is a refusal."""
    trials = []
    for model, judge in judges.items():
        for number in range(episodes):
            truth = 1 + number % 5
            said = judge(number, truth)
            one = replace(
                trial(said, truth, model=model, subset=subsets[number % len(subsets)], task=f"task {number}"),
                id=f"{model} {number}", episode=str(number), video=str(number),
            )  # fmt: skip
            trials.append(one if said is not None else replace(one, status="failed", reason="it refused"))
    return benchmark(folder, trials, data)


def benchmark(folder: Path, trials: Sequence[Trial], data: str) -> Run:
    judged = list(dict.fromkeys(one.model for one in trials))
    record = record_of(trials, evaluated=judged, kind="bench")
    record["plan"]["data_digest"] = record["settings"]["data"] = data
    run = start_run(folder, record)
    run.append(trials)
    run.save(BENCH, benchmark_errors(run, judged).to_json() | {TRIALS_DIGEST: trials_digest(run.trials())})
    return run


def tables_of(*runs: Run) -> list[LeaderboardTable]:
    return leaderboard_tables([entry for run in runs for entry in entries_of(run, load_summary(run), "page.html")])


def right(_number: int, truth: int) -> float:
    return float(truth)


def off_by_one(_number: int, truth: int) -> float:
    return float(truth - 1 if truth > 1 else 2)


def test_three_runs_of_different_data_have_no_common_ranking(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / name, {f"judge of {name}": right}, 20, name) for name in ("easy", "hard", "other")]
    tables = tables_of(*runs)
    assert [[row.rank for row in found.ranked] for found in tables] == [[1], [1], [1]]
    html = leaderboard(runs, out=tmp_path / "site").read_text()
    assert html.count('<table class="board">') == 3
    assert "RoboReward 8B" not in html


def test_runs_of_the_same_data_share_a_table(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", {"right": right}, 20, "same")
    two = run_of(tmp_path / "two", {"off": off_by_one}, 20, "same")
    (found,) = tables_of(two, one)
    assert [(row.model, row.rank) for row in found.ranked] == [("right", 1), ("off", 2)]


def test_a_model_that_refuses_nearly_everything_is_listed_and_not_ranked(tmp_path: Path) -> None:
    def refusing(number: int, truth: int) -> float | None:
        return float(truth) if number < 3 else None

    (found,) = tables_of(run_of(tmp_path / "run", {"refuses 97 %": refusing, "off": off_by_one}, 100, "data"))
    assert [row.model for row in found.ranked] == ["off"]
    assert [(row.model, row.rank, row.mae.value) for row in found.listed] == [("refuses 97 %", None, 0.0)]
    assert (found.listed[0].mae.scored, found.listed[0].mae.asked) == (3, 100)


@pytest.mark.slow
@pytest.mark.parametrize(("episodes", "published"), [(EPISODES, True), (EPISODES - 1, False)])
def test_published_rows_stand_only_beside_roborewardbench_itself(
    tmp_path: Path, episodes: int, published: bool
) -> None:
    run = run_of(tmp_path / "run", {"off": off_by_one}, episodes, "test", tuple(SUBSETS))
    (found,) = tables_of(run)
    assert found.protocol == HELM and found.published is published
    assert [row.model for row in found.ranked].count("RoboReward 8B") == published
    mine = next(row for row in found.ranked if not row.published)
    assert mine.robo_arena is not None and mine.oxe is not None and mine.oxe.low is not None
    if published:
        first = found.ranked[0]
        assert (first.model, first.mae.value, len(first.subsets)) == ("RoboReward 8B", 0.665, 23)
        assert first.oxe is not None and first.oxe.value == pytest.approx(0.660, abs=5e-4)


def test_rank_intervals_are_paired_and_open_where_models_are_alike() -> None:
    rng = rng_for(0, "alike")
    noise = rng.integers(0, 2, (2, 60))
    rows = [
        [trial(float(3 + noise[which][i]), 3, task=str(i), episode=str(i)) for i in range(60)] for which in range(2)
    ]
    best = [trial(3.0, 3, task=str(i), episode=str(i)) for i in range(60)]
    found = rank_intervals([table(best), *map(table, rows)], draws=400)
    assert [(each.low, each.high) for each in found if each] == [(1, 1), (2, 3), (2, 3)]
    assert rank_intervals([table(best)], draws=10) == [None]
