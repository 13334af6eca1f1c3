"""The verdict on a model: it states what the intervals and paired tests of its run support, and no more."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rewardlab.core.run import start_run
from rewardlab.core.summary import Summary
from rewardlab.core.trial import Trial
from rewardlab.evaluation.findings import verdict
from rewardlab.evaluation.summary import summarise
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial

Judge = Callable[[int, str, int], float]  # from true level, category and severity to the level that it returns


def right(truth: int, _category: str, _severity: int) -> float:
    return float(truth)


def wrong(truth: int, _category: str, _severity: int) -> float:
    return float(6 - truth)


def blind_from_severity_2(truth: int, category: str, severity: int) -> float:
    return wrong(truth, category, severity) if category == "visual" and severity > 1 else float(truth)


def always_3(_truth: int, _category: str, _severity: int) -> float:
    return 3.0


def summary_of(
    tmp_path: Path,
    judges: dict[str, Judge],
    episodes: int = 20,
    labels: bool = True,
    threshold: float = 0.7,
    **record: Any,
) -> Summary:
    """Return what is measured on successes and failures in turn, each of a task of its own."""
    conditions = [("clean", "clean", 0), *((f"{c}_change", c, s) for c in ("visual", "temporal") for s in (1, 2, 3))]
    trials: list[Trial] = []
    for model, judge in judges.items():
        for number in range(episodes):
            truth = 1 if number % 2 else 5
            for name, category, severity in conditions:
                one = trial(
                    judge(truth, category, severity), truth if labels else None, model=model, episode=f"e{number}",
                    video=f"v{number}", task=f"t{number}", perturbation=name, category=category, severity=severity,
                )  # fmt: skip
                trials.append(replace(one, id=f"{len(trials):06d}"))
    made = record_of(trials, evaluated=[name for name in judges if name != "constant"], **record)
    made["plan"]["accuracy_threshold"] = threshold
    run = start_run(tmp_path / "run", made)
    run.append(trials)
    return summarise(run, draws=200)


def test_it_says_where_a_model_holds_and_at_which_severity_it_breaks(tmp_path: Path) -> None:
    (said,) = verdict(summary_of(tmp_path, {"judge": blind_from_severity_2, "constant": always_3}))
    assert said == (
        "judge: holds up to severity 3 under temporal changes; holds up to severity 1 under visual changes; "
        "breaks at severity 2 under visual changes; keeps the fewest expectations under visual_change (0%); "
        "beats the best control, constant, on clean episodes. Do not use it under visual changes."
    )


def test_a_model_without_error_gets_no_advice_against_it(tmp_path: Path) -> None:
    (said,) = verdict(summary_of(tmp_path, {"judge": right, "constant": always_3}))
    assert "holds up to severity 3 under every kind of change" in said
    assert "break" not in said and "Do not" not in said


def test_few_tasks_are_counted_and_support_no_severity(tmp_path: Path) -> None:
    (said,) = verdict(summary_of(tmp_path, {"judge": right, "constant": always_3}, episodes=4))
    assert "too few tasks (4; 9 are enough) to certify any severity" in said and "holds" not in said
    assert "Do not rely on it before a larger test." in said


def test_a_model_that_is_no_better_than_the_best_control_is_not_to_be_used(tmp_path: Path) -> None:
    (worse,) = verdict(summary_of(tmp_path / "worse", {"judge": wrong, "constant": always_3}))
    assert "worse than the control constant on clean episodes" in worse and worse.endswith(". Do not use it.")
    assert "judges success wrongly too often on clean episodes already (accuracy 0.00)" in worse
    (same,) = verdict(summary_of(tmp_path / "same", {"judge": always_3, "constant": always_3}))
    assert "not shown to be better than the best control, constant" in same and "Do not rely on it" in same
    (alone,) = verdict(summary_of(tmp_path / "alone", {"judge": right}))
    assert "not compared with any control" in alone


def test_what_any_constant_reaches_is_not_held(tmp_path: Path) -> None:
    def fails_everything(_truth: int, _category: str, _severity: int) -> float:
        return 1.0

    judges: dict[str, Judge] = {"judge": fails_everything, "constant": always_3}
    summary = summary_of(tmp_path, judges, episodes=40, threshold=0.3)  # half of the episodes are failures
    assert summary.threshold("judge", "visual").certified == 3
    (said,) = verdict(summary)
    assert "holds" not in said and "reaches the accuracy threshold of 0.30 under every kind of change" in said


@pytest.mark.parametrize(("known", "words"), [(20, "measured on tasks seen in training only"), (10, "")])
def test_tasks_seen_in_training_are_named(tmp_path: Path, known: int, words: str) -> None:
    trained = {"judge": [f"t{number}" for number in range(known)]}
    (said,) = verdict(summary_of(tmp_path, {"judge": right, "constant": always_3}, trained_tasks=trained))
    assert (words in said) if words else ("seen in training" not in said)


def test_unseen_tasks_on_which_a_constant_does_as_well_are_ruled_out(tmp_path: Path) -> None:
    summary = summary_of(
        tmp_path, {"judge": right, "constant": always_3}, trained_tasks={"judge": [f"t{n}" for n in range(10)]}
    )
    rows = [replace(row, value=2.0, low=1.5, high=2.5) if row.tasks == "unseen" else row for row in summary.familiarity]
    (said,) = verdict(replace(summary, familiarity=tuple(rows)))
    assert said.endswith("Do not use it on tasks not seen in training.")


def test_without_labels_only_the_expectations_kept_are_stated(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, {"judge": blind_from_severity_2, "constant": always_3}, labels=False)
    assert not summary.labelled
    assert verdict(summary) == (
        "judge: keeps 80 of 120 expectations (67%), fewest under visual_change (0%); an answer that never changes "
        "keeps 100%. Without labels, nothing shows whether its rewards are right.",
    )


def test_two_models_are_named_and_the_others_counted(tmp_path: Path) -> None:
    judges: dict[str, Judge] = {"a": right, "b": wrong, "c": right, "d": right, "constant": always_3}
    lines = verdict(summary_of(tmp_path, judges))
    assert [line.partition(":")[0] for line in lines[:2]] == ["a", "b"] and lines[2:] == ("And 2 more models.",)
