"""Calibration: what is fitted, whether it holds on tasks kept apart, and the model that uses it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.core.trial_table import TrialTable, to_arrow
from rewardlab.data import open_dataset
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.fit_calibration import (
    calibrate_trials,
    calibration_sentences,
    conformal_quantile,
    fit_calibration,
    fit_temperature,
    member_errors,
    negative_log_likelihood,
    split_trials,
)
from rewardlab.models import name_model
from rewardlab.models.calibration import (
    Calibrated,
    Calibration,
    apply_calibration,
    apply_temperature,
    isotonic_steps,
    prediction_set,
)
from rewardlab.models.composite import Ensemble
from rewardlab.testing import check_model
from tests.conftest import IN_PROCESS, moving_square
from tests.metrics.handmade_trials import trial
from tests.narrowing import as_score, as_scores, known
from tests.plans import stress_plan

EVEN = (0.2,) * 5


def overconfident(count: int, heat: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return true probabilities, what a model says that sharpens them by `heat`, and levels 0 to 4 drawn from them."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet((0.7,) * 5, count)
    truth = (rng.random(count)[:, None] > np.cumsum(true, axis=1)[:, :4]).sum(axis=1)
    return true, apply_temperature(true, 1 / heat), truth


def trials_with(probs: np.ndarray | None, levels: np.ndarray, truth: np.ndarray, per_task: int = 10) -> TrialTable:
    """Return one trial each; every hundredth video is shown under the task of its neighbour too."""
    rows = []
    for place, (level, true) in enumerate(zip(levels, truth, strict=True)):
        given = None if probs is None else tuple(probs[place].tolist())
        names = {"id": str(place), "episode": str(place), "video": str(place - (place % 100 == 0 and place > 0))}
        names |= {"task": f"task {place // per_task}"}
        rows.append(trial(float(level), int(true) + 1, probabilities=given, **names))
    return TrialTable(to_arrow(rows))


def test_the_temperature_that_was_put_in_is_found() -> None:
    _, said, truth = overconfident(4000, heat=2.5)
    assert fit_temperature(said, truth) == pytest.approx(2.5, rel=0.06)
    assert apply_temperature(said, 1.0) == pytest.approx(said, abs=1e-5)


def test_isotonic_steps_rise_and_follow_the_mean() -> None:
    said = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 5.0])
    truth = np.array([1.0, 2.0, 4.0, 4.0, 3.0, 2.0, 5.0])  # 3 said is worth less than 2 said: they are joined
    assert isotonic_steps(said, truth) == ((1.0, 1.5), (2.0, 3.25), (3.0, 3.25), (5.0, 5.0))
    reference = pytest.importorskip("sklearn.isotonic").IsotonicRegression().fit(said, truth)
    steps = isotonic_steps(said, truth)
    for level in np.linspace(1, 5, 41):
        calibrated = apply_calibration(Score(level), Calibration(None, steps, 0.9, None)).level
        assert calibrated == pytest.approx(reference.predict([level])[0])


def test_the_conformal_threshold_is_the_rank_that_theory_asks_for() -> None:
    nonconformities = np.arange(1, 20) / 20  # nineteen numbers: the 18th of 20 places leaves 90 % at or below
    assert conformal_quantile(nonconformities, 0.9) == pytest.approx(0.9)
    assert conformal_quantile(nonconformities[:8], 0.9) is None  # with eight no level can be ruled out at 90 %


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_calibrated_probabilities_mean_what_they_say_and_sets_hold_the_truth(coverage: float) -> None:
    _, said, truth = overconfident(6000, heat=3.0)
    found = calibrate_trials(trials_with(said, said.argmax(axis=1) + 1, truth), coverage, seed=0)
    assert found["method"] == "temperature" and found["fitted"]["temperature"] == pytest.approx(3.0, rel=0.1)
    held_out = found["held_out"]
    before, after = held_out["before"], held_out["after"]
    assert after["nll"] < before["nll"] and after["ordinal_ece"] < before["ordinal_ece"] / 2
    assert after["top_label_ece"] < before["top_label_ece"] / 2 and after["mae"] == before["mae"]
    error = np.sqrt(coverage * (1 - coverage) * (1 / held_out["episodes"] + 1 / found["conformal"]["episodes"]))
    assert abs(held_out["coverage"] - coverage) < 4 * error
    assert 1 < held_out["mean_set_size"] < 4


def test_a_model_without_probabilities_gets_a_map_of_its_levels() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 5, 3000)
    levels = np.clip(3 + (truth - 2) * 0.4 + rng.normal(0, 0.3, 3000), 1, 5)  # shy: never far from the middle
    found = calibrate_trials(trials_with(None, levels, truth), 0.9, seed=0)
    held_out = found["held_out"]
    assert found["method"] == "isotonic" and held_out["before"]["nll"] is None
    assert held_out["after"]["mae"] < 0.7 * held_out["before"]["mae"]
    assert held_out["coverage"] == pytest.approx(0.9, abs=0.05)


def test_the_thirds_share_no_task_and_no_video_and_another_seed_splits_otherwise() -> None:
    _, said, truth = overconfident(600, heat=1.0)
    trials = trials_with(said, said.argmax(axis=1) + 1, truth, per_task=7)
    parts = split_trials(trials, seed=0, parts=3)
    for column in ("task", "video", "episode"):
        values = [set(part.text(column)) for part in parts]
        assert not (values[0] & values[1] or values[0] & values[2] or values[1] & values[2])
    assert sum(len(part) for part in parts) == 600 and min(len(part) for part in parts) > 180
    assert set(split_trials(trials, seed=1, parts=3)[0].text("task")) != set(parts[0].text("task"))


def test_too_little_data_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"3 sets .* each needs 10 or more; here the sets have 2, 2 and 1; use more episodes"
    ):
        fit_calibration("length", tiny_data, execution=IN_PROCESS, out=tmp_path / "run")


def test_a_certain_model_is_never_infinitely_surprised() -> None:
    probs = np.eye(5)[[0, 1, 2]]
    assert np.isfinite(negative_log_likelihood(probs, np.array([0, 1, 4])))


@pytest.mark.parametrize(
    ("score", "calibration", "levels"),
    [
        (Score(3, (0.05, 0.15, 0.5, 0.25, 0.05)), Calibration(1.0, (), 0.9, 0.8), [3, 4]),
        (Score(3, (0.1, 0.2, 0.4, 0.2, 0.1)), Calibration(1.0, (), 0.9, 0.1), [3]),  # never empty
        (Score(3, EVEN), Calibration(1.0, (), 0.9, None), [1, 2, 3, 4, 5]),  # too few episodes to rule anything out
        (Score(2.0), Calibration(None, ((1.0, 1.0), (5.0, 5.0)), 0.9, 1.2), [1, 2, 3]),
        (Score(2.0), Calibration(2.0, (), 0.9, 0.5), [1, 2, 3, 4, 5]),  # it has no probabilities this time
    ],
)
def test_the_set_holds_the_levels_that_are_not_too_strange(
    score: Score, calibration: Calibration, levels: list[int]
) -> None:
    assert prediction_set(apply_calibration(score, calibration), calibration) == levels


def test_a_calibrated_answer_keeps_what_the_model_said() -> None:
    class Talks:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            answers: list[Answer] = [
                Score(4, (0.0, 0.0, 0.2, 0.6, 0.2), (0.1, 0.9), "ANSWER: 4", ScoreInfo(novelty=0.2))
            ]
            answers += [Failure("no camera", "hm")]
            return answers[: len(episodes)]

    episodes = [episode_from_frames(moving_square("x", count=2), "t")] * 2
    answered, failed = Calibrated(Talks(), Calibration(2.0, (), 0.9, 0.75)).score(episodes)
    calibrated = as_score(answered)
    assert (calibrated.level, calibrated.progress) == (4, (0.1, 0.9))
    assert calibrated.raw == "ANSWER: 4"
    assert calibrated.info == ScoreInfo((3, 4, 5), 0.9, novelty=0.2, uncalibrated_level=4.0)
    probabilities = known(calibrated.probabilities)
    assert probabilities[3] < 0.6 and sum(probabilities) == pytest.approx(1)
    assert failed == Failure("no camera", "hm")


FIT = ["fit", "calibration", "length", "sample-sim", "--engine", "local", "--frames", "fps:1", "--out"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a calibration of length."""
    folder = tmp_path_factory.mktemp("fitted") / "cal"
    assert main([*FIT, str(folder)]) == 0
    return folder


