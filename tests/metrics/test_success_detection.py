"""Success as detection against sklearn and examples worked by hand; own against another instruction."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Draws, draw_clusters
from rewardlab.metrics.contract import answered, eligible
from rewardlab.metrics.estimates import clusters_of, measure
from tests.metrics.handmade_trials import scored, table, trial

DETECTION = ("success_auc", "success_auc_within_subset", "success_precision_at_5_fpr", "success_recall_at_5_fpr")


def value(name: str, trials: TrialTable) -> float:
    return METRICS[name](trials)


def drawn_trials(count: int = 60) -> list[Trial]:
    """Trials of two subsets and ten tasks with tied levels, in one of which successes are frequent."""
    rng = rng_for(0, "detection")
    subset = rng.integers(0, 2, count)
    success = rng.random(count) < np.where(subset, 0.8, 0.3)
    level = np.clip(np.round(2 * (2.5 + success + subset + rng.normal(size=count))) / 2, 1, 5)
    rows = zip(subset.tolist(), success.tolist(), level.tolist(), strict=True)
    return [trial(at, 5 if ok else 2, subset=f"s{s}", task=str(i % 10)) for i, (s, ok, at) in enumerate(rows)]


def test_success_auc_is_sklearns_with_ties() -> None:
    trials = table(drawn_trials())
    truth, level = trials.number("truth_success"), trials.number("level")
    assert value("success_auc", trials) == pytest.approx(roc_auc_score(truth, level))


@pytest.mark.parametrize("name", ["success_auc", "success_auc_within_subset", "success_recall_at_5_fpr"])
def test_no_interval_of_a_share_leaves_0_to_1(name: str) -> None:
    fooled = {1: 4, 2: 5}  # tasks in which a failure is scored so
    levels = [(5, 5, task) for task in range(3)] + [(fooled.get(task, 1), 1, task) for task in range(3)]
    trials = table([trial(level, truth, task=str(task)) for level, truth, task in levels])
    found = measure(METRICS[name], trials, draw_clusters(3, 1000, 0))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_within_a_subset_only_its_own_pairs_count() -> None:
    rows = drawn_trials()
    weighed = []
    for name in ("s0", "s1"):
        own = table([row for row in rows if row.subset == name])
        wins = own.number("truth_success").sum()
        weighed.append((value("success_auc", own), wins * (len(own) - wins)))
    expected = np.average([auc for auc, _ in weighed], weights=[pairs for _, pairs in weighed])
    assert value("success_auc_within_subset", table(rows)) == pytest.approx(expected)
    assert value("success_auc", table(rows)) > expected, "telling the subsets apart helps over all pairs"


def test_the_expected_level_tells_apart_what_the_level_ties() -> None:
    sure, unsure = (0.0, 0.0, 0.0, 0.1, 0.9), (0.3, 0.0, 0.0, 0.2, 0.5)
    rows = [trial(5.0, 5, probabilities=sure), trial(5.0, 1, probabilities=unsure)]
    assert value("success_auc", table(rows)) == 1.0
    assert value("success_auc", scored([5, 5], [5, 1])) == 0.5


def test_recall_and_precision_at_five_percent_false_positives() -> None:
    # 40 failures allow 2 false positives: the highest failures are at 4.9, 4.8 and 4.5
    failures = [4.9, 4.8, 4.5, *np.linspace(1, 3, 37)]
    successes = [5.0, 4.85, 4.7, 4.5, 2.0]
    trials = scored([*failures, *successes], [1] * 40 + [5] * 5)
    assert value("success_recall_at_5_fpr", trials) == pytest.approx(3 / 5), "4.5 would call a third failure a success"
    assert value("success_precision_at_5_fpr", trials) == pytest.approx(3 / 5)


def test_few_failures_allow_no_false_positive() -> None:
    trials = scored([5, 4, 3, 4, 2], [5, 5, 5, 1, 1])
    assert value("success_recall_at_5_fpr", trials) == pytest.approx(1 / 3)
    assert value("success_precision_at_5_fpr", trials) == 1.0
    nothing = scored([3, 5], [5, 1])
    assert value("success_recall_at_5_fpr", nothing) == 0.0
    assert math.isnan(value("success_precision_at_5_fpr", nothing)), "nothing is called a success"


@pytest.mark.parametrize("name", DETECTION)
@pytest.mark.parametrize("levels", [[1, 1], [5, 5]])
def test_one_outcome_alone_detects_nothing(name: str, levels: list[int]) -> None:
    assert math.isnan(value(name, scored([4, 2], levels)))


@pytest.mark.parametrize("name", DETECTION)
def test_a_draw_is_what_its_trials_written_out_give(name: str) -> None:
    trials, draws = table(drawn_trials()), draw_clusters(10, 20, seed=1)
    resample = METRICS[name].resample
    assert resample is not None
    for number, found in enumerate(resample(trials, draws)):
        rows = np.repeat(np.arange(len(trials)), draws.counts[clusters_of(trials), number])
        assert found == pytest.approx(value(name, trials.take(rows)), nan_ok=True)


@pytest.mark.parametrize("name", DETECTION)
def test_detection_comes_with_coverage_and_an_interval(name: str) -> None:
    trials = table([*drawn_trials(), trial(None, 5, status="failed", subset="s0", task="0")])
    found = measure(METRICS[name], trials, draw_clusters(10, 300, seed=0))
    assert found.low <= found.value <= found.high and (found.scored, found.asked) == (60, 61)


def test_draws_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, draws = table(drawn_trials()), draw_clusters(10, 50, seed=0)
    resample = METRICS["success_recall_at_5_fpr"].resample
    assert resample is not None
    whole = resample(trials, draws)
    monkeypatch.setattr("rewardlab.metrics.accuracy.HELD", 400)
    np.testing.assert_array_equal(resample(trials, draws), whole)


def own_and_other(own: float, other: float | None, episode: str, severity: int = 1, **changes: Any) -> list[Trial]:
    clean = trial(own, 5, episode=episode, task=episode)
    swapped: dict[str, Any] = {
        "perturbation": "instruction_swap",
        "category": "semantic",
        "severity": severity,
        "expectation": "lower",
    }
    status = "failed" if other is None else "scored"
    return [clean, trial(other, episode=episode, task=episode, status=status, **swapped | changes)]


def test_grounding_is_how_often_the_own_instruction_scores_higher() -> None:
    rows = [*own_and_other(5, 2, "a"), *own_and_other(4, 4, "b"), *own_and_other(3, 5, "c"), *own_and_other(5, 4, "d")]
    found = measure(METRICS["instruction_grounding"], table(rows), draw_clusters(4, 200, seed=0))
    assert found.value == pytest.approx((1 + 0.5 + 0 + 1) / 4) and found.low <= found.value <= found.high
    assert (found.scored, found.asked) == (4, 4)


def test_grounding_goes_by_the_expected_level() -> None:
    clean, other = own_and_other(5, 5, "a", probabilities=(0.4, 0.0, 0.0, 0.0, 0.6))
    assert value("instruction_grounding", swaps([clean, other])) == 0.0 + 1.0


def swaps(rows: list[Trial]) -> TrialTable:
    trials = table(rows)
    return trials.where(answered(trials, "another instruction"))


def test_grounding_counts_another_instruction_of_the_same_source_only() -> None:
    relabelled = {"perturbation": "task_swap", "expectation": "relabel"}
    rows = [
        *own_and_other(5, 1, "near", 1, **relabelled),
        *own_and_other(5, 5, "of another source", 3, **relabelled),
        *own_and_other(5, 5, "noise", 1, perturbation="gaussian_noise", expectation="same"),
        *own_and_other(5, None, "failed", 2),
    ]
    trials = table(rows)
    asked = trials.where(eligible(trials, "another instruction")).text("episode").tolist()
    assert asked == ["near", "failed"] and swaps(rows).text("episode").tolist() == ["near"]


def test_a_draw_without_one_outcome_has_no_number() -> None:
    trials = table([trial(5.0, 5, task="a"), trial(1.0, 1, task="b")])
    draws = Draws(np.array([[2, 1], [0, 1]], dtype=np.uint8), seed=0)
    resample = METRICS["success_auc"].resample
    assert resample is not None
    assert np.isnan(resample(trials, draws)).tolist() == [True, False]
