"""Reward models inside other harnesses: the real packages run them, found by their entry points."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import episode_from_frames
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.video_encoding import encode
from rewardlab.serving.harnesses import ClipJudge, clip_of_record, inspect_robots_grader
from tests.conftest import moving_square

POINTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]


def answer(level: float, **info: Any) -> Any:
    from rewardlab import Score
    from rewardlab.core.trial import ScoreInfo

    return Score(level, info=ScoreInfo(**info))


class Five:
    """Calls every clip a success."""

    def score(self, episodes: Any) -> list[Any]:
        return [answer(5.0) for _ in episodes]


class Stranger(Five):
    """Calls every clip a success, and unlike its training data."""

    def score(self, episodes: Any) -> list[Any]:
        return [answer(5.0, unfamiliar=True) for _ in episodes]


class Silent(Five):
    """Has no answer."""

    def score(self, episodes: Any) -> list[Any]:
        raise RuntimeError(f"out of order: {len(episodes)}")


def named(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


def test_a_judge_calls_success_failure_or_nothing() -> None:
    episode = episode_from_frames(moving_square("push"), "push the square")
    assert ClipJudge(named(Five), "uniform:4", False).verdict(episode).success is True
    assert ClipJudge("constant", "uniform:4", False).verdict(episode).success is False
    stranger = ClipJudge(named(Stranger), "uniform:4", False).verdict(episode)
    assert stranger.success is None and "do not use this answer" in stranger.sentence
    assert ClipJudge(named(Stranger), "uniform:4", True).verdict(episode).success is True
    silent = ClipJudge(named(Silent), "uniform:4", False).verdict(episode)
    assert silent.success is None and "out of order" in silent.sentence


def test_a_judge_that_needs_the_truth_or_a_wrong_setting_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match="oracle reads the true label"):
        inspect_robots_grader("oracle")
    with pytest.raises(PlanError, match="frames must be"):
        inspect_robots_grader(named(Five), frames="uniform:1")


# inspect-robots


@pytest.fixture
def inspect_robots() -> Any:
    return pytest.importorskip("inspect_robots", reason="needs pip install inspect-robots")


def record_of_frames(frames: list[dict[str, Any]]) -> Any:
    """Return a record of a trial whose observations are these images by camera."""
    from inspect_robots.rollout import StepRecord, TrialRecord
    from inspect_robots.types import Action, Observation, StepResult

    seen = [Observation(images=images) for images in frames]
    steps = [
        StepRecord(t, before, Action(np.zeros(2)), StepResult(after))
        for t, (before, after) in enumerate(pairwise(seen))
    ]
    return TrialRecord("scene", 0, 0, steps=steps)


@pytest.mark.usefixtures("inspect_robots")
def test_its_entry_point_makes_the_grader_that_the_harness_expects() -> None:
    from inspect_robots.grader import Grader

    (name, value), *others = POINTS["inspect_robots.graders"].items()
    grader = EntryPoint(name, value, "inspect_robots.graders").load()(model=named(Five))
    assert not others and name == "rewardlab" == grader.name and isinstance(grader, Grader)
    assert grader.config()["model"] == named(Five)


@pytest.mark.usefixtures("inspect_robots")
def test_a_clip_is_every_frame_of_one_camera_from_first_to_last(tmp_path: Path) -> None:
    from inspect_robots.frames import FrameRef

    images = [{"wrist": np.full((4, 4, 3), 9, np.uint8), "front": np.full((4, 6, 3), n, np.uint8)} for n in range(4)]
    record = record_of_frames(images)
    assert clip_of_record(record)[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert clip_of_record(record, "wrist").shape == (4, 4, 4, 3)
    with pytest.raises(DataError, match="expected frames of top, the trial has front, wrist"):
        clip_of_record(record, "top")
    with pytest.raises(DataError, match="has none"):
        clip_of_record(record_of_frames([{}, {}]))
    with pytest.raises(DataError, match="uint8"):
        clip_of_record(record_of_frames([{"front": np.zeros((4, 4), np.uint8)}] * 2))
    np.save(tmp_path / "frame.npy", images[3]["front"])
    stored = record_of_frames([{}, {}]).steps[0]
    reference = {"front": FrameRef("front", 0, str(tmp_path / "frame.npy"))}
    object.__setattr__(stored, "image_refs", reference)
    object.__setattr__(stored, "result_image_refs", reference)
    record.steps[:] = [stored]
    assert clip_of_record(record)[:, 0, 0, 0].tolist() == [3, 3]


@pytest.mark.usefixtures("inspect_robots")
def test_a_grader_never_overturns_a_person_or_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    from inspect_robots import Scene

    grader, scene = inspect_robots_grader(named(Five)), Scene(id="s", instruction="push")
    record = record_of_frames([{"front": np.zeros((8, 8, 3), np.uint8)}] * 3)
    record.operator_judgement = "no"
    grader.grade(record, scene)
    assert record.operator_judgement == "no" and not record.events
    record.operator_judgement, record.terminated, record.termination_reason = None, True, "failure"
    grader.grade(record, scene)
    assert record.operator_judgement == "failure" and record.operator_note is None
    record.operator_judgement, record.termination_reason = None, "out_of_bounds"
    grader.grade(record, scene)
    assert record.operator_judgement == "success" and "level 5.00" in str(record.operator_note)
    assert [event.data["source"] for event in record.events] == ["embodiment", "rewardlab"]
    record.operator_judgement = None
    for kind in (Stranger, Silent):
        inspect_robots_grader(named(kind)).grade(record, scene)
        assert record.operator_judgement is None and "trial left ungraded" in capsys.readouterr().err


@pytest.mark.usefixtures("inspect_robots")
def test_it_grades_a_whole_evaluation(tmp_path: Path) -> None:
    from inspect_robots import Scene, Task, eval
    from inspect_robots.mock import CubePickEmbodiment, NoopPolicy
    from inspect_robots.scorer import operator_scorer

    for kind, said, value in ((Five, "success", 1.0), (Silent, None, 0.0)):
        scenes = [Scene(id=f"scene-{n}", instruction="reach the cube", init_seed=n) for n in range(2)]
        task = Task(name="reach", scenes=scenes, scorer=operator_scorer(), max_steps=3)
        robot = CubePickEmbodiment()
        (log,) = eval(task, NoopPolicy(), robot, grader=inspect_robots_grader(named(kind)), log_dir=str(tmp_path))
        judged = [(sample.operator_judgements, sample.epochs[0]["operator"]) for sample in log.samples]
        assert judged == [((said,), value)] * 2
        assert log.eval.grader == "rewardlab" and log.eval.grader_config["model"] == named(kind)


# inspect_ai, in a process of its own: it leaves streams open, about which Python warns at any later moment

EVALUATE = """
import json, sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample

