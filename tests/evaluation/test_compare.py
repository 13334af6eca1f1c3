"""Two models compared on the same trials, and the result in words."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rewardlab.core.errors import RunError
from rewardlab.core.run import Run
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import to_arrow
from rewardlab.evaluation.compare import Comparison, PairedTest, compare_runs, finding
from rewardlab.reporting.command_text import verdict, write_comparison
from tests.evaluation.test_summary import EPISODES, TASKS, run_of, some_trials


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(to_arrow(some_trials()), tmp_path_factory.mktemp("compare") / "run", ["judge"])


def found(comparison: Comparison, group: str, metric: str) -> PairedTest:
    return next(c for c in comparison.tests if (c.group, c.metric) == (group, metric))


def of(model: str, trials: list[Trial], folder: Path) -> Run:
    return run_of(to_arrow([t for t in trials if t.model == model]), folder, [model])


def test_a_better_model_is_said_to_be_better_with_how_much_and_on_what(run: Run) -> None:
    comparison = compare_runs(run, run, "judge", "random")
    assert {c.group for c in comparison.tests} == {"clean", "visual", "temporal", "overall"}
    assert len(comparison.tests) == 4 * 4  # MAE, success accuracy, success AUC and tau-b
    for group, where in (("clean", "on clean episodes"), ("temporal", "under temporal change"), ("overall", "overall")):
        words = finding(comparison, found(comparison, group, "micro_mae"))
        pattern = rf"judge is better than random {where}: micro MAE lower by (\S+) \[(\S+), (\S+)\], "
        match = re.match(pattern + rf"p < 0.001 \(Holm\), {EPISODES} episodes in {TASKS} tasks", words)
        assert match, words
        size, low, high = map(float, match.groups())
        assert 0 < low < size < high


def test_the_order_of_the_models_only_turns_the_signs(run: Run) -> None:
    ahead, behind = compare_runs(run, run, "judge", "random"), compare_runs(run, run, "random", "judge")
    for a, b in zip(ahead.tests, behind.tests, strict=True):
        assert (a.paired.difference, a.paired.low, a.paired.high) == pytest.approx(
            (-b.paired.difference, -b.paired.high, -b.paired.low)
        )
        assert a.paired.p == pytest.approx(b.paired.p)
        assert finding(ahead, a).split(":")[0] == finding(behind, b).split(":")[0] or a.better is None


def test_higher_is_better_for_accuracy_and_lower_for_error(run: Run) -> None:
    comparison = compare_runs(run, run, "judge", "random")
    assert found(comparison, "overall", "success_accuracy").paired.difference > 0
    assert found(comparison, "overall", "micro_mae").paired.difference < 0
    assert {c.better for c in comparison.tests if c.group == "overall"} == {"a"}
    assert "success accuracy higher by" in finding(comparison, found(comparison, "overall", "success_accuracy"))


def test_a_large_difference_has_a_small_p_value_however_few_the_draws(run: Run) -> None:
    few, many = (compare_runs(run, run, "judge", "constant", draws=draws) for draws in (100, 2000))
    for comparison in (few, many):
        test = found(comparison, "overall", "micro_mae")
        assert test.p_holm < 0.001 and ", p < 0.001 (Holm)" in finding(comparison, test)
    twins = compare_runs(run, run, "judge", "judge", draws=100)
    assert "p = 1 (Holm)" in finding(twins, twins.tests[0])


def test_holm_covers_the_whole_family_and_mcnemar_only_clean_successes(run: Run) -> None:
    comparison = compare_runs(run, run, "judge", "constant", draws=500)
    assert all(c.p_holm >= c.paired.p for c in comparison.tests if c.paired.p == c.paired.p)
    exact = [c for c in comparison.tests if c.mcnemar == c.mcnemar]
    assert [(c.group, c.metric) for c in exact] == [("clean", "success_accuracy")]
    assert exact[0].mcnemar < 0.001


def test_no_difference_is_claimed_between_a_model_and_itself(run: Run, tmp_path: Path) -> None:
    twin = of("judge", some_trials(), tmp_path / "twin")
    comparison = compare_runs(run, twin, "judge", "judge", draws=300)
    assert (comparison.model_a, comparison.model_b) == ("judge (run)", "judge (twin)")
    for test in comparison.tests:
        assert test.paired.difference == 0 and test.better is None
        assert finding(comparison, test).startswith("no difference can be claimed between judge (run) and")


def test_tau_of_a_constant_model_cannot_be_compared(run: Run) -> None:
    comparison = compare_runs(run, run, "judge", "constant", draws=100)
    words = finding(comparison, found(comparison, "clean", "kendall_tau_b"))
    assert words.startswith("tau-b cannot be compared between judge and constant on clean episodes")


def test_only_cells_that_both_scored_on_the_same_question_are_compared(run: Run, tmp_path: Path) -> None:
    trials = [t for t in some_trials() if t.model == "random"]
    trials[0] = replace(trials[0], status="failed", level=None)
    trials[9] = replace(trials[9], truth_level=2 if trials[9].truth_level != 2 else 3)
    trials[18] = replace(trials[18], frames_hash="other")
    trials[27] = replace(trials[27], instruction="another one")
    other = of("random", trials, tmp_path / "other")
    comparison = compare_runs(run, other, "judge", "random", draws=100)
    assert found(comparison, "clean", "micro_mae").paired.trials == EPISODES - 3
    assert comparison.notes == (
        "1 trials are left out: their instruction differs between the runs",
        "1 trials are left out: their truth differs between the runs",
        "in 1 trials the two models were not shown the same frames",
    )


def test_another_seed_shares_only_the_clean_cells(run: Run, tmp_path: Path) -> None:
    other = of("random", [replace(t, seed=1) for t in some_trials()], tmp_path / "other")
    assert {c.group for c in compare_runs(run, other, "judge", "random", draws=100).tests} == {"clean"}


def test_trials_of_one_group_are_tested_once(tmp_path: Path) -> None:
    clean = [t for t in some_trials() if t.category == "clean"]
    only = run_of(to_arrow(clean), tmp_path / "only", ["judge"])
    comparison = compare_runs(only, only, "judge", "random", draws=1000)
    assert [c.group for c in comparison.tests] == ["clean"] * 4
    assert min(c.p_holm for c in comparison.tests) == pytest.approx(4 * min(c.paired.p for c in comparison.tests))
    assert "overall" not in verdict(comparison) and "judge is better than random in" in verdict(comparison)


def test_a_difference_without_an_interval_is_told_without_one(tmp_path: Path) -> None:
    one = run_of(to_arrow([t for t in some_trials() if t.task == "t1"]), tmp_path / "one", ["judge"])
    comparison = compare_runs(one, one, "judge", "random", draws=100)
    assert "[" not in finding(comparison, comparison.tests[0])
    for name in ("told.md", "told.json"):
        assert "nan" not in write_comparison(comparison, tmp_path / name).read_text(encoding="utf-8")


def test_few_tasks_are_said_to_be_few(tmp_path: Path) -> None:
    few = run_of(to_arrow([t for t in some_trials() if t.task in ("t1", "t2", "t3")]), tmp_path / "few", ["judge"])
    comparison = compare_runs(few, few, "judge", "random", draws=500)
    assert finding(comparison, comparison.tests[0]).endswith("in 3 tasks, too few to rely on the interval")


def test_an_unknown_model_or_another_dataset_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no scored trial of model 'nobody'; its models are: judge, constant, random"):
        compare_runs(run, run, "nobody", "judge")
    moved = of("judge", [replace(t, episode="x" + t.episode) for t in some_trials()], tmp_path / "moved")
    with pytest.raises(RunError, match="share no trial"):
        compare_runs(run, moved, "random", "judge")
