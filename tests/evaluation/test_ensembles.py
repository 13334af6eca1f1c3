"""What an ensemble pays for its accuracy: correlated errors, members asked, cost of a verdict."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.run import Run, start_run
from rewardlab.core.trial import ScoreInfo, Trial
from rewardlab.evaluation.ensembles import report_ensembles, report_normalisers
from rewardlab.reporting.report import write_report
from rewardlab.reporting.run_page import ensemble_view
from rewardlab.reporting.terminal_summary import failure_lines
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import ONE

TRUTHS = (1, 2, 3, 4, 5, 5, 3, 1)
LEVELS = {"a": (1, 2, 4, 4, 4, 5, 3, 2), "b": (1, 2, 4, 4, 4, 5, 3, 2), "c": (2, 2, 3, 3, 5, 4, 3, 1)}
ALL, EARLY = "ensemble:a,b,c", "ensemble:a,b,c?early_exit=yes"


def trial(model: str, place: int, level: float, seconds: float, info: ScoreInfo) -> Trial:
    return replace(
        ONE,
        id=f"{model}-{place}",
        model=model,
        episode=str(place),
        video=str(place),
        task=str(place),
        perturbation="clean",
        category="clean",
        severity=0,
        expectation="same",
        truth_level=TRUTHS[place],
        truth_success=TRUTHS[place] == 5,
        status="scored",
        level=level,
        reason=None,
        seconds=seconds,
        info=info,
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    places = range(len(TRUTHS))
    single = [
        trial(name, place, LEVELS[name][place], cost, ScoreInfo(cost=cost))
        for name, cost in (("a", 1.0), ("b", 2.0), ("c", 4.0))
        for place in places
    ]
    whole = [
        trial(ALL, p, LEVELS["a"][p], 0.0, ScoreInfo(cost=7.0, member_levels={n: LEVELS[n][p] for n in "abc"}))
        for p in places
    ]
    early = [
        trial(EARLY, p, LEVELS["a"][p], 0.0, ScoreInfo(cost=3.0, skipped_members=1, member_levels={"a": 3.0, "b": 3.0}))
        for p in places
    ]
    trials = [*single, *whole, *early]
    made = start_run(tmp_path / "run", record_of(trials, evaluated=["a", "b", "c", ALL, EARLY]))
    made.append(trials)
    return made


def test_a_member_without_an_answer_is_listed_with_the_failures(tmp_path: Path) -> None:
    silent = [ScoreInfo(member_levels={"a": 3.0}, member_failures={"b": f"no camera {place}"}) for place in range(3)]
    trials = [trial(ALL, place, 3.0, 0.0, info) for place, info in enumerate(silent)]
    dark = replace(trials[0], status="failed", level=None, reason="no member answered", info=ScoreInfo())
    trials.append(replace(dark, id="3", episode="3", video="3", task="3"))
    made = start_run(tmp_path / "run", record_of(trials, evaluated=[ALL]))
    made.append(trials)
    shown = failure_lines(made.trials(), {ALL: "ensemble of 3"})
    assert shown == [
        "failed: 3 x ensemble of 3: its member b: no camera 0",
        "failed: 1 x ensemble of 3: no member answered",
    ]


def test_errors_of_members_are_correlated_as_numpy_says(run: Run) -> None:
    report = report_ensembles(run)
    assert report is not None
    found = {(c.first, c.second): c for c in report.correlations}
    errors = {name: np.array(levels) - np.array(TRUTHS) for name, levels in LEVELS.items()}
    assert found.keys() == {("a", "b"), ("a", "c"), ("b", "c")} and len(report.correlations) == 3
    assert found["a", "b"].value == pytest.approx(1.0)
    assert found["a", "c"].value == pytest.approx(np.corrcoef(errors["a"], errors["c"])[0, 1])
    assert found["a", "c"].low < found["a", "c"].value < found["a", "c"].high and found["a", "c"].trials == 8


def test_a_verdict_costs_what_its_members_cost_and_early_exit_saves_a_call(run: Run) -> None:
    report = report_ensembles(run)
    assert report is not None
    points = {point.model: point for point in report.points}
    assert [points[model].price for model in ("a", "c", ALL, EARLY)] == [1.0, 4.0, 7.0, 3.0]
    assert [points[model].seconds for model in ("a", ALL, EARLY)] == [1.0, 7.0, 3.0]
    assert [points[model].asked for model in ("a", ALL, EARLY)] == [1.0, 3.0, 2.0]
    assert points["c"].accuracy == pytest.approx(7 / 8)
    view = ensemble_view(run)
    assert view is not None and view.unit == "price of a verdict" and view.drawing.count("<circle") == 5


def made_run(folder: Path, trials: list[Trial], evaluated: Sequence[str], kind: str = "stress") -> Run:
    made = start_run(folder / "again", record_of(trials, evaluated=evaluated, kind=kind))
    made.append(trials)
    return made


def test_answers_that_an_early_exit_leaves_out_are_those_of_the_members_alone(run: Run, tmp_path: Path) -> None:
    trials = [each for each in run.trials().rows() if each.model != ALL]
    last = replace(trials[-1].info, member_levels={"a": 3.0, "b": 4.0, "c": 3.0}, skipped_members=0)
    trials[-1] = replace(trials[-1], info=last)
    early = report_ensembles(made_run(tmp_path, trials, ["a", "b", "c", EARLY], "bench"))
    whole = report_ensembles(run)
    assert early is not None and whole is not None
    assert [replace(c, ensemble=ALL) for c in early.correlations] == list(whole.correlations)
    alone = [each for each in trials if each.model == EARLY]
    unknown = report_ensembles(made_run(tmp_path / "alone", alone, [EARLY]))
    assert unknown is not None and not unknown.correlations


def test_a_benchmark_has_the_curve_too(run: Run, tmp_path: Path) -> None:
    assert ensemble_view(made_run(tmp_path, run.trials().rows(), run.record.evaluated, "bench")) is not None
    assert ensemble_view(made_run(tmp_path / "attack", run.trials().rows(), run.record.evaluated, "attack")) is None


def test_seconds_from_memory_are_no_seconds_of_a_verdict(run: Run, tmp_path: Path) -> None:
    """A control of the run counts by its own trials; of members that only ensembles ask, nobody knows who waited."""
    whole = [each for each in run.trials().rows() if each.model in ("a", "b", "c", ALL)]
    by_controls = report_ensembles(made_run(tmp_path / "controls", whole, ["a", ALL]))
    assert by_controls is not None and by_controls.points[-1].seconds == 7.0
    shared = [each for each in run.trials().rows() if each.model in (ALL, EARLY)]
    unpriced = [replace(t, seconds=0.1, info=replace(t.info, cost=None)) for t in shared]
    by_nobody = made_run(tmp_path / "nobody", unpriced, [ALL, EARLY])
    report, view = report_ensembles(by_nobody), ensemble_view(by_nobody)
    assert report is not None and [point.seconds for point in report.points] == [None, None]
    assert view is not None and not view.drawing
    only = [each for each in shared if each.model == ALL]
    lonely = report_ensembles(made_run(tmp_path / "lonely", [replace(t, seconds=0.5) for t in only], [ALL]))
    assert lonely is not None and lonely.points[0].seconds == 0.5


def test_a_run_without_ensembles_has_no_such_report(tmp_path: Path) -> None:
    alone = [trial("a", place, 3.0, 1.0, ScoreInfo()) for place in range(3)]
    made = start_run(tmp_path / "run", record_of(alone))
    made.append(alone)
    assert report_ensembles(made) is None and ensemble_view(made) is None


def reworded(model: str, place: int, level: float, cost: float) -> Trial:
    made = replace(trial(model, place, level, 1.0, ScoreInfo(cost=cost)), id=f"{model}-{place}-reworded")
    return replace(made, perturbation="paraphrase", category="semantic", severity=1)


def test_a_normaliser_is_shown_beside_the_same_model_without_it(tmp_path: Path) -> None:
    """Plain, the model follows the words in four of eight rewordings; behind the normaliser it never does."""
    name = "normalise:a?rewriter=openai:b@http://localhost:1/v1"
    moved = [level - 1 if level > 3 else level for level in LEVELS["a"]]
    trials = [trial("a", p, LEVELS["a"][p], 1.0, ScoreInfo(cost=1.0)) for p in range(8)]
    trials += [trial(name, p, LEVELS["a"][p], 1.0, ScoreInfo(cost=3.0)) for p in range(8)]
    trials += [reworded("a", p, moved[p], 1.0) for p in range(8)]
    trials += [reworded(name, p, LEVELS["a"][p], 3.0) for p in range(8)]
    run = made_run(tmp_path, trials, ["a", name])
    (report,) = report_normalisers(run)
    gains = {(gain.where, gain.heading): gain.found for gain in report.gains}
    assert (report.model, report.plain, report.price) == (name, "a", 2.0)
    assert gains["clean", "success"].difference == 0 and gains["clean", "success"].trials == 8
    kept = gains["other words, same meaning", "kept"]
    assert (kept.b, kept.a, kept.difference) == (0.5, 1.0, 0.5) and kept.low < 0.5 < kept.high
    page = write_report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What normalising instructions changes" in page and "costs 2" in page
    alone = made_run(tmp_path / "alone", [t for t in trials if t.model == name], [name])
    assert report_normalisers(alone) == []
