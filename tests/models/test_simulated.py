from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.episode import Episode, Label, episode_from_frames
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Failure, Score
from rewardlab.data import open_dataset
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel
from rewardlab.models.simulated import NOISE, PAPER
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.plans import stress_plan

FRAMES = moving_square("x", count=4, size=8)
RAMP = (0.125, 0.375, 0.625, 0.875)


def built(argument: str) -> RewardModel:
    return name_model(f"simulated:{argument}").build()


def ramp(number: int, level: int = 3) -> Episode:
    return episode_from_frames(FRAMES, f"task {number}", label=Label(level, level == 5, RAMP))


@pytest.mark.parametrize("name", ["", *PAPER, "tuned@semantic=4"])
def test_every_simulated_model_keeps_the_contract(name: str) -> None:
    check_model(built(name), open_dataset("sample").episodes[:4])


@pytest.mark.parametrize(("name", "competence"), [("general", 0.72), ("general@visual=4", 0.40), ("tuned", 0.85)])
def test_its_errors_are_those_of_eq_1(name: str, competence: float) -> None:
    answers = built(name).score([ramp(i) for i in range(3000)])
    errors = np.array([a.progress for a in answers if isinstance(a, Score)]) - np.array(RAMP)
    np.testing.assert_allclose(errors.std(axis=0), NOISE * (1 - competence), rtol=0.06)
    assert np.corrcoef(errors[:, 0], errors[:, 1])[0, 1] == pytest.approx(0.40, abs=0.06)
    levels = np.array([a.level for a in answers if isinstance(a, Score)])
    inside = np.abs(4 * errors[:, -1]) < 2
    np.testing.assert_allclose((levels - 3)[inside], 4 * errors[inside, -1])


def test_the_same_question_gets_the_same_answer_and_another_model_another() -> None:
    model = built("general")
    assert model.score([ramp(1)]) == model.score([ramp(1)])
    assert model.score([ramp(1)]) != model.score([ramp(2)])
    assert model.score([ramp(1)]) != built("tuned").score([ramp(1)])


def test_without_truth_it_does_not_answer() -> None:
    (answer,) = built("general").score([episode_from_frames(FRAMES, "t")])
    assert isinstance(answer, Failure) and "does not guess" in answer.reason


def test_levels_stay_on_the_scale_and_progress_is_left_out_where_unknown() -> None:
    episodes = [episode_from_frames(FRAMES, f"task {i}", label=Label(1 + i % 5)) for i in range(200)]
    for answer in built("general@visual=4").score(episodes):
        assert isinstance(answer, Score) and 1 <= answer.level <= 5 and answer.progress is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("huge", "no simulated model is called 'huge'"),
        ("general@smell=2", "no category of a simulated model is called 'smell'"),
        ("general@visual=5", "got 'visual=5'"),
        ("general@visual", "got 'visual'"),
    ],
)
def test_a_wrong_name_is_refused(name: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        built(name)


def test_it_runs_in_a_stress_test_like_any_model(tiny_data: Path, tmp_path: Path) -> None:
    chosen = dict(controls=False, execution=Execution(workers=1, engine="local"), out=tmp_path / "run")
    plan = stress_plan(("simulated:general",), str(tiny_data), ("polite_filler",), (1,), **chosen)
    trials = evaluate(plan).trials()
    assert (trials.text("status") == "scored").sum() == 10  # five labelled episodes, clean and perturbed
