"""What is said of a study: figures of made-up trainings whose answer is known."""

import math
from dataclasses import replace

import pytest

from rewardlab.rl.results import (
    CurvePoint,
    FalseSuccess,
    HackedEpisode,
    OfflineMeasures,
    RlResults,
    TrainingRunResult,
    accuracy_at,
    scored_at,
)
from rewardlab.studies.rl.analysis import learning_curve, predictions, quality_points, series_of, severity_curves
from rewardlab.studies.rl.findings import cluster_episodes, findings, hacking_clusters, hacking_rates, lifted_tasks

NONE = FalseSuccess(0, 0, 0)
TASKS = ("door", "drawer", "button")


def training(task: str, reward: str, success: float, *, seed: int = 0, condition: str = "clean") -> TrainingRunResult:
    """Return a training that went from 0.3 over 0.5 to some success."""
    points = (CurvePoint(100, 10_000, 0.5, 0.5), CurvePoint(200, 20_000, success, success))
    names = (task, reward, condition, "dsrl", seed)
    return TrainingRunResult(*names, "finished", "", 0.3, success, points, 200, 0, "", NONE, NONE, (), (), 60.0, 6.0)


def study(figure: str, runs: list[TrainingRunResult], offline: tuple[OfflineMeasures, ...] = ()) -> RlResults:
    """Return a study of these trainings."""
    base = dict.fromkeys(TASKS, 0.3)
    return RlResults("0", "{}", "a study", figure, "rewardlab study rl", 60.0, 1, base, base, tuple(runs), offline)


def test_a_task_is_lifted_only_if_every_seed_is() -> None:
    runs = [training("door", "true", 0.95, seed=seed) for seed in range(3)]
    runs += [training("drawer", "true", success, seed=seed) for seed, success in enumerate((0.6, 0.7, 0.55))]
    (series,) = series_of(study("curves", runs))
    assert lifted_tasks(series) == ["door"]
    assert "on 1 of 2 tasks" in findings(study("curves", runs))[0]


def test_a_learning_curve_begins_with_the_base_policy_and_is_an_interquartile_mean() -> None:
    runs = [training("door", "true", success, seed=seed) for seed, success in enumerate((0.0, 0.8, 0.8, 1.0))]
    curve = learning_curve(runs, lambda run: run.base_success)
    assert [at.steps for at in curve] == [0, 10_000, 20_000]
    assert [at.mean for at in curve] == pytest.approx([0.3, 0.5, 0.8])
    assert curve[-1].low < 0.8 <= curve[-1].high


def test_the_measure_that_success_was_made_from_predicts_it_and_another_does_not() -> None:
    rewards = [f"model {number}" for number in range(10)]
    runs = [training(task, reward, 0.1 * place) for place, reward in enumerate(rewards) for task in TASKS]
    offline = [
        OfflineMeasures(reward, task, 40, {"mae": 2 - 0.2 * place, "tau": (place % 2) / 2, "success_accuracy x@1": 0.5})
        for place, reward in enumerate(rewards)
        for task in TASKS
    ]
    results = study("quality", runs, tuple(offline))
    first, second = predictions(results)
    assert (first.measure, first.points) == ("mae", 30) and first.pearson == pytest.approx(1.0)
    assert second.measure == "tau" and abs(second.pearson) < 0.3 and second.low < 0 < second.high
    assert quality_points(results, "mae")[0].quality == 2.0  # 4 less an MAE of 2
    assert "r = 1.00 [1.00, 1.00]" in findings(results)[0]


def test_where_learning_breaks_and_what_was_certified() -> None:
    success = (0.9, 0.9, 0.8, 0.5, 0.2)
    runs = [
        training("door", "pocket", value, condition=f"noise@{level}" if level else "clean")
        for level, value in enumerate(success)
    ]
    right: dict[str, float | None] = {
        accuracy_at("noise", level): share for level, share in enumerate((0.98, 0.97, 0.80, 0.6, 0.5))
    }
    results = study("severity", runs, (OfflineMeasures("pocket", "", 60, right),))
    (curve,) = severity_curves(results)
    assert curve.success == success
    assert curve.holds == 2  # 0.5 is more than 20 points below 0.9
    assert curve.certified == 1  # 48 of 60 are surely above 0.70, not above 0.75
    assert "In 1 of 1 curves learning holds at least up to the certified severity" in findings(results)[1]
    few = study("severity", runs, (OfflineMeasures("pocket", "", 60, right | {scored_at("noise", 1): 5.0}),))
    assert severity_curves(few)[0].certified == 0, "five clips with a score are no evidence of 75 %"


