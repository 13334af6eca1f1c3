"""Trials made by hand for the tests of metrics."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewardlab.core.trial import Trial
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.metrics.estimates import with_clean_answers, with_clusters

ONE = Trial(
    id="", model="m", episode="", video="", subset="s", task="t", perturbation="clean", category="clean", severity=0,
    seed=0, expectation="same", truth_level=None, truth_success=None, truth_progress=None, instruction="", shown=(),
    frames_hash="", status="scored",
)  # fmt: skip


def trial(level: float | None, truth: int | None = None, **changes: Any) -> Trial:
    """Return a scored trial; success follows from the true level unless stated."""
    success = None if truth is None else truth == 5
    settings: dict[str, Any] = {"level": level, "truth_level": truth, "truth_success": success} | changes
    return replace(ONE, **settings)


def table(trials: Sequence[Trial]) -> TrialTable:
    """Return the trials with ids, each its own episode and video unless named, and with the columns metrics read."""
    named = [
        replace(t, id=str(i), episode=t.episode or str(i), video=t.video or t.episode or str(i))
        for i, t in enumerate(trials)
    ]
    return with_clusters(with_clean_answers(TrialTable(to_arrow(named))))


def scored(levels: Sequence[float], truths: Sequence[int]) -> TrialTable:
    """Return clean trials with these scores and true levels."""
    return table([trial(float(level), int(truth)) for level, truth in zip(levels, truths, strict=True)])
