"""Chains of Meta-World tasks: one simulation, the truth of every stage, and what is collected of them."""

from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.augmentation.questions import Question
from rewardlab.augmentation.teachers import ScriptedTeacher
from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.run import open_run
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Failure
from rewardlab.data import open_dataset
from rewardlab.data.roboreward_rows import stage_row
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.summary import load_summary
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.worlds import open_world
from rewardlab.worlds.metaworld.instructions import draw_instructions, joined_text
from rewardlab.worlds.metaworld.physics import (
    TASKS,
    Floats,
    StepState,
    Trajectory,
    load_module,
    new_simulator,
    replay_actions,
    reset_scene,
    simulate,
)
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.tasks import CHAINS, SPLITS, split_of_task
from rewardlab.worlds.plan import stage_of
from tests.worlds.conftest import rows_of, same

QUIET = Execution(workers=1, quiet=True)
DRAWER = "drawer-open+drawer-close"
COFFEE = "coffee-push+coffee-button"


def done_at(trajectory: Trajectory) -> list[int | None]:
    """Return the step at which each stage first succeeds."""
    paths = [[reading.success for reading in stage.readings] for stage in trajectory.stages]
    return [path.index(True) if any(path) else None for path in paths]


def rows(trajectory: Trajectory) -> list[dict[str, object]]:
    every = np.arange(len(trajectory.readings))
    return [stage_row(stage_of(stage.task, stage.progress, every)) for stage in trajectory.stages]


@pytest.fixture(scope="module")
def drawer_chain() -> Trajectory:
    return simulate(DRAWER, 3, 320, make_policy("expert", DRAWER, 3))


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_an_expert_does_the_tasks_of_every_chain_in_order(chain: str) -> None:
    trajectory = simulate(chain, 2, 400, make_policy("expert", chain, 2))
    ends = [end for end in done_at(trajectory) if end is not None]
    assert trajectory.name == chain and [stage.task for stage in trajectory.stages] == chain.split("+")
    assert len(ends) == len(trajectory.stages) and ends == sorted(set(ends))
    assert trajectory.readings[-1].success and trajectory.progress[-1] == 1
    for before, stage in zip(ends, trajectory.stages[1:], strict=False):
        assert (stage.progress[:before] == 0).all()  # nothing counts before the earlier task is done
    assert all("undone" not in row for row in rows(trajectory))


def test_progress_of_the_whole_rises_to_one_as_the_mean_of_the_stages(drawer_chain: Trajectory) -> None:
    whole = drawer_chain.progress
    mean = np.mean([stage.progress for stage in drawer_chain.stages], axis=0)
    assert np.allclose(whole[mean < 0.99], mean[mean < 0.99]) and whole[0] == 0 and whole[-1] == 1
    assert np.diff(whole[::8]).min() > -0.02
    first, second = done_at(drawer_chain)
    assert first and second and (whole[first:second] >= 0.5).all() and (whole[:second] < 1).all()


def test_the_truth_of_each_stage_is_the_success_of_its_task_in_the_simulator(drawer_chain: Trajectory) -> None:
    first, second = done_at(drawer_chain)
    assert first and second
    alone = replay_actions("drawer-open", 3, drawer_chain.actions)  # the same simulation, measured as one task
    assert same(alone.qpos, drawer_chain.qpos)
    assert [reading.success for reading in alone.readings].index(True) == first
    assert not alone.readings[-1].success  # the drawer is closed again, and the first stage stays done
    assert drawer_chain.stages[0].readings[-1].success
    mujoco, env = load_module("mujoco"), new_simulator("drawer-close")
    reset_scene(env, 0, drawer_chain.body_pos[env.model.body("drawer").id])
    found = []
    for qpos in drawer_chain.qpos:
        env.data.qpos[:] = qpos
        mujoco.mj_forward(env.model, env.data)
        found.append(bool(env.evaluate_state(env._get_obs(), np.zeros(4, np.float32))[1]["success"]))
    assert found[0]  # a drawer that is closed before it was opened is no stage done
    assert [reading.success for reading in drawer_chain.stages[1].readings][first:] == found[first:]
    assert found.index(True, first) == second


def test_one_that_stops_after_the_first_task_leaves_the_second_undone() -> None:
    ends = []
    for seed in range(4):
        trajectory = simulate(DRAWER, seed, 320, make_policy("stops_early", DRAWER, seed, limit=0.3))
        ends.append(tuple(end is not None for end in done_at(trajectory)))
        assert not trajectory.readings[-1].success and rows(trajectory)[1]["end"] is None
    assert set(ends) == {(True, False), (False, False)}


def test_a_stage_that_nothing_asks_to_reverse_is_undone_by_a_mistake() -> None:
    expert, done = make_policy("expert", "coffee-push", 1), list[int]()

    def push_then_drag(state: StepState) -> Floats:
        now = state.stages[0]
        if not done and not now.success:
            return expert(now)
        done.append(state.step)
        return np.array([0.0, 0.0, 0.0, 1.0]) if len(done) < 10 else np.array([0.0, -1.0, 0.0, 1.0])

    trajectory = simulate(COFFEE, 1, 160, push_then_drag)
    first, second = rows(trajectory)
    assert first["end"] == done[0] and "undone" in first and second["end"] is None


