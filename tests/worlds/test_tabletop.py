"""The procedural tabletop: exact progress of every task and quality, replay, edits, commands, and collecting."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import DONE, Episode, Frames, level_of_progress
from rewardlab.core.errors import DataError, NotApplicable, PlanError
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.testing import check_perturbation
from rewardlab.worlds import WORLDS, open_world
from rewardlab.worlds.collection import SIMULATORS
from rewardlab.worlds.metaworld.tasks import FOLDS, SPLITS
from rewardlab.worlds.tabletop.catalog import KINDS, VERBS, seen_vocabulary, thing_kinds, unseen_vocabulary
from rewardlab.worlds.tabletop.goals import (
    Goal,
    draw_text,
    draw_texts,
    goals_of,
    in_steps,
    joined_text,
    names_of,
    phrasings,
    progress,
    texts_of,
)
from rewardlab.worlds.tabletop.meshes import meshes
from rewardlab.worlds.tabletop.recording import TASKS, stages_of, training_clips
from rewardlab.worlds.tabletop.render import render_states
from rewardlab.worlds.tabletop.replay import (
    edited,
    goal_of_command,
    graded_commands,
    level_of_command,
    open_record,
    video_steps,
)
from rewardlab.worlds.tabletop.rollouts import QUALITIES, STEPS, THREE_STEPS, TWO_STEPS, Rollout, make_rollout
from rewardlab.worlds.tabletop.scene import usable_verbs
from tests.worlds.conftest import rows_of, same

SEEDS = range(4)
NAMES = {entry.name: entry for entry in WORLD_PERTURBATIONS}
PRIMITIVES = {"box", "sphere", "capsule", "cylinder", "ellipsoid"}


def end(rollout: Rollout, goal: Goal | None = None) -> float:
    return float(progress(rollout.scene, rollout.states, goal or rollout.goal)[-1])


# The catalog.


def test_the_catalog_has_things_of_every_role_made_of_known_parts() -> None:
    assert len(thing_kinds("movable")) >= 30 and len(thing_kinds("receptacle")) >= 8
    assert len(thing_kinds("articulated")) >= 10
    for kind in KINDS.values():
        assert all(part.shape in PRIMITIVES | set(meshes()) for part in kind.parts)
        assert any(part.moving for part in kind.parts) == (kind.joint is not None)
        # What may be called by its colour has it.
        assert len(kind.colours) == 1 or {"main", "lamp"} & {part.paint for part in kind.parts}
    assert set(phrasings()) == set(VERBS)


def test_folds_hold_out_kinds_and_verbs_that_together_are_all() -> None:
    folds = [unseen_vocabulary(fold) for fold in range(FOLDS)]
    assert sum(len(fold.kinds) for fold in folds) == len(KINDS)
    assert sum(len(fold.verbs) for fold in folds) == len(VERBS)
    for number, fold in enumerate(folds):
        assert {KINDS[name].role for name in fold.kinds} == {"movable", "receptacle", "articulated"}
        assert not fold.kinds & seen_vocabulary(number).kinds and not fold.verbs & seen_vocabulary(number).verbs
        assert usable_verbs(fold) and len(usable_verbs(seen_vocabulary(number))) >= 10


def test_a_training_of_a_fold_sees_no_kind_and_no_verb_that_is_held_out() -> None:
    vocabulary, unseen = seen_vocabulary(0), unseen_vocabulary(0)
    for clip in training_clips(range(12), vocabulary=vocabulary, render=False):
        scene = clip.rollout.scene
        assert not {thing.kind for thing in (*scene.things, *scene.clutter)} & unseen.kinds
        assert not {verb for asked in clip.asked for verb in asked.goal.verbs} & unseen.verbs


def test_a_verb_without_its_kinds_is_refused() -> None:
    with pytest.raises(PlanError, match="no kinds for the verb 'pour'"):
        make_rollout(0, "pour", vocabulary=replace(seen_vocabulary(0), kinds=frozenset({"block", "plate"})))


# Rollouts and progress.


@pytest.mark.parametrize("task", TASKS)
def test_a_success_ends_at_one_and_begins_at_nothing(task: str) -> None:
    for seed in SEEDS:
        rollout = make_rollout(seed, task, "success")
        path = progress(rollout.scene, rollout.states, rollout.goal)
        assert path[0] < 0.1 and path[-1] == 1.0 and ((path >= 0) & (path <= 1)).all()
        assert rollout.goal.verb == task or task in STEPS


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("quality", ["missed_grasp", "near_miss", "idle"])
def test_a_failure_never_ends_as_success(task: str, quality: str) -> None:
    for seed in SEEDS:
        assert end(make_rollout(seed, task, quality)) < 1


def test_a_near_miss_comes_nearer_than_a_missed_grasp_and_an_idle_arm_does_nothing() -> None:
    ends: dict[str, list[float]] = defaultdict(list)
    for quality in ("near_miss", "missed_grasp", "idle"):
        for task in VERBS:
            ends[quality].append(end(make_rollout(1, task, quality)))
    assert np.mean(ends["near_miss"]) > 0.5 > 0.15 > np.mean(ends["missed_grasp"])
    assert max(ends["idle"]) < 0.1


@pytest.mark.parametrize("task", ["lift", "put-in", "open", "press", "turn", "stack", "slide"])
def test_what_is_undone_was_done_before(task: str) -> None:
    done = []
    for seed in SEEDS:
        rollout = make_rollout(seed, task, "undone")
        path = progress(rollout.scene, rollout.states, rollout.goal)
        done.append(path.max() == 1 and path[-1] < 0.7)
    assert sum(done) >= 3


@pytest.mark.parametrize("task", ["lift", "put-on", "close", "push", "pour"])
def test_a_second_try_succeeds_after_a_first_that_did_not(task: str) -> None:
    for seed in SEEDS:
        rollout = make_rollout(seed, task, "retried")
        path = progress(rollout.scene, rollout.states, rollout.goal)
        assert path[-1] == 1 and (path[: len(path) // 3] < 1).all()


def test_one_that_stops_stands_still_at_the_end() -> None:
    rollout = make_rollout(2, "put-in", "stop")
    last = rollout.states.at(np.arange(len(rollout.states) - 8, len(rollout.states)))
    assert np.ptp(last.hand, axis=0).max() == 0 and np.ptp(last.place, axis=0).max() == 0


def test_the_wrong_thing_moves_and_the_right_one_does_not() -> None:
    for seed in range(8):
        rollout = make_rollout(seed, "lift", "wrong_thing")
        moved = np.abs(rollout.states.place - rollout.states.place[0]).max(axis=(0, 2))
        assert moved[rollout.goal.thing] < 1e-9


def test_a_held_thing_moves_with_the_hand_and_everything_else_stays() -> None:
    rollout = make_rollout(3, "lift", "success")
    states, thing = rollout.states, rollout.goal.thing
    held = states.held == thing
    apart = np.linalg.norm(states.hand - states.place[:, thing], axis=1)[held]
    assert held.any() and np.ptp(apart) < 1e-9
    others = [number for number in range(len(rollout.scene.things)) if number != thing]
    assert np.ptp(states.place[:, others], axis=0).max(initial=0) == 0


def test_the_same_seed_gives_the_same_rollout_and_another_gives_another() -> None:
    one, again, other = make_rollout(5), make_rollout(5), make_rollout(6)
    assert one.scene == again.scene and one.goal == again.goal and one.quality == again.quality
    assert all(same(a, b) for a, b in zip(vars(one.states).values(), vars(again.states).values(), strict=True))
    assert one.scene != other.scene


# Other instructions.


def test_every_rollout_is_an_example_of_all_other_instructions_of_its_scene() -> None:
    rollout = make_rollout(4, "put-in", "success")
    assert rollout.scene.things[rollout.goal.thing].on < 0
    goals = goals_of(rollout.scene)
    assert len(goals) > 5 and rollout.goal in goals
    for goal in goals:
        path = progress(rollout.scene, rollout.states, goal)
        assert path.shape == (len(rollout.states),) and path[0] < 0.1 and np.isfinite(path).all()
        if goal.thing != rollout.goal.thing and goal.other != rollout.goal.thing:
            assert path[-1] < 0.1  # nobody touched it
    lifted = progress(rollout.scene, rollout.states, Goal("lift", rollout.goal.thing))
    assert lifted.max() == 1 and lifted[-1] < 0.1  # up in between, down in the end


def test_two_steps_are_done_when_both_are() -> None:
    rollout = make_rollout(1, TWO_STEPS, "success")
    first, second = replace(rollout.goal, also=None), rollout.goal.also
    assert second is not None and end(rollout) == end(rollout, first) == end(rollout, second) == 1
    paths = [progress(rollout.scene, rollout.states, goal) for goal in (rollout.goal, first, second)]
    between = (paths[1] == 1) & (paths[2] < 1)
    assert between.any() and (paths[0][between] < 1).all()


def test_three_steps_are_stages_with_the_frames_at_which_they_are_done() -> None:
    rollout = make_rollout(3, THREE_STEPS, "success")
    steps = rollout.goal.steps
    assert len(steps) == 3 and end(rollout) == 1 and in_steps(steps) == rollout.goal
    parts = [progress(rollout.scene, rollout.states, step) for step in steps]
    whole = progress(rollout.scene, rollout.states, rollout.goal)
    assert (whole == 1).tolist() == (np.min(parts, axis=0) == 1).tolist()
    assert np.allclose(whole[whole < 0.99], np.mean(parts, axis=0)[whole < 0.99])  # each step counts alike
    texts = draw_texts(rollout.scene, rollout.goal, "train", np.random.default_rng(0))
    assert goal_of_command(joined_text(texts), rollout) == rollout.goal
    stages = stages_of(rollout, texts, np.arange(len(rollout.states)))
    assert [stage.instruction for stage in stages] == texts
    ends = [stage.reached.index(DONE) for stage in stages]
    assert ends == sorted(ends) == [int((part == 1).argmax()) for part in parts]


def test_a_step_that_is_undone_shows_in_its_stage_alone() -> None:
    for task, which in ((TWO_STEPS, 1), (THREE_STEPS, 1)):
        rollout = make_rollout(2, task, "undone")
        stages = stages_of(rollout, ["do it"] * len(rollout.goal.steps), np.arange(len(rollout.states)))
        assert [DONE in stage.reached for stage in stages] == [True] * len(stages)
        assert [stage.reached[-1] == DONE for stage in stages] == [number != which for number in range(len(stages))]


def test_one_way_to_draw_a_text_and_one_to_list_them() -> None:
    rollout = make_rollout(1, TWO_STEPS, "success")
    every = texts_of(rollout.scene, rollout.goal)
    for seed in range(5):
        number = int(np.random.default_rng(seed).integers(len(every)))
        assert draw_text(rollout.scene, rollout.goal, "train", np.random.default_rng(seed)) == every[number]


def test_words_fit_what_they_are_about() -> None:
    rollout = make_rollout(0, "take-out", "success")
    for relation, words in (("in", "out of"), ("on", " off ")):
        kind = next(name for name in thing_kinds("receptacle") if KINDS[name].relation == relation)
        things = list(rollout.scene.things)
        things[rollout.goal.other] = replace(things[rollout.goal.other], kind=kind)
        said = texts_of(replace(rollout.scene, things=tuple(things)), rollout.goal)
        assert any(words in text for text in said) and all(text[0].isupper() and text[-1] == "." for text in said)


def test_a_name_means_one_thing() -> None:
    for seed in range(20):
        scene = make_rollout(seed).scene
        names = [set(names_of(scene, number)) for number in range(len(scene.things))]
        assert sum(map(len, names)) == len(set.union(*names))


def test_commands_are_read_back_with_the_level_that_they_were_given() -> None:
    for seed in range(6):
        rollout = make_rollout(seed, quality="success")
        assert level_of_command(texts_of(rollout.scene, rollout.goal)[-1], rollout) == 5
        commands = graded_commands(rollout, np.random.default_rng(0))
        assert commands and all(command.level < 5 for command in commands)
        for command in commands:
            assert level_of_command(command.text, rollout) == command.level
    assert goal_of_command("Paint the ceiling.", rollout) is None and level_of_command("Fly.", rollout) is None


def test_two_commands_in_one_sentence_are_two_goals() -> None:
    rollout = make_rollout(1, TWO_STEPS, "success")
    said = texts_of(rollout.scene, rollout.goal)[3]
    goal = goal_of_command(said, rollout)
    assert goal is not None and goal.also is not None and level_of_command(said, rollout) == 5
    assert level_of_command(said, rollout, 0) == 1


# Rendering, replay and edits.


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tabletop")
    rewardlab.collect(
        "tabletop",
        tasks=("put-in", "open"),
        episodes=2,
        quality=("success", "near_miss"),
        camera=("front",),
        frames=(6, 9),
        size=64,
        counterfactuals=3,
        captions=True,
        execution=Execution(workers=1),
        out=folder,
    )
    return folder


@pytest.fixture(scope="module")
def episodes(dataset: Path) -> tuple[Episode, ...]:
    contents = open_dataset(str(dataset))
    assert not contents.problems
    return contents.episodes


def shown(episodes: tuple[Episode, ...]) -> Episode:
    return sample_frames(episodes[0], frame_policy("uniform:3"))


def test_what_is_collected_has_exact_labels_and_other_instructions(dataset: Path) -> None:
    rows = rows_of(dataset)
    own = [row for row in rows if "progress" in row]
    assert len(own) == 4 and len(rows) > 8 and {row["task_id"] for row in own} == {"put-in", "open"}
    for row in own:
        rollout = open_record(row["world"]).rollout
        assert row["reward"] == level_of_progress(end(rollout)) and row["success"] == (row["quality"] == "success")
        assert 6 <= len(row["progress"]) <= 9 and row["caption"]
    for row in rows:
        assert row["reward"] == level_of_command(row["task"], open_record(row["world"]).rollout)
        assert row["split"] in SPLITS


def test_frames_do_not_depend_on_what_was_rendered_before() -> None:
    rollouts, steps = [make_rollout(seed) for seed in range(4)], np.array([0, 9])

    def rendered(rollout: Rollout) -> Frames:
        return render_states(rollout.scene, rollout.states, steps, 48)

    first = [rendered(rollout) for rollout in rollouts]
    assert all(same(rendered(rollout), frames) for rollout, frames in zip(rollouts[::-1], first[::-1], strict=True))


def test_the_scripted_teacher_grades_commands_for_it(dataset: Path, tmp_path: Path) -> None:
    quiet = Execution(engine="local", quiet=True)
    made = rewardlab.data_augment(dataset, out=tmp_path / "made", splits=("train=0.5", "test=0.5"), execution=quiet)
    found = open_dataset(str(made.folder / "validate"))
    assert not found.problems and len({episode.label.level for episode in found.episodes}) >= 3
    for episode in found.episodes:
        assert episode.sim_state is not None
        world = open_record(episode.sim_state)
        step = int(video_steps(world.rollout, world.record.frames)[len(episode.clip) - 1])
        assert level_of_command(episode.instruction, world.rollout, step) == episode.label.level


def test_a_replay_is_bit_identical_and_near_its_video(episodes: tuple[Episode, ...]) -> None:
    episode = shown(episodes)
    assert episode.sim_state is not None
    first, again = (open_world(episode.sim_state).render(episode.clip.order) for _ in range(2))
    assert same(first, again)
    error = np.mean((first.astype(float) - episode.frames) ** 2)
    assert 10 * np.log10(255**2 / error) > 26  # only the codec lies between them


def test_a_record_that_does_not_fit_is_refused(episodes: tuple[Episode, ...]) -> None:
    record = episodes[0].sim_state
    assert record is not None
    with pytest.raises(DataError, match=r"0\.123.*collect the episode anew"):
        open_world({**record, "end": 0.123})
    with pytest.raises(DataError, match="generator 0"):
        open_world({**record, "generator": 0})
    with pytest.raises(DataError, match="needs seed, task"):
        open_world({key: value for key, value in record.items() if key != "quality"})
    with pytest.raises(DataError, match="2 to 1000 frames"):
        open_world({**record, "frames": 10**9})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_changed_world_keeps_the_contract_or_says_why_not(name: str, episodes: tuple[Episode, ...]) -> None:
    episode = shown(episodes)
    check_perturbation(NAMES[name], [episode])
    try:
        changed = NAMES[name](episode, 4, 1)
    except NotApplicable:
        assert name in ("world_goal_hidden", "world_robot", "world_distractors")
        return
    assert changed.expect == "same" and changed.episode.label == episode.label
    before = open_world(dict(episode.sim_state or {})).render(episode.clip.order)
    assert not same(changed.episode.frames, before) or name == "world_floor_texture"  # the table may hide the floor


@pytest.mark.parametrize("name", ["world_camera", "world_fov", "world_light_intensity", "world_table_texture",
                                  "world_robot_colour"])  # fmt: skip
def test_a_higher_severity_changes_the_frames_more(name: str, episodes: tuple[Episode, ...]) -> None:
    episode = shown(episodes)
    assert episode.sim_state is not None
    clean = open_world(episode.sim_state).render(episode.clip.order).astype(float)
    weak, strong = (NAMES[name](episode, severity, 1).episode.frames for severity in (1, 4))
    assert 0 < np.abs(weak - clean).mean() < np.abs(strong - clean).mean()


def test_edits_leave_the_rollout_as_it_is() -> None:
    rollout = make_rollout(7, "put-in", "success")
    before = rollout.scene
    scene = edited(rollout, [("distractors", (2, 3)), ("goal_decoys", (2, 1)), ("object_colour", (1, 0, 0, 1.0))])
    assert rollout.scene == before and len(scene.clutter) == len(before.clutter) + 2 and len(scene.markers) == 2
    assert scene.things[rollout.goal.thing].rgb == (1, 0, 0)
    with pytest.raises(NotApplicable, match="none to hide"):
        edited(rollout, [("goal_hidden", (0.0,))])


def test_the_success_is_seen_and_clips_for_training_come_with_their_states() -> None:
    (clip,) = training_clips([11], size=48, frames=5)
    assert clip.frames.shape == (5, 48, 48, 3) and len(clip.rollout.states) == 5
    assert clip.asked[0].goal == clip.rollout.goal and len({asked.goal for asked in clip.asked}) == len(clip.asked)
    assert all(asked.progress.shape == (5,) for asked in clip.asked)
    assert clip.frames.std() > 10 and not same(clip.frames[0], clip.frames[-1])
    (unseen,) = training_clips([11], size=48, frames=5, render=False)
    assert len(unseen.frames) == 0
    assert [a.text for a in unseen.asked] == [a.text for a in clip.asked]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ("put-inn",)}, "put-in"),
        ({"quality": ("lazy",)}, "quality"),
        ({"camera": ("selfie",)}, "camera"),
        ({"marker": True}, "no marker"),
        ({"frames": (5,)}, "least,most"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        rewardlab.collect("tabletop", out=Path("unused"), **settings)  # type: ignore[arg-type]


def test_what_can_be_collected_can_be_replayed() -> None:
    assert set(WORLDS) == set(SIMULATORS) == {"metaworld", "tabletop"}


def test_an_unknown_simulator_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(PlanError, match="metaworld, tabletop"):
        rewardlab.collect("mars", out=Path("unused"))


def test_every_quality_of_the_catalog_can_be_asked_for() -> None:
    for quality in QUALITIES:
        assert make_rollout(0, "put-on", quality).quality == quality