def test_calibrate_writes_what_it_fitted_on_what_and_says_it(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((fitted / "calibration.json").read_text())
    assert (record["model"], record["fingerprint"]) == ("length", name_model("length").fingerprint)
    assert (record["data"], record["frames"], record["method"]) == ("sample-sim", "fps:1", "isotonic")
    assert record["data_digest"] == json.loads((fitted / "run.json").read_text())["plan"]["data_digest"]
    assert sum(record[part]["episodes"] for part in ("fit", "conformal", "held_out")) == 100
    assert main([*FIT, str(fitted)]) == 0  # costs nothing: every trial is there
    said = capsys.readouterr().out
    assert "an isotonic map of its levels, fitted on" in said and f"calibrated model: length+{fitted}" in said


def test_the_calibrated_model_is_named_by_its_model_and_the_folder_or_file(fitted: Path) -> None:
    named = name_model(f"length+{fitted}")
    check_model(named.build(), open_dataset("sample").episodes[:3])
    assert name_model(f"length+{fitted / 'calibration.json'}").build() == named.build()
    episodes = open_dataset("sample").episodes[:5]
    steps = json.loads((fitted / "calibration.json").read_text())["fitted"]["steps"]
    own, calibrated = (as_scores(model.build().score(episodes)) for model in (name_model("length"), named))
    said, meant = zip(*steps, strict=True)
    assert [m.level for m in calibrated] == pytest.approx([float(np.interp(o.level, said, meant)) for o in own])
    assert calibrated[0].progress == own[0].progress


def record_of(fitted: Path) -> dict[str, Any]:
    """Return what calibration.json holds, without its checksum, so that it may be edited."""
    record: dict[str, Any] = json.loads((fitted / "calibration.json").read_text())
    del record["sha256"]
    return record


def test_a_changed_calibration_is_another_model(fitted: Path, tmp_path: Path) -> None:
    record = record_of(fitted)
    copy = tmp_path / "mine.json"
    copy.write_text(json.dumps(record))
    before = name_model(f"length+{copy}").fingerprint
    record["fitted"]["threshold"] = 0.5
    copy.write_text(json.dumps(record))
    assert name_model(f"length+{copy}").fingerprint != before


def test_a_calibration_of_another_model_or_a_broken_one_is_refused(fitted: Path, tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match="was not fitted for length:50 but for length; run `rewardlab fit calibration length:50"
    ):
        name_model(f"length:50+{fitted}")
    record = record_of(fitted)
    for change, words in (
        ({"fingerprint": "0"}, "another version of it"),
        ({"fitted": {"temperature": None}}, "another kind of calibration"),
        ({"fitted": record["fitted"] | {"steps": []}}, "neither a temperature nor steps"),
        ({"fitted": record["fitted"] | {"temperature": "warm"}}, "temperature must be number or null, got 'warm'"),
        ({"fitted": record["fitted"] | {"temperature": 0}}, "temperature must be above 0"),
        ({"fitted": record["fitted"] | {"steps": [[1.0]]}}, "steps must be pairs"),
        ({"sha256": "0"}, "it was damaged or edited"),
    ):
        (tmp_path / "other.json").write_text(json.dumps(record | change))
        with pytest.raises(PlanError, match=words):
            name_model(f"length+{tmp_path / 'other.json'}")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(PlanError, match="it must hold a JSON object, got list"):
        name_model(f"length+{tmp_path / 'other.json'}")
    with pytest.raises(PlanError, match="there is no calibration in 'no/such/folder'"):
        name_model("length+no/such/folder")
    with pytest.raises(PlanError, match="coverage must be above 0"):
        fit_calibration("length", "sample", coverage=1.0)


def test_a_calibrated_model_is_judged_like_any_other(fitted: Path, tmp_path: Path) -> None:
    few = {"perturbations": "none", "controls": False, "limit": 6}
    plan = stress_plan((f"length+{fitted}", "length"), "sample", engine="local", out=tmp_path / "run", **few)
    trials = evaluate(plan).trials().rows()
    levels = {(t.model, t.episode): t for t in trials}
    for t in (t for t in trials if t.model != "length"):
        assert t.status == "scored" and t.info.uncalibrated_level == levels[("length", t.episode)].level


def test_calibrating_an_ensemble_writes_weights_by_the_error_of_its_members(tmp_path: Path) -> None:
    name = "ensemble:noisy-oracle:0.4,noisy-oracle:1.6@3,constant"
    calibrated = fit_calibration(name, "sample-sim", execution=IN_PROCESS, out=tmp_path / "cal")
    written = json.loads((calibrated.run.folder / "weights.json").read_text())
    part = split_trials(calibrated.run.trials(), seed=0, parts=3)[0]
    assert written["mae"] == member_errors(part) and written["fit"]["episodes"] == len(part)
    assert written["weights"] == pytest.approx({member: 1 / error for member, error in written["mae"].items()})
    assert written["weights"]["noisy-oracle:0.4"] > written["weights"]["noisy-oracle:1.6@3"]
    weighted = name_model(f"{name}?by=median&weights={calibrated.run.folder}").build()
    assert isinstance(weighted, Ensemble)
    assert weighted.weights == tuple(written["weights"][member] for member in weighted.names)
    assert name_model(f"{name}+{calibrated.run.folder}").sees_truth


def test_probabilities_that_no_temperature_mends_are_called_so() -> None:
    rng = np.random.default_rng(3)
    said = np.eye(5)[rng.integers(0, 5, 600)] * 0.95 + 0.01  # sure, and right by chance only
    record = calibrate_trials(trials_with(said, said.argmax(axis=1) + 1, rng.integers(0, 5, 600)), 0.9, seed=0)
    assert any(
        "no temperature from 0.05 to 20 suits it" in line
        for line in calibration_sentences(record | {"model": "guesser"})
    )
