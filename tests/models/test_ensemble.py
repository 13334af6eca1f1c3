import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from rewardlab.core.episode import LEVELS, Episode, Label, episode_from_frames, strip_labels
from rewardlab.core.errors import PlanError, StopRun
from rewardlab.core.settings import Execution, Scoring
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.data import open_dataset
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.composite import CachedModel, Ensemble, build_all, build_model, name_composite
from rewardlab.models.contract import Budget, NamedModel
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.narrowing import as_score, as_scores, known
from tests.plans import stress_plan

Combination = Literal["vote", "median", "mean"]
FRAMES = moving_square("x", count=2, size=8)


class Says:
    """Says the same of every episode."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        return [self.answer] * len(episodes)


def one(name: str = "t", level: int | None = None) -> Episode:
    return episode_from_frames(FRAMES, name, label=Label(level))


def combined(by: Combination, *answers: Answer, weights: tuple[float, ...] | None = None) -> Answer:
    names = tuple("abcdefg"[: len(answers)])
    ensemble = Ensemble(names, tuple(map(Says, answers)), by, weights or (1.0,) * len(answers))
    (answer,) = ensemble.score([one()])
    return answer


def distribution(truth: int, error: float) -> dict[int, float]:
    """What noisy-oracle:E says of a true level, from its own definition: off by ceil(E) with the chance E / ceil(E)."""
    step = int(np.ceil(error))
    inside = [level for level in (truth - step, truth + step) if level in LEVELS]
    return {truth: 1 - error / step} | {level: error / step / len(inside) for level in inside}


def by_hand(levels: tuple[int, ...], by: str) -> float:
    if by == "mean":
        return float(np.mean(levels))
    counts = {level: levels.count(level) for level in levels}
    tied = by == "median" or list(counts.values()).count(max(counts.values())) > 1
    return float(np.median(levels)) if tied else float(max(counts, key=counts.__getitem__))


def expected_error(errors: tuple[float, ...], by: str) -> float:
    """The mean absolute error over uniform truths and every combination of what the members can say."""
    total = 0.0
    for truth in LEVELS:
        for cell in product(*(distribution(truth, error).items() for error in errors)):
            levels, probs = zip(*cell, strict=True)
            total += np.prod(probs) * abs(by_hand(levels, by) - truth)
    return total / len(LEVELS)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["vote", "median", "mean"])
@pytest.mark.parametrize("errors", [(0.8, 0.8, 0.8), (0.3, 0.6, 1.5)])
def test_independent_errors_give_the_error_that_theory_predicts(by: str, errors: tuple[float, ...]) -> None:
    members = ",".join(f"noisy-oracle:{error}@{seed}" for seed, error in enumerate(errors))
    ensemble = name_model(f"ensemble:{members}?by={by}").build()
    truths = np.array([1 + i % 5 for i in range(5000)])
    answers = as_scores(ensemble.score([one(f"task {i}", int(level)) for i, level in enumerate(truths)]))
    found = np.abs(np.array([answer.level for answer in answers]) - truths)
    assert abs(found.mean() - expected_error(errors, by)) < 4 * found.std() / np.sqrt(len(truths))


def test_three_are_better_than_one_where_their_errors_are_independent_and_no_better_where_they_are_the_same() -> None:
    assert expected_error((0.5,) * 3, "vote") < 0.45 < 0.5
    episodes = [one(f"task {i}", 1 + i % 5) for i in range(200)]
    oracle = name_model("noisy-oracle:0.5").build()
    three = Ensemble(("a", "b", "c"), (oracle,) * 3, "vote", (1.0,) * 3)
    alone, same = ([score.level for score in as_scores(model.score(episodes))] for model in (oracle, three))
    assert alone == same


@pytest.mark.parametrize(
    ("by", "levels", "level"),
    [
        ("vote", (2.0, 2.4, 5.0), 2.0),
        ("vote", (1.0, 3.5, 5.0), 3.5),  # a tie: the median of what was said, not of what was rounded
        ("vote", (1.0, 1.0, 4.0, 4.0), 2.5),
        ("median", (1.0, 4.0, 5.0), 4.0),
        ("median", (1.0, 2.0, 4.0, 5.0), 3.0),
        ("mean", (1.0, 2.5, 4.0), 2.5),
    ],
)
def test_levels_are_combined_as_said(by: Combination, levels: tuple[float, ...], level: float) -> None:
    answer = combined(by, *(Score(value) for value in levels))
    assert isinstance(answer, Score) and answer.level == pytest.approx(level)
    assert sum(known(answer.probabilities)) == pytest.approx(1)


def test_disagreement_is_told_as_probabilities_and_spread() -> None:
    answer = as_score(combined("vote", Score(2.0), Score(2.2), Score(5.0)))
    np.testing.assert_allclose(np.array(answer.probabilities), [0, 2 / 3, 0, 0, 1 / 3])
    assert answer.raw is None and answer.info.member_levels == {"a": 2.0, "b": 2.2, "c": 5.0}
    assert answer.info.disagreement == pytest.approx(np.std([2.0, 2.2, 5.0]), abs=1e-4)


def test_the_mean_takes_probabilities_where_there_are_some_and_certainty_where_there_are_none() -> None:
    answer = as_score(combined("mean", Score(3.0, (0.1, 0.2, 0.4, 0.2, 0.1)), Score(4.25)))
    np.testing.assert_allclose(np.array(answer.probabilities), [0.05, 0.1, 0.2, 0.1 + 0.375, 0.05 + 0.125])
    assert answer.level == pytest.approx((3 + 4.25) / 2)


def test_progress_is_the_mean_of_the_members_that_tell_it() -> None:
    answer = combined("vote", Score(3, progress=(0.0, 1.0)), Score(3), Score(3, progress=(0.5, 0.5)))
    assert as_score(answer).progress == (0.25, 0.75)


def test_a_failed_member_is_left_out_and_named_and_only_all_of_them_fail_the_ensemble() -> None:
    answer = as_score(combined("vote", Score(4.0), Failure("no camera"), Score(4.0)))
    assert answer.level == 4 and answer.info.member_failures == {"b": "no camera"}
    assert sum(known(answer.probabilities)) == pytest.approx(1)
    nobody = combined("mean", Failure("no camera"), Failure("no light"))
    assert isinstance(nobody, Failure) and nobody.reason == "no member answered: a: no camera; b: no light"


def test_a_member_that_raises_or_breaks_the_contract_costs_only_its_own_voice() -> None:
    class Moody:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:
            if any("bad" in episode.instruction for episode in episodes):
                raise ValueError("not today")
            return [Score(9.0) if "odd" in episode.instruction else Score(1.0) for episode in episodes]

    ensemble = Ensemble(("moody", "calm"), (Moody(), Says(Score(3.0))), "mean", (1.0, 1.0))
    answers = as_scores(ensemble.score([one("fine"), one("bad"), one("odd")]))
    assert [answer.level for answer in answers] == [2.0, 3.0, 3.0]
    reasons = [answer.info.member_failures.get("moody") for answer in answers]
    assert reasons == [None, "ValueError: not today", "level must be a number from 1 to 5, got 9.0"]


def test_a_spent_budget_of_a_member_ends_the_run() -> None:
    class Spent:
        def score(self, episodes: Sequence[Episode]) -> list[Answer]:  # noqa: ARG002
            raise StopRun("the budget is spent")

    with pytest.raises(StopRun, match="budget"):
        Ensemble(("a", "b"), (Says(Score(2.0)), Spent()), "vote", (1.0, 1.0)).score([one()])


@pytest.mark.parametrize(("by", "level"), [("vote", 2.0), ("median", 2.0), ("mean", 0.6 * 2 + 0.2 * 4 + 0.2 * 5)])
def test_weights_from_a_file_count(tmp_path: Path, by: str, level: float) -> None:
    (tmp_path / "weights.json").write_text(json.dumps({"weights": {"constant:2": 3, "constant:4": 1, "length:1": 1}}))
    model = name_model(f"ensemble:constant:2,constant:4,length:1?by={by}&weights={tmp_path}")
    plain = name_model(f"ensemble:constant:2,constant:4,length:1?by={by}")
    (answer,) = as_scores(model.build().score([one()]))
    assert answer.level == pytest.approx(level)
    assert model.fingerprint != plain.fingerprint
    (tmp_path / "weights.json").write_text(json.dumps({"weights": {"constant:2": 1, "constant:4": 1, "length:1": 1}}))
    again = name_model(f"ensemble:constant:2,constant:4,length:1?by={by}&weights={tmp_path}")
    assert again.fingerprint != model.fingerprint


def test_options_before_a_comma_are_those_of_the_member_and_a_path_of_weights_may_hold_one(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(
        "from rewardlab import Score\nclass Says:\n    def __init__(self, level: float = 1.0): self.level = level\n"
        "    def score(self, episodes): return [Score(self.level) for _ in episodes]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        (answer,) = name_model("ensemble:says:Says?level=4,constant:4,length").build().score([one()])
    assert answer.info.member_levels["says:Says?level=4"] == 4.0
    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "weights.json").write_text(json.dumps({"weights": {"constant:2": 3, "constant:4": 1}}))
    (answer,) = name_model(f"ensemble:constant:2,constant:4?weights={folder}").build().score([one()])
    assert as_score(answer).level == 2.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ensemble", "two or more members"),
        ("ensemble:length", "two or more members"),
        ("ensemble:length,,random", "two or more members"),
        ("ensemble:length,random,length", "different models"),
        ("ensemble:ensemble:length,random", "no ensembles"),
        ("ensemble:length,randm", "did you mean random"),
        ("ensemble:length,random?by=luck", "vote, median or mean, got 'luck'"),
        ("ensemble:length,random?how=vote", "it takes by, weights"),
        ("ensemble:length,random?weights=no/such", "fit calibration ensemble:length,random DATA"),
        ("ensemble:length,noisy-oracle:0.5@x", "noisy-oracle: option seed must be a whole number"),
    ],
)
def test_a_wrong_ensemble_is_said_at_once(name: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        name_model(name)


@pytest.mark.parametrize("weights", ['{"weights": {"length": 1}}', '{"weights": {"length": 1, "random": -1}}', "[]"])
def test_a_wrong_file_of_weights_is_said_at_once(tmp_path: Path, weights: str) -> None:
    (tmp_path / "w.json").write_text(weights)
    with pytest.raises(PlanError, match=r"w\.json: e"):
        name_model(f"ensemble:length,random?weights={tmp_path / 'w.json'}")


def test_it_is_made_of_its_members() -> None:
    blind_one, seeing = name_model("ensemble:length,random"), name_model("ensemble:length,oracle")
    assert (blind_one.sees_truth, seeing.sees_truth) == (False, True)
    assert blind_one.fingerprint != name_model("ensemble:length,random:1").fingerprint
    assert blind_one.fingerprint != name_model("ensemble:length,random?by=mean").fingerprint
    assert not blind_one.exclusive
    big = NamedModel("big", "0", False, lambda _budget: Says(Score(2.0)), exclusive=True)
    assert name_composite("both", "", [big, blind_one], lambda built, _: built[0]).exclusive
    check_model(blind_one.build(), open_dataset("sample").episodes[:3])


def test_a_member_that_may_not_see_the_truth_does_not_see_it_beside_one_that_may() -> None:
    episode = one("task", 5)
    (answer,) = name_model("ensemble:oracle,random").build().score([episode])
    (alone,) = name_model("random").build().score([strip_labels(episode)])
    assert answer.info.member_levels == {"oracle": 5.0, "random": as_score(alone).level}


def counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Write a module `tally` whose model Eye writes down every question; return how to read them."""
    notes = folder / "notes"
    notes.touch()
    code = (
        "from rewardlab import Score\n"
        "class Eye:\n"
        "    def score(self, episodes):\n"
        f"        with open({str(notes)!r}, 'a') as file:\n"
        "            file.writelines(f'{e.clip.source.digest} {e.instruction}\\n' for e in episodes)\n"
        "        return [Score(1 + len(e.instruction) % 5) for e in episodes]\n"
    )
    (folder / "tally.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    return lambda: notes.read_text().splitlines()


def test_a_member_that_is_judged_too_is_asked_once(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counting(tmp_path, monkeypatch)
    ensemble = "ensemble:tally:Eye,oracle,random"
    plan = stress_plan(
        models=("tally:Eye", ensemble, "ensemble:tally:Eye,length?by=mean"),
        data=str(tiny_data),
        perturbations=("gaussian_noise", "polite_filler"),
        severities=(2,),
        scoring=Scoring(batch_size=4),
        execution=Execution(workers=1, engine="local"),
        out=tmp_path / "run",
    )
    trials = evaluate(plan).trials().rows()
    alone = {(t.episode, t.perturbation): t for t in trials if t.model == "tally:Eye"}
    assert len(asked()) == len(set(asked())) == len(alone) == 6 * 3
    levels: dict[str, dict[tuple[str, str], float | None]] = {t.model: {} for t in trials}
    for t in trials:
        levels[t.model][(t.episode, t.perturbation)] = t.level
    for t in (t for t in trials if t.model == ensemble and t.status == "scored"):
        said = t.info.member_levels
        assert said == {name: levels[name][(t.episode, t.perturbation)] for name in said}
    assert {t.reason for t in trials if t.model == ensemble and t.status == "dropped"} == {
        "the true level is unknown here, so an oracle is not asked"
    }


def test_only_models_that_are_asked_by_several_are_cached_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("length", "random", "ensemble:length,constant")
    built = build_all({name: name_model(name) for name in names}, Budget(), build_model)
    assert isinstance(built["length"], CachedModel) and not isinstance(built["random"], CachedModel)
    assert not isinstance(built[names[2]], CachedModel)
    monkeypatch.setattr("rewardlab.models.composite.MAX_CACHED", 3)
    cached = CachedModel(name_model("random").build())
    episodes = [one(f"task {i}") for i in range(8)]
    assert cached.score(episodes) == name_model("random").build().score(episodes)
    assert len(cached.cache) == 3
    assert cached.score(episodes[::-1]) == name_model("random").build().score(episodes[::-1])


class Counted(Says):
    """Says the same of every episode, and counts them."""

    def __init__(self, *levels: float) -> None:
        self.levels, self.asked = levels, 0

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        self.asked += len(episodes)
        return [Score(self.levels[int(e.instruction)], info=ScoreInfo(cost=0.5)) for e in episodes]


def test_early_exit_asks_the_third_member_only_where_the_first_two_differ() -> None:
    members = Counted(5.0, 5.0, 2.0), Counted(4.6, 3.0, 3.0), Counted(1.0, 3.4, 3.0)
    ensemble = Ensemble(("a", "b", "c"), members, "vote", (1.0,) * 3, early_exit=True)
    answers = as_scores(ensemble.score([one(str(place)) for place in range(3)]))
    assert [member.asked for member in members] == [3, 3, 2]
    assert [answer.level for answer in answers] == [5.0, 3.0, 3.0]
    assert [answer.info.skipped_members for answer in answers] == [1, 0, 0]
    assert [answer.info.cost for answer in answers] == [1.0, 1.5, 1.5]
    assert [*answers[0].info.member_levels] == ["a", "b"]
    plain = as_scores(Ensemble(("a", "b", "c"), members, "vote", (1.0,) * 3).score([one("0")]))[0]
    assert plain.level == 5.0 and plain.info.skipped_members is None


def test_early_exit_asks_on_where_one_of_the_first_two_fails() -> None:
    members = Says(Failure("no")), Says(Score(4.0)), Says(Score(2.0))
    (answer,) = as_scores(Ensemble(("a", "b", "c"), members, "median", (1.0,) * 3, early_exit=True).score([one()]))
    assert answer.level == 3.0 and answer.info.skipped_members == 0


def test_early_exit_needs_a_third_member_and_is_another_model() -> None:
    with pytest.raises(PlanError, match="early_exit saves the third member"):
        name_model("ensemble:length,random?early_exit=yes")
    plain, early = (name_model(f"ensemble:length,random,constant{options}") for options in ("", "?early_exit=yes"))
    assert plain.fingerprint != early.fingerprint and early.name.endswith("?early_exit=yes")
