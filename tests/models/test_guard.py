"""The guard: doubtful successes are withheld, and the stated rate holds for new tasks."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.records import checksummed
from rewardlab.core.trial import Answer, Failure, GuardVerdict, Score
from rewardlab.core.video_encoding import encode
from rewardlab.evaluation.fit_guard import (
    EvaluatedClips,
    GuardTerms,
    control_risk,
    fit_guard,
    fit_logistic,
    fitted_guard,
)
from rewardlab.models import name_model
from rewardlab.models.contract import NamedModel
from rewardlab.models.controls import Constant
from rewardlab.models.guard import Guard, Guarded, clip_quality, distances, episode_quality, nearest_distance
from rewardlab.perturbations import choose_perturbations
from rewardlab.rl.reward_stream import RewardMode, RewardStream
from tests.conftest import moving_square, write_rows


class Optimist:
    """Claims a success with more or less confidence, by the letter that an instruction ends with."""

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [self._score(episode.instruction) for episode in episodes]

    def _score(self, instruction: str) -> Answer:
        if instruction.endswith("fail"):
            return Failure("no robot in sight")
        if instruction.endswith("low"):
            return Score(2.0, (0.0, 1.0, 0.0, 0.0, 0.0))
        p = 0.95 if instruction.endswith("sure") else 0.55
        return Score(5.0, (0.0, 0.0, 0.0, 1 - p, p))


GUARD = Guard(("success_logit",), (0.0,), (1.0,), (1.0,), 0.0, 0.3, ("open the door sure",), 0.1, "abstain")


def clip(instruction: str) -> Episode:
    return episode_from_frames(moving_square("a", count=4), instruction)


def verdict_of(answer: Answer) -> GuardVerdict:
    assert answer.info.guard is not None
    return answer.info.guard


def test_a_doubtful_success_is_withheld_and_everything_else_passes() -> None:
    sure, unsure, low, failed = Guarded(Optimist(), GUARD).score([clip(text) for text in ("sure", "un", "low", "fail")])
    assert isinstance(sure, Score) and verdict_of(sure).decision == "pass" and verdict_of(sure).risk == 0.05
    assert isinstance(unsure, Failure) and "abstains" in unsure.reason and "0.45" in unsure.reason
    assert verdict_of(unsure).decision == "abstain" and verdict_of(unsure).success_probability == 0.55
    assert isinstance(low, Score) and low.level == 2 and verdict_of(low).decision == "pass"
    assert failed == Failure("no robot in sight")


def test_the_policies() -> None:
    (held,) = Guarded(Optimist(), replace(GUARD, policy="hold")).score([clip("un")])
    assert isinstance(held, Score) and held.level == 4 and verdict_of(held).decision == "hold"
    (passed,) = Guarded(Optimist(), replace(GUARD, policy="pass")).score([clip("un")])
    assert isinstance(passed, Score) and passed.level == 5 and verdict_of(passed).risk == 0.45
    other = Guarded(Optimist(), replace(GUARD, policy="fallback"), Constant(2))
    replaced, kept = other.score([clip("un"), clip("sure")])
    assert isinstance(replaced, Score) and replaced.level == 2 and verdict_of(replaced).decision == "fallback"
    assert isinstance(kept, Score) and kept.level == 5
    (never,) = Guarded(Optimist(), replace(GUARD, threshold=None)).score([clip("sure")])
    assert isinstance(never, Failure)


@pytest.mark.parametrize("mode", ["final", "frame", "difference"])
def test_a_held_success_pays_no_more_than_level_4(mode: RewardMode) -> None:
    class Done:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [Score(5.0, progress=(0.1, 1.0, 0.5, 0.99)) for _ in episodes]

    (held,) = Guarded(Done(), replace(GUARD, policy="hold", threshold=None)).score([clip("sure")])
    assert isinstance(held, Score) and held.progress == (0.1, 0.75, 0.5, 0.75)
    stream = RewardStream("open the door", mode=mode, success_bonus=1.0)
    for frame in clip("sure").frames:
        stream.add(frame)
    stream.update(held)
    assert stream.reward(ended=True) == 0.75


def test_a_feature_that_is_missing_is_not_taken_for_a_good_one() -> None:
    class Silent:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            return [Score(5.0) for _ in episodes]

    assert isinstance(Guarded(Silent(), GUARD).score([clip("sure")])[0], Failure)


@pytest.mark.parametrize(
    ("perturbation", "feature", "sign"),
    [
        ("defocus_blur", "sharpness", -1),
        ("gaussian_noise", "noise", 1),
        ("low_light", "exposure", -1),
        ("contrast_down", "contrast", -1),
        ("desaturate", "saturation", -1),
        ("hold_last", "freeze", 1),
    ],
)
def test_each_shift_moves_its_measure_of_frame_quality(perturbation: str, feature: str, sign: int) -> None:
    episode = episode_from_frames(moving_square("a", count=16, size=64), "push the block")
    (chosen,) = choose_perturbations((perturbation,))
    changed = chosen(episode, 4, seed=0).episode
    assert sign * (clip_quality(changed.frames)[feature] - clip_quality(episode.frames)[feature]) > 0


def test_the_distance_of_instructions() -> None:
    known = ["open the drawer", "push the red block"]
    assert nearest_distance("Open the  drawer", known) == pytest.approx(0)
    assert 0 < nearest_distance("open the drawr", known) < nearest_distance("fold a towel", known) <= 1
    assert nearest_distance("x", []) == 1
    assert distances(["a b c", "a b c", "a b c"], ["1", "1", "2"]) == pytest.approx([0, 0, 0])


def test_the_rate_holds_for_new_tasks_in_simulation() -> None:
    """Tasks differ in how often failures are claimed and in their risks; the mean loss stays within the rate."""
    rng, rate, losses = np.random.default_rng(0), 0.15, []
    for _ in range(400):
        hardness = rng.beta(1, 3, 21)
        risks = rng.beta(2, 2, (21, 12)) * (0.5 + hardness[:, None])
        claimed = rng.random((21, 12)) < hardness[:, None] + 0.2
        tasks = np.repeat(np.arange(20), 12)
        threshold = control_risk(risks[:20].ravel(), claimed[:20].ravel(), tasks, rate)
        passed = claimed[20] & (risks[20] <= (-np.inf if threshold is None else threshold))
        losses.append(passed.mean())
    error = np.std(losses) / np.sqrt(len(losses))
    assert np.mean(losses) <= rate + 2 * error
    assert np.mean(losses) > rate / 3, "the threshold must not be careful beyond all need"


def test_too_few_tasks_let_nothing_pass_and_a_logistic_fit_orders_claims() -> None:
    assert control_risk(np.array([0.1, 0.2]), np.array([True, True]), np.array([0, 1]), 0.1) is None
    rng = np.random.default_rng(1)
    features = rng.normal(size=(400, 2))
    weights, bias = fit_logistic(features, features[:, 0] + 0.3 * rng.normal(size=400) > 0.5)
    assert weights[0] > 1 > abs(weights[1]) and bias < 0


@pytest.fixture(scope="module")
def many_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve tasks of eight clips; bright successes and failures, half of the failures dark."""
    folder = tmp_path_factory.mktemp("many")
    rows = []
    for number in range(96):
        task, success = number // 8, number % 2
        name = f"{number}.mp4"
        frames = moving_square(str(number), count=4, size=32)
        encode(frames if success else frames // (1 + number % 4), folder / name, fps=10)
        rows.append({"file_name": name, "task": f"task {'abcdefghijkl'[task]} of many", "reward": 5 if success else 1})
    return write_rows(folder, rows)


def fit_constant(data: Path, *, rate: float) -> int:
    """Fit a guard for a model that claims every clip a success, and return the exit code."""
    fit = ["fit", "guard", "constant:5", str(data), "--perturbations", "none", "--false-success", str(rate), "-q"]
    return main([*fit, "--engine", "local", "--out", "guard"])


def test_a_guard_is_fitted_used_by_name_and_bound_to_its_model(
    many_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit_constant(many_tasks, rate=0.3) == 0
    said = capsys.readouterr().out
    assert "guarded model: constant:5+guard" in said and "false success 100.0% ->" in said
    record = json.loads((tmp_path / "guard/guard.json").read_text())
    assert record["held_out"]["false_success"]["with"] < record["held_out"]["false_success"]["without"] == 1
    guarded = name_model("constant:5+guard")
    assert guarded.name == "constant:5+guard" and guarded.build().score([clip("task a of many")])
    assert main(["score", "constant:5+guard", str(many_tasks / "1.mp4"), "task a of many", "--json"]) in (0, 3)
    with pytest.raises(PlanError, match="was not fitted for constant:4 but for constant:5"):
        name_model("constant:4+guard")
    (tmp_path / "guard/guard.json").write_text("{}")
    with pytest.raises(PlanError, match="is no guard"):
        name_model("constant:5+guard")


def test_with_too_few_tasks_to_hold_some_out_the_effect_on_others_is_unknown(
    many_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit_constant(many_tasks, rate=0.17) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "like the 6 that its threshold was set on" in said and "there are too few tasks to hold some out" in said


def clips_of(tasks: int, *, claimed: bool) -> EvaluatedClips:
    """Thirty clips of each task, half of them successes."""
    count = 30 * tasks
    names = np.repeat([f"task {number}" for number in range(tasks)], 30).astype(object)
    success = np.arange(count) % 2 == 0
    rows = [{"success_logit": float(number % 7)} for number in range(count)]
    return EvaluatedClips(rows, np.full(count, claimed), success, np.ones(count, bool), names, names)


def test_what_a_guard_needs_is_said() -> None:
    with pytest.raises(DataError, match="needs failed clips of 19 tasks for the threshold, got 4"):
        fitted_guard(clips_of(4, claimed=True), clips_of(4, claimed=True), GuardTerms(0.05, "abstain", 0))
    with pytest.raises(DataError, match="10 true and 10 false or more, got 0 and 0"):
        fitted_guard(clips_of(4, claimed=False), clips_of(20, claimed=True), GuardTerms(0.05, "abstain", 0))
    with pytest.raises(PlanError, match="policy fallback needs"):
        fit_guard("constant:5", "sample", policy="fallback")


def test_a_guard_of_a_stranger_falls_back_to_no_code_and_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(fallback: str) -> NamedModel:
        record: dict[str, Any] = {
            "model": "constant:5",
            "fingerprint": name_model("constant:5").fingerprint,
            "fallback": fallback,
        }
        record |= {"guard": asdict(replace(GUARD, policy="fallback"))}
        (tmp_path / "guard.json").write_text(json.dumps(checksummed(record)), encoding="utf-8")
        return name_model(f"constant:5+{tmp_path}")

    assert [each.name for each in named("length").members] == ["constant:5", "length"]
    (tmp_path / "payload.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    server = "openai:m@http://127.0.0.1:9/v1?key_env=HOME"
    for text in ("payload:model", server, "ensemble:length,payload:model", f"remote:http://127.0.0.1:9+{tmp_path}"):
        with pytest.raises(PlanError, match="set REWARDLAB_FALLBACK to that text"):
            named(text)
    monkeypatch.setenv("REWARDLAB_FALLBACK", server)
    assert named(server).server


def test_the_quality_of_an_episode_is_that_of_its_clip() -> None:
    frames = moving_square("long", count=40, size=32)
    assert episode_quality(episode_from_frames(frames, "push")) == clip_quality(frames)