def test_a_task_that_was_trained_at_fewer_severities_does_not_tilt_the_means() -> None:
    names = ["clean", *(f"noise@{level}" for level in range(1, 5))]
    runs = [training("door", "pocket", 0.8, condition=name) for name in names]
    runs += [training("drawer", "pocket", 0.0, condition=name) for name in names[:3]]
    (curve,) = severity_curves(study("severity", runs))
    assert curve.success == pytest.approx((0.8,) * 5)
    assert curve.left_out == ("drawer",)
    assert "drawer left out, trained at fewer severities" in findings(study("severity", runs))[0]
    (whole,) = severity_curves(study("severity", [run for run in runs if run.condition in names[:3]]))
    assert whole.success[:3] == pytest.approx((0.4,) * 3)
    assert whole.left_out == ()


def test_a_severity_that_was_not_trained_ends_what_can_be_said() -> None:
    runs = [training("door", "pocket", 0.9), training("door", "pocket", 0.9, condition="noise@2")]
    measured = OfflineMeasures("pocket", "", 60, {accuracy_at("noise", level): 1.0 for level in range(5)})
    results = study("severity", runs, (measured,))
    (curve,) = severity_curves(results)
    assert math.isnan(curve.success[1]) and curve.holds == 0 and curve.is_open and curve.certified == 4
    said = findings(results)
    assert "learning holds up to 0 at least, certified up to 4" in said[0] and not any(
        "certified severity" in s for s in said
    )


def test_false_successes_before_and_after_are_added_up_over_seeds() -> None:
    runs = [
        replace(
            training("door", "pocket", 0.5, seed=seed), before=FalseSuccess(10, 1, 20), after=FalseSuccess(5, 4, 40)
        )
        for seed in range(2)
    ]
    runs.append(replace(runs[0], algorithm="sac", before=FalseSuccess(20, 0, 20)))  # its first episodes are no policy's
    (rate,) = hacking_rates(study("curves", runs))
    assert rate.rates == pytest.approx((0.1, 0.8))
    assert any("from 10% before RL to 80% after it" in sentence for sentence in findings(study("curves", runs)))


def test_tricks_that_end_alike_are_one_cluster() -> None:
    hover = [HackedEpisode("", 5.0, 1, 0.05, (0.1, 0.01 * n, -0.05), (0.0, 0.0, 0.0), 0.2) for n in range(4)]
    shove = [HackedEpisode("", 5.0, 4, 0.8, (0.1, 0.3 + 0.01 * n, -0.05), (0.0, 0.12, 0.0), 0.05) for n in range(2)]
    assert sorted(len(some) for some in cluster_episodes([*hover, *shove])) == [2, 4]
    runs = [replace(training("door", "pocket", 0.1), hacked=(*hover, *shove))]
    clusters = hacking_clusters(study("curves", runs))
    assert "the object is not moved" in clusters[0].description
    assert "the object is moved by 12 cm, the gripper goes 30 cm away" in clusters[1].description


def test_trainings_that_failed_are_said_and_count_in_nothing() -> None:
    failed = replace(training("door", "pocket", 0.0), status="failed", reason="its process ended 2 times", success=None)
    results = study("types", [training("door", "true", 0.9), failed])
    assert [series.reward for series in series_of(results)] == ["true"]
    assert findings(results)[-1].startswith("1 of 2 training runs failed and are left out; the first: its process")


def test_progress_against_binary_is_said_with_an_interval() -> None:
    runs = [
        training(task, reward, success + 0.01 * seed, seed=seed)
        for task in TASKS
        for seed in range(3)
        for reward, success in (("head:binary", 0.5), ("head:levels", 0.8), ("true", 0.9))
    ]
    said = findings(study("types", runs))
    assert said[0].index("true") < said[0].index("head:levels") < said[0].index("head:binary")
    assert "head:levels against head:binary: +30 points" in said[1] and said[1].endswith("], better.")
