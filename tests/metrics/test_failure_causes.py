"""Causes against the truth, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rewardlab.core.trial import ScoreInfo, Trial
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import with_clusters
from rewardlab.metrics.failure_causes import (
    cause_accuracy,
    cause_answers,
    cause_confusion,
    cause_frame_error,
    cause_macro_f1,
    says_causes,
)
from tests.metrics.handmade_trials import ONE

DRAWS = draw_clusters(7, 200, seed=0)
SHOWN = (0, 10, 20, 30, 40)
TRUE_AND_SAID = [  # true cause (None: success), said; true frame, said frame
    ("dropped", "dropped", 2, 3),
    ("dropped", "missed_grasp", 1, 1),
    ("missed_grasp", "missed_grasp", 1, None),
    (None, "none", None, None),
    (None, "dropped", None, 4),
    ("early_end", None, 4, None),
    ("unknown", "dropped", None, None),
]


def table() -> TrialTable:
    trials: list[Trial] = []
    for place, (true, said, frame, told) in enumerate(TRUE_AND_SAID):
        known = {"truth_failure_cause": None if true == "unknown" else true, "truth_failure_frame": frame}
        named = f"{place}"
        one = replace(ONE, id=named, episode=named, video=named, task=named, truth_success=true is None, shown=SHOWN)
        info = ScoreInfo(failure_cause=said, failure_frame=told, failure_text="hm")
        trials.append(replace(one, status="scored", level=3.0, reason=None, info=info, **known))  # type: ignore[arg-type]
    return with_clusters(TrialTable(to_arrow(trials)))


def test_accuracy_macro_f1_and_frame_error_are_those_worked_by_hand() -> None:
    answers = cause_answers(table())
    accuracy, f1 = cause_accuracy(answers, DRAWS), cause_macro_f1(answers, DRAWS)
    assert accuracy.value == pytest.approx(3 / 5) and (accuracy.scored, accuracy.asked) == (5, 6)
    assert accuracy.low < accuracy.value < accuracy.high
    # dropped: 1 right of 2 true and 2 said; missed_grasp: 1 of 1 true and 2 said; none: 1 of 2 true and 1 said
    assert f1.value == pytest.approx((2 / 4 + 2 / 3 + 2 / 3) / 3) and f1.low <= f1.value <= f1.high
    error = cause_frame_error(answers, DRAWS)
    assert error.value == pytest.approx((0.25 + 0.0) / 2) and (error.scored, error.asked) == (2, 4)


def test_the_confusion_matrix_counts_every_known_truth_once() -> None:
    counts = cause_confusion(cause_answers(table()))
    assert counts.shape == (8, 9) and counts.sum() == 6
    assert counts[0].tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]  # successes: one called dropped
    assert counts[3].tolist() == [0, 1, 0, 1, 0, 0, 0, 0, 0]
    assert counts[6].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1]  # no answer that could be read


def test_the_constant_names_the_most_common_cause_at_the_median_frame() -> None:
    constant = cause_answers(table()).constant()
    assert cause_accuracy(constant, DRAWS).value == pytest.approx(2 / 6)  # none and dropped are there twice each
    assert cause_frame_error(constant, DRAWS).value == pytest.approx(np.mean(np.abs(np.array([2, 1, 1, 4]) - 1.5)) / 4)


def test_models_that_were_not_asked_are_told_from_those_that_were() -> None:
    trials = table()
    assert says_causes(trials)
    plain = [replace(trial, info=ScoreInfo()) for trial in trials.rows()]
    silent = with_clusters(TrialTable(to_arrow(plain)))
    assert not says_causes(silent)
    assert np.isnan(cause_accuracy(cause_answers(silent), DRAWS).value)
    assert np.isnan(cause_macro_f1(cause_answers(silent), DRAWS).value)
