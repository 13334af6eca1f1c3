"""Metrics of long tasks: each stage by its own instruction, the order of stages, progress over the whole task."""

from itertools import count
from typing import Any

import numpy as np
import pytest

from rewardlab.core.trial import Trial
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.contract import answered, eligible
from rewardlab.metrics.estimates import clusters_of, measure
from rewardlab.metrics.stages import (
    falls_when_undone,
    stage_order,
    stage_separation,
    stage_success_accuracy,
    stage_success_auc,
)
from tests.metrics.handmade_trials import table, trial

FRAMES = 4
NUMBERS = count()


def asked(done: tuple[int, ...], level: float = 3.0, progress: tuple[float, ...] | None = None, **more: Any) -> Trial:
    """Return a trial with stages, one after the other in `done`, each with one number per frame."""
    return trial(level, truth_stages=done, progress=progress, shown=tuple(range(FRAMES)), **more)


def stage(done: tuple[int, ...], level: float = 3.0, progress: tuple[float, ...] | None = None, **more: Any) -> Trial:
    """Return a question about one stage, by its own instruction."""
    return asked(done, level, progress, episode=f"{next(NUMBERS)}#stage1", **more)


DONE, NEVER, UNDONE = (0, 1, 1, 1), (0, 0, 0, 0), (0, 1, 1, 0)


def test_a_stage_counts_as_done_where_it_is_at_the_end() -> None:
    trials = table([stage(DONE, 5), stage(NEVER, 1), stage(UNDONE, 5), stage(DONE, 2)])
    assert stage_success_accuracy(trials) == 0.5
    assert stage_success_auc(trials) == pytest.approx((1 + 0.5 + 1 + 0) / 4)  # a tie of 5 and 5 counts half


def test_only_questions_about_one_stage_count_as_stages_by_themselves() -> None:
    trials = table([stage(DONE), asked((*DONE, *NEVER)), asked((*DONE, *UNDONE)), trial(3.0, 3), asked(DONE)])
    assert eligible(trials, "one stage").tolist() == [True, False, False, False, False]
    assert eligible(trials, "completed stage").tolist() == [True, False, False, False, False]
    assert eligible(trials, "stages").tolist() == [False, True, True, False, False]
    assert eligible(trials, "undone stage").tolist() == [False, False, True, False, False]
    assert not answered(trials, "stages").any()  # no progress was given


def test_a_done_first_frame_of_the_next_stage_is_no_undoing() -> None:
    assert not eligible(table([asked((1, 1, 1, 1, 0, 0, 0, 0))]), "undone stage").any()


def test_order_is_that_of_predicted_completions_within_one_video() -> None:
    early, late = (0.0, 0.9, 0.9, 0.9), (0.0, 0.1, 0.1, 0.2)
    first, second = (0, 1, 1, 1), (0, 0, 0, 1)
    kept = [stage(first, progress=early, video="a"), stage(second, progress=late, video="a")]
    swapped = [stage(first, progress=late, video="b"), stage(second, progress=early, video="b")]
    tied = [stage(first, progress=(0, 0, 0, 1), video="c"), stage(second, progress=(0, 0, 0, 1), video="c")]
    flat = [stage(each, progress=(0.3,) * 4, video="d") for each in (first, second)]
    assert stage_order(table(kept)) == 1 and stage_order(table(swapped)) == 0
    assert stage_order(table(tied)) == stage_order(table(flat)) == 0.5
    assert stage_order(table([*kept, *swapped, *tied])) == 0.5
    assert np.isnan(stage_order(table([kept[0], swapped[1]])))  # of two videos
    other = [stage(second, progress=early, video="a", model="other")]
    assert stage_order(table([*kept, *other])) == 1  # models do not mix


def test_frames_with_more_stages_done_should_have_more_progress() -> None:
    two = ((0, 1, 1, 1), (0, 0, 0, 1))
    rising = asked((*two[0], *two[1]), progress=(0.0, 0.4, 0.5, 1.0))
    falling = asked((*two[0], *two[1]), progress=(1.0, 0.5, 0.4, 0.0))
    assert stage_separation(table([rising])) == 1 and stage_separation(table([falling])) == 0
    assert stage_separation(table([rising, falling])) == 0.5
    assert np.isnan(stage_separation(table([asked((*NEVER, *NEVER), progress=(0.0, 0.4, 0.5, 1.0))])))


def test_progress_should_fall_when_a_stage_is_undone() -> None:
    stages = (*(1, 1, 1, 1), *UNDONE)
    assert falls_when_undone(table([asked(stages, progress=(0.4, 0.9, 0.9, 0.5))])) == 1
    assert falls_when_undone(table([asked(stages, progress=(0.4, 0.6, 0.8, 1.0))])) == 0  # as the length baseline does
    assert falls_when_undone(table([asked(stages, progress=(0.5, 0.5, 0.5, 0.5))])) == 0
    assert np.isnan(falls_when_undone(table([asked((*DONE, *NEVER), progress=(0.4, 0.9, 0.9, 0.5))])))


def test_every_stage_metric_has_an_interval() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(40):
        for done in ((*DONE, *UNDONE), DONE, (0, 0, 1, 0)):
            path: tuple[float, ...] = tuple(rng.random(FRAMES).tolist())
            made = stage if len(done) == FRAMES else asked
            rows.append(made(done, float(rng.uniform(1, 5)), path, video=str(number), task=str(number)))
    trials = table(rows)
    draws = draw_clusters(int(clusters_of(trials).max()) + 1, 200, seed=0)
    for metric in (m for m in METRICS.values() if m.display.stages):
        found = measure(metric, trials, draws)
        assert 0 < found.low < found.value < found.high < 1, metric.name