point, clip, folder, *models = sys.argv[1:]
made = EntryPoint("rewardlab", point, "inspect_ai").load()
samples = [
    Sample(input="push the square", metadata={"video": clip}),
    Sample(input="watch", metadata={"video": clip, "instruction": "push the square"}),
    Sample(input="no clip"),
]
for model in models:
    task = Task(dataset=samples, solver=[], scorer=made(model=model, frames="uniform:4"))
    (log,) = eval(task, model="mockllm/model", log_dir=folder, display="none")
    result = log.results.scores[0]
    scores = [next(iter(sample.scores.values())).model_dump(mode="json") for sample in log.samples]
    metrics = {name: each.value for name, each in result.metrics.items()}
    print(json.dumps([log.status, result.name, metrics, result.unscored_samples, scores]))
"""


@pytest.mark.slow
def test_inspect_ai_scores_a_video_that_a_sample_names(tmp_path: Path) -> None:
    if find_spec("inspect_ai") is None:
        pytest.skip("needs pip install inspect-ai")
    encode(moving_square("push"), tmp_path / "clip.mp4", fps=10)
    (name, point), *others = POINTS["inspect_ai"].items()
    assert name == "rewardlab" and not others
    models = [named(Five), "constant", named(Silent)]
    arguments = [sys.executable, "-c", EVALUATE, point, str(tmp_path / "clip.mp4"), str(tmp_path), *models]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    right, wrong, silent = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert right[:2] == ["success", "reward_model"] and right[2]["accuracy"] == 1.0 and right[3] == 1
    first, second, third = right[4]
    assert (first["value"], second["value"], third["reason"]) == (1.0, 1.0, "scoring_failed")
    assert "expected the path of a video" in third["explanation"]
    assert first["metadata"]["instruction"] == second["metadata"]["instruction"] == "push the square"
    assert wrong[4][0]["value"] == 0.0 and "constant: level" in wrong[4][0]["explanation"]
    assert silent[3] == 3 and "out of order" in silent[4][0]["explanation"]