def test_a_replay_of_a_chain_passes_through_the_same_states(drawer_chain: Trajectory) -> None:
    simulate("drawer-close", 5, 5, make_policy("random", "drawer-close", 5))
    again = replay_actions(DRAWER, 3, drawer_chain.actions)
    assert same(again.qpos, drawer_chain.qpos) and same(again.progress, drawer_chain.progress)
    alone = [simulate("drawer-close", 5, 9, make_policy("expert", "drawer-close", 5)).qpos for _ in range(2)]
    assert same(*alone)


def test_the_instruction_asks_for_the_tasks_in_their_order(drawer_chain: Trajectory) -> None:
    texts = draw_instructions(drawer_chain, "train", np.random.default_rng(0))
    whole = joined_text(texts)
    assert whole.startswith(texts[0][:-1] + ", then ") and whole.lower().endswith(texts[1].lower())
    chain = "coffee-push+coffee-pull"
    start = simulate(chain, 2, 1, lambda _: np.zeros(4))
    assert "closer to the robot" in draw_instructions(start, "train", np.random.default_rng(0))[1]


def test_a_chain_is_in_the_split_of_its_tasks_that_is_kept_longest() -> None:
    for chain in CHAINS:
        assert set(chain.split("+")) <= set(TASKS)
        splits = [list(SPLITS).index(split_of_task(task)) for task in chain.split("+")]
        assert list(SPLITS).index(split_of_task(chain)) == max(splits)


# What is collected.


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chains")
    rewardlab.collect("metaworld", tasks=(DRAWER, COFFEE), episodes=2, quality=("expert", "random"), frames=(36, 40),
                      size=64, distractors=1, counterfactuals=1, execution=QUIET, out=folder)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def episodes(dataset: Path) -> tuple[Episode, ...]:
    contents = open_dataset(str(dataset))
    assert not contents.problems
    return tuple(episode for episode in contents.episodes if episode.label.stages)


@pytest.mark.slow
def test_rows_have_stages_in_order_and_the_progress_of_the_whole(dataset: Path, episodes: tuple[Episode, ...]) -> None:
    own = [row for row in rows_of(dataset) if "stages" in row]
    assert len(own) == len(episodes) == 4 and {row["task_id"] for row in own} == {DRAWER, COFFEE}
    for row, episode in zip(own, episodes, strict=True):
        assert len(episode.label.stages) == 2 and len(row["progress"]) == len(episode.clip)
        assert row["success"] == (row["reward"] == 5) == all(stage.done[-1] for stage in episode.label.stages)
        assert row["quality"] == "random" or row["success"]
        if row["success"]:
            first, second = (stage["end"] for stage in row["stages"])
            assert 0 < first < second and row["progress"][first] >= 0.5 and row["progress"][second] == 1
    others = [row for row in rows_of(dataset) if "counterfactual" in row]
    assert {(row["counterfactual"], row["reward"]) for row in others} == {("another_thing", 1)}


@pytest.mark.slow
@pytest.mark.parametrize("entry", WORLD_PERTURBATIONS, ids=lambda entry: entry.name)
def test_changed_worlds_apply_to_a_chain_or_say_why_not(entry: Perturbation, episodes: tuple[Episode, ...]) -> None:
    episode = sample_frames(episodes[0], frame_policy("uniform:3"))
    try:
        changed = entry(episode, 4, 1)
    except NotApplicable:
        assert entry.name in ("world_goal_hidden", "world_robot", "world_distractors")
        return
    assert changed.expect == "same" and changed.episode.label == episode.label and episode.sim_state is not None
    assert not same(changed.episode.frames, open_world(episode.sim_state).render(episode.clip.order))


@pytest.mark.slow
def test_bench_measures_the_stages_of_chains(dataset: Path, tmp_path: Path) -> None:
    run = rewardlab.bench(["length"], dataset, stages=True, controls=False, out=tmp_path / "run", execution=QUIET)
    summary = load_summary(open_run(run.folder))
    assert summary.clean("length", "stage_success_accuracy").asked == 8
    assert summary.clean("length", "stage_order").value == 0.5  # it does not read the instruction
    assert summary.clean("length", "falls_when_undone").asked == 0


@pytest.mark.slow
def test_the_scripted_teacher_says_that_it_knows_one_task_alone(episodes: tuple[Episode, ...]) -> None:
    (answer,) = ScriptedTeacher().answer([Question("analysis", "vision", "", episodes[0], episodes[0].instruction)])
    assert isinstance(answer, Failure) and "one task" in answer.reason


@pytest.mark.parametrize("setting", [{"marker": True}, {"captions": True}])
def test_what_means_one_task_is_refused_for_chains(setting: dict[str, bool]) -> None:
    with pytest.raises(PlanError, match="several goals"):
        rewardlab.collect("metaworld", tasks=("chains",), out=Path("unused"), **setting)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="did you mean drawer-open"):
        rewardlab.collect("metaworld", tasks=("drawer-open+drawer-closed",), out=Path("unused"))
