"""Tasks that a model was trained on, and others: never in one number without being told apart."""

from pathlib import Path

import pytest

import rewardlab
from rewardlab.core.run import start_run
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Trial
from rewardlab.evaluation.summary import summarise
from rewardlab.models import name_model
from rewardlab.reporting.findings_text import findings
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import split_of_task
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial

# Of two tasks the model knows one: there it is right, on the other it says 1 of everything.
ANSWERS = {"known": ((5, 5), (2, 2)), "other": ((1, 5), (1, 3))}  # (level, truth)


def cell(model: str, task: str, number: int, level: int, truth: int) -> Trial:
    name = f"{task} {number}"
    return trial(float(level), truth, id=f"{model} {name}", model=model, episode=name, video=name, task=task)


def some_trials() -> list[Trial]:
    pairs = [(task, n, *pair) for task, answers in ANSWERS.items() for n, pair in enumerate(answers)]
    judged = [cell("judge", task, n, level, truth) for task, n, level, truth in pairs]
    return judged + [cell("constant", task, n, 3, truth) for task, n, _, truth in pairs]


def test_the_numbers_of_both_kinds_are_those_counted_by_hand(tmp_path: Path) -> None:
    trials = some_trials()
    record = record_of(trials, evaluated=["judge"], trained_tasks={"judge": ["known", "not in the data"]})
    run = start_run(tmp_path / "run", record)
    run.append(trials)
    found = {(f.tasks, f.metric): (f.value, f.blind, f.episodes) for f in summarise(run).familiarity}
    assert found == {
        ("seen", "micro_mae"): (0.0, 1.5, 2),
        ("unseen", "micro_mae"): (3.0, 1.0, 2),
        ("seen", "success_accuracy"): (1.0, 0.5, 2),
        ("unseen", "success_accuracy"): (0.5, 0.5, 2),
    }
    said = " ".join(findings(summarise(run), "judge"))
    assert "0.00" in said and "on tasks seen in training (2 episodes; constant 1.50)" in said
    assert "on tasks not seen in training (2 episodes; constant 1.00)" in said


@pytest.mark.parametrize("trained", [{}, {"judge": ["elsewhere"]}])
def test_nothing_is_said_where_the_tasks_are_not_known(tmp_path: Path, trained: dict[str, list[str]]) -> None:
    trials = some_trials()
    run = start_run(tmp_path / "run", record_of(trials, evaluated=["judge"], trained_tasks=trained))
    run.append(trials)
    assert summarise(run).familiarity == ()
    assert "trained on" not in " ".join(findings(summarise(run), "judge"))


def test_the_shipped_models_say_what_they_were_trained_on() -> None:
    tasks = name_model("pocket").trained_tasks
    assert set(tasks) == set(TASKS) == set(name_model("pocket-large").trained_tasks)
    assert {split_of_task(task) for task in name_model("pocket-plain").trained_tasks} == {"train", "val"}
    assert name_model("ensemble:pocket,constant").trained_tasks == tuple(sorted(tasks))
    assert name_model("constant").trained_tasks == ()


@pytest.mark.slow
def test_a_run_of_shipped_models_tells_them_apart(tmp_path: Path) -> None:
    run = rewardlab.stress(
        ("pocket", "pocket-plain"),
        "sample-sim",
        perturbations=("none",),
        execution=Execution(engine="local", quiet=True),
        out=tmp_path / "run",
    )
    found = {(f.model, f.tasks): f.episodes for f in run.summary.familiarity if f.metric == "micro_mae"}
    assert set(found) == {("pocket", "seen"), ("pocket-plain", "seen"), ("pocket-plain", "unseen")}
    assert found["pocket", "seen"] == found["pocket-plain", "seen"] + found["pocket-plain", "unseen"] == 100
    assert "on tasks seen in training (100 episodes" in " ".join(findings(run.summary, "pocket"))
